/* SPDX-License-Identifier: MulanPSL-2.0 */
/* State of one process inside track.c and its helpers; nobody else includes this. */
#ifndef SONDE_MEMORY_TRACK_TRACK_IMPL_H
#define SONDE_MEMORY_TRACK_TRACK_IMPL_H

#include "base/containers/buf.h"
#include "base/containers/chains.h"
#include "base/containers/hmap.h"
#include "base/containers/omap.h"
#include "memory/track/track.h"
#include "unwind/symbols/symbolize.h"

#include <sys/stat.h>

#define MAX_VISIBLE 64
#define MAP_PINNED POOL_END /* registrations of host memory that is somebody else's */
#define MAP_MAPPINGS (POOL_END + 1) /* of the job; in sums: those of files */
#define MAP_HANDLES (POOL_END + 2) /* blocks of CUDA that have no address */
#define NMAPS (POOL_END + 3)
#define NQUIET 4
#define MAX_DEVICES 256 /* of a process; each has files of its own */
/* What counts for a live block and for a process, with what maps and analyses keep of them. */
#define BLOCK_COST 192
#define PROC_COST 8192

struct block {
	uint64_t addr;
	uint64_t size_bytes;
	uint64_t id;
	uint64_t time_ns;
	uint32_t tid;
	uint32_t stack;
	uint32_t step; /* in which it was allocated */
	uint16_t device;
	uint16_t context; /* of CUDA, with which it ends; 0: none */
	uint8_t pool;
	uint8_t kind;
	uint8_t page;
	uint8_t module;
	uint8_t cut_by; /* see rec_block; with track.for_checkpoint */
	bool written; /* its MALLOC row is out, so its FREE row must follow */
	bool hidden; /* and it is for the analyses alone */
	bool shadow; /* and it has shadow:true */
	bool labelled_late; /* its owner came after the MALLOC row */
	bool arena; /* a mapping that objects of Python were cut from */
	bool alone; /* an object of Python in no mapping that counts: counts as host memory */
	bool is_shared; /* tensors of several layers lie in it */
	struct labels *labels; /* see memory/track/labels.c; NULL without */
	uint64_t layer; /* see memory/track/layers.c; 0: none */
	union { /* of LAYER_ADDR: where its tensor lies; of several, which there are */
		uint64_t tensor_addr;
		struct tensors *tensors;
	};
	uint64_t tensor_bytes; /* of all of them */
	uint32_t forward; /* of its thread in which it was allocated; 0: outside */
	struct block *next_free;
};

/* What is in use on one device, by pool. */
struct usage {
	uint32_t device;
	uint64_t used[NMAPS];
	uint64_t total[NMAPS];
	uint64_t peak_used[NMAPS];
	uint64_t peak_ns[NMAPS]; /* when that was */
	uint64_t peak_total[NMAPS];
	uint64_t own_bytes; /* of the driver's blocks, in whole pages */
	uint64_t async_bytes; /* of blocks that were cut from pools of CUDA's driver */
	uint64_t gpu_bytes; /* memory of the device, as CUDA says; 0: not known */
	uint8_t gpu_uuid[16]; /* of the device, or of its part (MIG) */
	bool gpu_part;
	struct rec_device memory; /* the newest sample; its size is 0 before the first */
	uint64_t oom_shown_ns; /* when the framework itself took the snapshot of a refusal */
	bool oom_waits; /* memory was refused, and there was no sample to show with it */
	bool context_refused; /* CUDA could not make a context there */
};

/* What is owed at an address; see memory/track/reorder.c. */
struct early {
	uint64_t time_ns; /* of the record that made us owe */
	uint32_t tid;
	int frees; /* > 0: frees that are still to come; < 0: allocations whose free has come */
};

struct label {
	uint8_t level;
	char *text;
};

/* The labels of a thread at [from_ns, until_ns). */
struct past_labels {
	uint64_t from_ns, until_ns;
	struct labels *labels;
};

struct thread {
	struct label *labels;
	size_t nlabels, cap_labels;
	struct labels *now; /* what they come to; NULL for none */
	bool stale; /* they have changed since */
	unsigned operators; /* of torch that run, one inside the other */
	struct labels *in_operator; /* `now` for what they allocate */
	uint64_t since_ns; /* when labels last changed */
	struct past_labels *past; /* what they were before, in a circle */
	size_t npast, cap_past, first_past;
};

