/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The inside of a summary: summary.c takes in rows, device.c those about a GPU, processes.c knows
 * processes and their pools, query.c adds up,
 * text.c and json.c write it.
 *
 *	process --< pool (device, type) --< group (call stack) --< block
 *
 * A group's `live` is what it holds now. What it held at the pool's peak is found without a copy at
 * every new peak: the pool counts its peaks, and a group saves its old `live` in `at_peak` when it
 * changes for the first time since the newest one (at_peak_no).
 *
 * A block that ended with a made-up FREE moves from `live` to `ended` and stays in the pool's list
 * of them, so that it can still become an ordinary free (pool_resume() in summary.c).
 */
#ifndef SONDE_MEMORY_ANALYSIS_SUMMARY_SUMMARY_IMPL_H
#define SONDE_MEMORY_ANALYSIS_SUMMARY_SUMMARY_IMPL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/containers/hmap.h"
#include "memory/analysis/common/fields.h"
#include "memory/analysis/common/total.h"
#include "memory/analysis/gpu/gpu.h"
#include "memory/analysis/processes/loss.h"
#include "memory/analysis/summary/summary.h"
#include "memory/dump/row.h"

#define SUMMARY_MAX_OOMS 16
#define SUMMARY_BEFORE UINT32_MAX /* as a call stack: none, allocated before recording began */
#define SUMMARY_NIL UINT32_MAX /* end of a list of blocks or groups */

struct summary_held {
	uint64_t blocks;
	uint64_t bytes;
};

struct summary_tally {
	uint64_t live_bytes;
	uint64_t peak_bytes;
	uint64_t peak_time_ns;
};

/* What a process has of a GPU. */
struct summary_moment {
	uint64_t time_ns;
	uint64_t blocks; /* of the driver */
	uint64_t tensors; /* inside of them */
	uint64_t kept; /* by the driver's pools, beside the blocks */
};

/* All of a device, or what one process has of it. */
struct summary_device {
	uint32_t device;
	uint32_t users; /* processes, of the whole device */
	bool has_driver;
	struct summary_tally driver; /* HAL, CUDA and HOST; of the whole: by summary_settle() */
	struct summary_tally pools; /* the others */
	struct total driver_total, pools_total; /* of the whole device */
	bool late; /* the whole's peak is at least that of a process; more is not known */
	/* Of a process' part of a GPU (device.c): */
	struct {
		bool known, exact; /* exact: by a snapshot */
		uint64_t total, used;
		struct summary_moment then;
		bool has_others;
		uint64_t others; /* the newest that is known */
		uint64_t job; /* of them, by processes of this job */
	} use;
	struct summary_moment newest;
	uint64_t kept; /* by pools of CUDA's driver, now */
	uint64_t sampled; /* in use of the whole device, as the newest sample says */
};

struct summary_pool {
	struct summary_process *process;
	uint32_t number; /* of all pools */
	uint32_t device;
	enum row_type type;
	uint64_t mallocs;
	uint64_t carried; /* blocks from before the part that is left; not of mallocs */
	uint64_t frees;
	uint64_t unmatched_frees; /* of frees */
	uint64_t torn_down; /* of frees: when the program had ended, so they are in `ended`, too */
	uint64_t left_by_teardown; /* blocks: allocated then, and not freed */
	uint64_t unseen_frees; /* of blocks that had gone when recording went on */
	struct summary_held live;
	struct summary_held ended;
	struct summary_tally bytes;
	uint64_t peak_blocks;
	uint64_t peak_no;
	struct summary_device *own; /* the process' part of the device */
	struct summary_device *all;
	uint64_t ended_time_ns; /* of the newest block in the list */
	uint32_t ended_list;
	uint32_t groups; /* list of them */
	uint32_t last_stack, last_group;
};

struct summary_group {
	struct summary_pool *pool;
	struct summary_held live;
	struct summary_held ended;
	struct summary_held at_peak;
	uint64_t at_peak_no;
	uint32_t stack;
	uint32_t next; /* of the same pool */
};

struct summary_block {
	uint64_t key; /* once it has ended */
	uint64_t bytes;
	uint32_t group; /* SUMMARY_NIL: freed, but still in a list */
	uint32_t next; /* of unused ones, or of a pool's ended ones */
	bool ended;
};

struct summary_loss {
	uint64_t events;
	uint64_t stacks;
	uint64_t damaged_bytes;
};

struct summary_counts { /* numbers alone: they are added up as an array */
	uint64_t rows;
	uint64_t mallocs, frees, unmatched_frees, synthetic_frees;
	uint64_t unseen_frees; /* of synthetic_frees: the pool went on */
	uint64_t accesses;
	uint64_t operator_launches, kernel_launches;
	uint64_t marks, ranges, steps;
	uint64_t detected_steps; /* without those */
	uint64_t snapshots, ooms;
};

struct summary_process {
	uint32_t pid;
	bool named; /* summary_process() was called */
	char *cmdline;
	uint64_t first_ns, last_ns;
	uint64_t order_ns; /* of the newest MALLOC or FREE */
	struct summary_counts seen; /* less what the pools count */
	struct summary_loss lost;
	struct hmap blocks; /* allocation_id: see pack_block() in summary.c */
	struct hmap pools; /* device and type: struct summary_pool */
	struct hmap devices; /* device: struct summary_device */
	struct summary_pool **pool_list;
	size_t npools, pools_cap;
	struct summary_pool *last_pool;
	size_t nended; /* blocks in the lists of its pools */
	bool torn_down; /* the program has ended: host memory changes, but is not followed */
	uint64_t newest_id; /* of its blocks; they count up */
	/* Files that are mapped, in none of its pools. */
	uint64_t file_mappings; /* that were made */
	struct summary_tally files;
};