struct proc {
	struct track *track;
	struct frame_proc info;
	const struct mem_config *cfg; /* the recording's, or its own */
	struct mem_config *own_cfg;
	uint64_t next_row;
	uint64_t next_block;
	uint64_t step;
	uint64_t first_step; /* 0: none yet */
	uint64_t step_range; /* id of the range that is the current step, 0 outside */
	bool tracing;
	bool by_range; /* steps come from "step start" ranges … */
	bool by_call; /* … or from the step call; the first seen wins */
	uint8_t detected; /* without either: enum rec_step_source */
	uint64_t step_name; /* of detected steps: hash of the name of what steps */
	bool two_kinds_logged; /* that it uses both */
	bool window; /* rows are being written */
	uint64_t last_ns; /* of its records so far */
	struct checkpoint_reading
		*checkpoint; /* its checkpoint is being read, see checkpoint_read.c */
	bool lacks_checkpoint; /* it must have one, and its end has not come yet */
	struct rec_process who; /* the newest; its size is 0: none */
	struct rec_usage sampled; /* waits for the records before it; its size is 0: none does */
	uint64_t high_bytes, high_ns; /* host memory before what was freed lately */
	struct stream_losses losses;
	uint64_t skipped_batch; /* the newest whose records were there already, see track.batch */
	int visible[MAX_VISIBLE];
	int nvisible;
	struct omap maps[NMAPS]; /* address → struct block */
	struct omap early[NMAPS]; /* address → struct early */
	size_t early_limit[NMAPS];
	struct {
		uint64_t from, until; /* no mapping there that malloc has not served from */
	} quiet[NQUIET];
	struct omap reserved; /* those of maps[MAP_MAPPINGS] that are ALLOC_RESERVED */
	struct omap moving; /* tid → kind of what its mremap() has left, and one */
	struct omap heaps; /* address → size of a pool's heap, as pointer value */
	struct omap handles, mapped; /* physical memory of CUDA, see memory/track/cuda.c */
	struct omap libraries; /* number → path of who asks CUDA for memory */
	struct omap names; /* hash → text */
	struct hmap stacks; /* id → number of frames; 0: it was in a damaged part */
	struct chains frames;
	struct stack_text *shown; /* those that rows had lately */
	struct omap places; /* id → text: where in Python code, see rec_python */
	struct omap threads; /* tid → struct thread */
	struct omap layers; /* tid → the layers that run in it, see memory/track/layers.c */
	size_t npast_layers; /* of all threads */
	struct omap operations; /* of autograd: the thread that numbers them → layers of modules */
	struct omap calls; /* tid → functions that run, see memory/track/calls.c */
	struct omap notes; /* hash → spans that the program named */
	size_t npast; /* of all threads */
	struct usage *usage;
	size_t nusage, cap_usage;
	uint64_t oom_detail_ns; /* when the blocks were last listed because of refused memory */
	uint64_t oom_listed; /* blocks that were looked at for these lists */
	struct rec_system host_memory; /* SYSTEM_HOST_MEMORY of the newest refusal */
	struct symbolizer *symbols;
	uint64_t refused; /* of what it reported, for which there was no room: budget.c */
	uint64_t refused_stacks;
	uint64_t unknown_stacks; /* they were in a damaged part */
	struct buf texts; /* with track.for_checkpoint: its places and modules, as they came */
	struct hmap texts_seen;
};

struct stack_text {
	uint32_t id; /* 0: none */
	struct buf text, python;
};

/* See memory/track/damage.c. */
struct damage {
	uint64_t places, bytes;
	uint64_t orphans; /* events of processes that nothing introduces */
	uint64_t
		repeated; /* batches that are there twice, or not in their order, and passed over */
	uint64_t
		checkpoints; /* processes without what was alive when the oldest part was dropped */
	uint32_t version; /* of the file */
	bool has_session; /* the configuration and the clocks are known */
};
void damage_found(void *track, uint64_t bytes);

struct track {
	struct track_sink sink;
	uint64_t batch; /* that is being read, from 1 */
	bool batch_repeated;
	struct mem_config cfg;
	int64_t wall_minus_mono_ns;
	struct proc **procs;
	size_t nprocs, cap_procs;
	struct hmap introduced; /* numbers of processes, of those that have ended, too */
	uint64_t newest_ns; /* of all records of processes so far */
	uint64_t heard_ns; /* of samples and counters, too */
	bool ended; /* nothing came after the end of its recorder */
	bool whole; /* see track_is_whole() */
	struct damage damage;
	struct block *free_blocks;
	struct row_part *parts; /* of the row that is put together */
	size_t cap_parts;
	bool for_checkpoint; /* it is followed for checkpoint_write.c */
	bool was_cut;
	bool in_checkpoint; /* between the cut and the first batch: the processes that have a checkpoint */
	struct frame_cut cut;
	uint64_t last_step; /* that has ended, of all processes */
	uint64_t steps; /* that have ended, of all of them together */
	struct track_signs signs;
	uint64_t budget, kept; /* bytes; no budget: any number */
	uint64_t refused;
};

/*
 * memory/track/budget.c: how much is kept of a recording. budget_take() counts what it refuses;
 * budget_allows() does so for a record that is kept, or may be.
 */
void budget_set(struct track *t, const struct stat *recording);
bool budget_take(struct proc *p, size_t bytes);
void budget_give_back(struct track *t, size_t bytes);
/* For a block that ended without a free: it is forgotten here, but answers list it as left. */
void budget_keep(struct track *t, size_t bytes);
bool budget_allows(struct proc *p, const struct rec *r);

/* memory/track/rows.c: rows out. Whether those of blocks are wanted is the caller's to know. */
void rows_malloc(struct proc *p, struct block *b, uint64_t time_ns, bool shadow);
void rows_free(struct proc *p, const struct block *b, const struct rec *r, uint32_t tid,
	       uint64_t time_ns, bool shadow);
void rows_relabelled(struct proc *p, const struct block *b); /* after its MALLOC row */
void rows_access(struct proc *p, uint32_t tid, const struct rec_access *a);
void rows_op(struct proc *p, uint32_t tid, const struct rec_op *o);
void rows_kernel(struct proc *p, uint32_t tid, const struct rec_kernel *k);
void rows_mark(struct proc *p, uint32_t tid, const struct rec_mark *m);
void rows_system(struct proc *p, uint32_t tid, const struct rec_system *s);
void rows_detected_step(struct proc *p, uint32_t tid, const struct rec_system *s);
/* Marks of torch's dispatcher (`memscope-aten-…`): true if it was one. */
bool rows_aten(struct proc *p, uint32_t tid, const struct rec_mark *m);

/* Call stacks and what is needed to read them (memory/track/stacks.c). */
void callstacks_module(struct proc *p, const struct rec_module *r);
void callstacks_python(struct proc *p, const struct rec_python *r);
void callstacks_add(struct proc *p, uint32_t id, const uint64_t *pc, uint32_t depth);
/* The words of a stack, of which there are ARENA_MAX_DEPTH at most. */
uint32_t callstacks_words(const struct proc *p, uint64_t frames, uint64_t *out);
void callstacks_release(struct proc *p);

/* Pieces of a row, for other files that make some. rows_put_stack: id 0 is no stack. */
bool rows_wanted(const struct proc *p, uint32_t device);
void rows_begin(struct proc *p, struct row *row, enum row_event event, enum row_type type,
		uint32_t tid, uint32_t device, uint64_t mono_ns);
void rows_put_name(struct row *row, const char *name, size_t len);
const char *rows_pool_text(const struct block *b);
enum row_type rows_pool_type(uint8_t pool); /* enum rec_pool */
void rows_put_stack(struct proc *p, struct row *row, uint32_t id);
void rows_emit(struct proc *p, struct row *row);

/*
 * memory/track/oom.c: memory that was refused, and samples of device memory. rows_put_device() adds
 * process_used and device_used, rows_put_total() what START_TRACE says of its device; both only
 * where a sample is young enough.
 */
void oom_record(struct proc *p, uint32_t tid, const struct rec_oom *o);
void device_record(struct proc *p, const struct rec_device *r);
void snapshot_record(struct proc *p, uint32_t tid, const struct rec_snapshot *s);
uint64_t whole_pages(const struct block *b);
void rows_put_device(const struct usage *u, struct row *row, uint64_t time_ns);
void rows_put_total(struct proc *p, struct row *row, uint64_t time_ns);

/*
 * memory/track/calls.c: calls of functions. trace_leave(): no more of them; with a time that is not
 * 0, what runs then has a row.
 */