struct summary_oom {
	uint32_t pid, device;
	uint64_t time_ns;
	uint64_t requested_bytes;
	char function[32];
};

struct summary {
	uint64_t first_ns, last_ns;
	bool unordered; /* a process went back in time */
	struct loss missing; /* its sums are those of the processes, see summary_loss_all() */
	uint64_t nameless; /* MALLOC rows with neither an id nor an address */
	struct summary_counts seen; /* rows that belong to no process */
	struct summary_process **processes;
	size_t nprocesses, processes_cap;
	struct hmap by_pid; /* the newest process of that pid */
	struct summary_process *last_process;
	struct summary_device **devices;
	size_t ndevices, devices_cap;
	struct hmap by_device;
	struct stacks stacks;
	struct summary_group *groups;
	size_t ngroups, groups_cap;
	struct hmap by_group; /* pool number and stack: number of the group */
	struct summary_block *blocks;
	size_t nblocks, blocks_cap;
	uint32_t unused_blocks; /* list */
	uint32_t npools;
	struct summary_oom ooms[SUMMARY_MAX_OOMS];
	unsigned nooms; /* in the array; the counts have them all */
	char **notes;
	size_t nnotes, notes_cap;
	uint64_t calls, call_threads; /* of Python functions */
	bool calls_in_db;
	struct mem_asked asked;
	struct gpu_use gpu;
	const struct processes *facts; /* NULL: none */
};

/* --- processes.c: the newest process of that pid, another one, a pool of it --- */

struct summary_process *summary_process_of(struct summary *s, uint32_t pid);
struct summary_process *summary_new_process(struct summary *s, uint32_t pid);
struct summary_pool *summary_pool_of(struct summary *s, struct summary_process *p,
				     const struct row *row);

/* --- device.c: rows about the memory of a GPU; d is the process' part of it --- */

void summary_use_block(struct summary_device *d, const struct row *row);
void summary_use_snapshot(struct summary_device *d, const struct row *row);

/* What a GPU has in use: used = pool + process + others + not_told. */
struct summary_share {
	uint64_t time_ns;
	uint64_t total_bytes; /* 0: not known */
	uint64_t used_bytes, pool_bytes, tensor_bytes; /* tensors: of pool */
	uint64_t kept_bytes; /* by the driver's pools, beside what they have handed out */
	bool has_others;
	uint64_t process, others, not_told;
	uint64_t job; /* of others, by processes of this job */
};

/* Of a process, by its CUDA pool; false where nothing is known, or for another pool. */
bool summary_use(const struct summary_pool *pool, struct summary_share *out);

/* --- query.c: what text and JSON have in common --- */

void summary_count(const struct summary_process *p, struct summary_counts *out);
void summary_count_all(const struct summary *s, struct summary_counts *out);
void summary_loss_all(const struct summary *s, struct loss *out);
struct summary_held summary_alive(const struct summary_pool *pool);
/* Has MALLOC rows, but not one FREE row. */
bool summary_frees_missing(const struct summary_counts *c);

/* Before anything is asked: the peaks of whole devices. */
void summary_settle(struct summary *s);
/* The peak of a device, or of a process' part of it. */
const struct summary_tally *summary_device_peak(const struct summary_device *d);
/* What was held of a whole device, over time. */
struct timed_course summary_device_course(struct summary_device *d);
void summary_sort_devices(struct summary *s);

/* The pool's call sites, largest first, at its peak or at the end. Gives an array. */
struct call_site *summary_sites(const struct summary *s, const struct summary_pool *pool,
				bool at_peak, size_t *out_n);

/* answer.c: the first paragraph, a sentence about calls of functions. */
void summary_describe_answer(struct summary *s, struct buf *out);
void summary_describe_calls(const struct summary *s, struct buf *out);
/* The highest peak of its pools. */
uint64_t summary_highest_pool(const struct summary_process *p);
struct programs;
/* All that made rows, with the most that each held. */
void summary_programs(const struct summary *s, struct programs *out);

/* A line about files that were mapped, if there were any. */
void summary_describe_files(const struct summary *s, struct buf *out);

/* The pools of a process by device and type. Gives an array of npools. */
struct summary_pool **summary_pools(const struct summary_process *p);

/* A pool as the table and JSON have it. */
struct summary_pool_row {
	uint32_t pid, device;
	enum row_type type;
	uint64_t events, mallocs, frees, unmatched_frees, synthetic_frees, teardown_frees;
	uint64_t carried_over_blocks;
	uint64_t peak_bytes, peak_blocks, peak_time_ns, peak_after_ns;
	bool has_peak;
	struct summary_held alive;
};
extern const struct field summary_pool_fields[];
struct summary_pool_row summary_pool_row(const struct summary *s, const struct summary_pool *pool);

static inline void summary_held_add(struct summary_held *to, const struct summary_held *more)
{
	to->blocks += more->blocks;
	to->bytes += more->bytes;
}

#endif