void trace_record(struct proc *p, uint32_t tid, const struct rec_call *r);
void trace_thread_begins(struct proc *p, uint32_t tid);
void trace_leave(struct proc *p, uint64_t stop_ns);
void trace_release(struct proc *p);

/*
 * memory/track/mappings.c. mappings_malloc(): malloc has served this address. mappings_object(): is
 * the block an object of Python, and not a block of malloc that counts already? Says where it lies.
 */
void mappings_record(struct proc *p, uint32_t tid, const struct rec_map *r);
void mappings_malloc_slow(struct proc *p, uint64_t addr, uint32_t tid, uint64_t time_ns);
bool mappings_object(struct proc *p, struct block *b);
void mappings_set_moving(struct proc *p, uint32_t tid, uint8_t kind); /* for checkpoint_read.c */

static inline void mappings_malloc(struct proc *p, uint64_t addr, uint32_t tid, uint64_t time_ns)
{
	unsigned i = addr >> 32 & (NQUIET - 1);

	if (p->maps[MAP_MAPPINGS].count &&
	    addr - p->quiet[i].from >= p->quiet[i].until - p->quiet[i].from)
		mappings_malloc_slow(p, addr, tid, time_ns);
}

/*
 * memory/track/checkpoint_read.c: what was alive where the recording begins. checkpoint_record()
 * takes REC_BLOCK and REC_STATE. checkpoint_end(): the process ends; who was higher before the cut
 * is said.
 */
void checkpoint_record(struct proc *p, uint32_t tid, const struct rec *r);
void checkpoint_end(struct proc *p);
void checkpoint_release(struct proc *p); /* it is read, or there will be no more of it */
/* memory/track/checkpoint_write.c: keeps a REC_PYTHON or REC_MODULE. */
void checkpoint_keep_text(struct proc *p, const struct rec *r);
void checkpoint_keep_cut(struct proc *p,
			 const struct block *b); /* a pool has cut it from another */

/* One record after the other, for checkpoint_write.c. */
struct checkpoint_writing;
void checkpoint_put(struct checkpoint_writing *w, uint32_t tid, void *rec, const char *text,
		    size_t len);
void trace_write(struct proc *p, struct checkpoint_writing *w); /* functions that run */
void labels_write(struct proc *p, struct checkpoint_writing *w); /* what threads have pushed */

/*
 * memory/track/cuda.c. cuda_created(): a block of ALLOC_CREATE has begun. cuda_owner(): adds who
 * has asked for a block, such as "CUDA@NCCL"; false where nobody knows.
 */
void cuda_created(struct proc *p, uint64_t handle);
void cuda_vmm(struct proc *p, uint32_t tid, const struct rec_vmm *r);
void cuda_context(struct proc *p, uint32_t tid, const struct rec_context *r);
void cuda_gpu(struct proc *p, const struct rec_gpu *r);
void cuda_library(struct proc *p, const struct rec_library *r);
bool cuda_owner(const struct proc *p, const struct block *b, struct buf *out);
void cuda_write(struct proc *p, struct checkpoint_writing *w);
void cuda_release(struct proc *p);

/* Samples of watched memory. */
void watch_record(struct proc *p, uint32_t tid, const struct rec_watch *r);

/*
 * memory/track/reorder.c: shadow records that come in the wrong order. owed_add() says that `frees`
 * frees of the address are still to come (negative: allocations whose free has come); owed_settle()
 * asks whether a record is one of those.
 */
struct owed {
	unsigned map;
	uint32_t tid; /* whose record it is */
	uint64_t addr;
};
void owed_add(struct proc *p, const struct owed *o, uint64_t time_ns, int frees);
bool owed_settle(struct proc *p, const struct owed *o, const struct rec *r, int frees);

/*
 * memory/track/labels.c. labels_of() gives the labels that a block of that thread gets, NULL
 * without any; labels_put() gives them back. labels_text() adds them in the order of their levels,
 * joined by
 * '@', also to what is in out already.
 */
struct labels *labels_of(struct proc *p, uint32_t tid, uint8_t pool, uint64_t time_ns);
struct labels *labels_share(struct labels *l); /* once more; l may be NULL */
void labels_put(struct labels *l); /* l may be NULL */
void labels_text(const struct labels *l, struct buf *out);
/* The form of struct rec_block, at most LABELS_MAX_BYTES; and back: NULL if there are none. */
#define LABELS_MAX_BYTES (BLOCK_LEVELS + BLOCK_LEVELS * 128)
size_t labels_pack(const struct labels *l, char out[LABELS_MAX_BYTES]);
struct labels *labels_unpack(const char *text, size_t len);
void labels_accessed(struct proc *p, struct block *b); /* by an operator of torch */
void labels_operator(struct proc *p, uint32_t tid, bool begins); /* one of torch */
void labels_set_operators(struct proc *p, uint32_t tid, unsigned n);
void labels_thread_begins(struct proc *p, uint32_t tid); /* those of a dead namesake are gone */
void labels_record(struct proc *p, uint32_t tid, const struct rec_label *r);
void labels_release(struct proc *p);

/*
 * memory/track/layers.c: which module of a model a block belongs to. layers_allocated() gives the
 * block the layer that ran in its thread at that time.
 */
void layers_record(struct proc *p, uint32_t tid, const struct rec_layer *r);
void layers_allocated(struct proc *p, struct block *b, uint64_t time_ns);
bool layers_is_temporary(const struct proc *p, const struct block *b, uint64_t freed_ns);
/* What it adds to the row is there until the next call. */
void layers_put_row(const struct proc *p, struct row *row, const struct block *b);
void layers_block_gone(struct track *t, struct block *b);
/* b, which is a copy of `of`, is a part of it by now: it has the tensors that lie in it. */
void layers_split_block(struct proc *p, struct block *b, const struct block *of);
void layers_write_block(const struct block *b, struct checkpoint_writing *w);
void layers_thread_begins(struct proc *p, uint32_t tid);
void layers_write(struct proc *p, struct checkpoint_writing *w);
void layers_set_forwards(struct proc *p, uint32_t tid, uint32_t n);
void layers_release(struct proc *p);
struct block *labels_block_at(struct proc *p, uint64_t addr); /* that a label of addr is for */

/*
 * memory/track/window.c: when rows are written. window_list() gives all blocks of a process in the
 * order of their allocation; the list is the caller's to free.
 */
struct block_list {
	struct block **list;
	size_t n, cap;
};
void window_list(struct proc *p, struct block_list *out);
void window_config(struct proc *p, const struct rec_config *r);
void window_mark(struct proc *p, uint32_t tid, const struct rec_mark *m);
void window_system(struct proc *p, uint32_t tid, const struct rec_system *s);

/* track.c. block_is_memory(): and not only addresses, or other blocks' memory. */
static inline bool block_is_memory(const struct block *b)
{
	return b->kind != ALLOC_RESERVED && b->kind != BLOCK_OF_MALLOC;
}

/* The map that a block is in, by its address or what stands for it. */
static inline unsigned block_map(uint8_t pool, uint8_t kind)
{
	if (pool == POOL_CUDA &&
	    (kind == ALLOC_CREATE || kind == ALLOC_ARRAY || kind == ALLOC_GRAPH))
		return MAP_HANDLES;
	return kind == ALLOC_PINNED ? MAP_PINNED : pool;
}

/* The sum that a block is part of. */
static inline unsigned block_sum(const struct block *b)
{
	if (b->kind == ALLOC_PINNED)
		return MAP_PINNED;
	if (b->kind == ALLOC_FILE)
		return MAP_MAPPINGS;
	return b->alone ? POOL_HOST : b->pool;
}

/* memory/track/alive.c: what is alive. */
struct block *block_new(struct track *t);
void block_free(struct track *t, struct block *b);
void count_used(struct proc *p, const struct block *b, bool more);
struct usage *usage_of(struct proc *p, uint32_t device);
struct block *block_around(struct proc *p, unsigned map, uint64_t addr);
void alive_add(struct proc *p, uint32_t tid, const struct rec_alloc *r);
void alive_remove(struct proc *p, uint32_t tid, const struct rec_free *r);
/* It ends with this record; b was taken out of its map, and may be NULL. */
void alive_end(struct proc *p, struct block *b, const struct rec *r, uint32_t tid);
/* What a pool has from the driver. */
void alive_set_pool(struct proc *p, const struct rec_heap *r);
/* False: the record is of more devices than there are, and counted as refused. */
bool alive_has_room(struct proc *p, const struct rec *r);
/* Passes the newest sample of the process on, now that the blocks of its time are known. */
void alive_emit_usage(struct proc *p);
uint32_t physical_device(const struct proc *p, uint32_t device);

#endif
