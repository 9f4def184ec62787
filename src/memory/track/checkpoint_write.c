/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The checkpoint of a recording whose oldest part is dropped (wire/recording.h): that part is
 * followed as by everybody who reads a recording, but without rows; then what is alive, and what
 * later records refer to, is written as records. checkpoint_read.c reads them.
 *
 * Names, places in Python code, modules and call stacks are kept whole: the job sends each once,
 * and has room for so many.
 */
#include "memory/track/track_impl.h"
#include "wire/ring.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define BATCH_BYTES (4u << 20)

struct checkpoint_writing {
	struct proc *p;
	struct buf batch;
	size_t run; /* where the BATCH_RUN of `tid` begins; SIZE_MAX: none */
	uint32_t tid;
	int (*fn)(void *arg, const void *payload, size_t bytes);
	void *arg;
	int result;
};

void checkpoint_keep_text(struct proc *p, const struct rec *r)
{
	if (r->type != REC_PYTHON && r->type != REC_MODULE && r->type != REC_LIBRARY &&
	    r->type != REC_GPU)
		return;
	uint64_t key = XXH3_64bits_withSeed(r + 1, r->size - sizeof(*r), r->type);
	if (hmap_put(&p->texts_seen, key, 1) == HMAP_NONE)
		buf_add(&p->texts, r, r->size);
}

void checkpoint_keep_cut(struct proc *p, const struct block *b)
{
	if (b->pool == POOL_HAL || b->pool == POOL_CUDA || b->pool == POOL_HOST)
		return;
	struct block *from = block_around(p, POOL_HAL, b->addr);
	if (!from)
		from = block_around(p, POOL_CUDA, b->addr);
	if (!from && b->pool == POOL_PYTHON)
		from = block_around(p, MAP_MAPPINGS, b->addr);
	if (from && !from->cut_by)
		from->cut_by = b->pool;
}

/* --- batches --- */

static void end_run(struct checkpoint_writing *w)
{
	if (w->run != SIZE_MAX)
		((struct batch_item *)(w->batch.data + w->run))->bytes =
			(uint32_t)(w->batch.len - w->run);
	w->run = SIZE_MAX;
}

static void flush_batch(struct checkpoint_writing *w)
{
	end_run(w);
	if (w->batch.len && w->result == 0)
		w->result = w->fn(w->arg, w->batch.data, w->batch.len);
	buf_clear(&w->batch);
}

static void begin_run(struct checkpoint_writing *w, uint32_t tid)
{
	struct batch_item head = {.kind = BATCH_RUN, .proc = w->p->info.proc, .tid = tid};

	if (w->batch.len >= BATCH_BYTES)
		flush_batch(w);
	if (w->run != SIZE_MAX && w->tid == tid)
		return;
	end_run(w);
	w->run = w->batch.len;
	w->tid = tid;
	buf_add(&w->batch, &head, sizeof(head));
}

/* `rec` is the fixed part; its size is set here where there is text. */
void checkpoint_put(struct checkpoint_writing *w, uint32_t tid, void *rec, const char *text,
		    size_t len)
{
	static const char zeros[8];
	struct rec *head = rec;
	size_t fixed = head->size;

	head->size = rec_size(fixed, len);
	begin_run(w, tid);
	buf_add(&w->batch, rec, fixed);
	if (len)
		buf_add(&w->batch, text, len);
	buf_add(&w->batch, zeros, head->size - fixed - len);
}

static void put_state(struct checkpoint_writing *w, const struct rec_state *s)
{
	struct rec_state r = *s;

	r.head = (struct rec){.type = REC_STATE, .size = sizeof(r), .time_ns = w->p->last_ns};
	checkpoint_put(w, w->p->info.pid, &r, NULL, 0);
}

/* --- what a process has --- */

static void put_begin(struct checkpoint_writing *w)
{
	const struct proc *p = w->p;
	struct rec_state s = {.kind = STATE_BEGIN,
			      .device = DEV_NONE,
			      .value = {p->step, p->step_range, p->first_step, p->step_name}};

	s.flags = (p->tracing ? STATE_TRACING : 0) | (p->window ? STATE_WINDOW : 0) |
		  (p->by_range ? STATE_BY_RANGE : 0) | (p->by_call ? STATE_BY_CALL : 0) |
		  (p->detected == STEP_OPTIMIZER ? STATE_BY_OPTIMIZER : 0) |
		  (p->detected == STEP_FORWARD ? STATE_BY_FORWARD : 0);
	put_state(w, &s);
}

static void put_config(struct checkpoint_writing *w)
{
	const struct mem_config *c = w->p->own_cfg;
	struct rec_config r = {.head = {.type = REC_CONFIG, .size = sizeof(r)}};

	if (!c)
		return;
	mem_config_get_settings(c, &r.settings);
	size_t len = strlen(c->output_dir);
	r.len = (uint16_t)(len <= REC_MAX_NAME ? len : 0);
	checkpoint_put(w, w->p->info.pid, &r, c->output_dir, r.len);
}

static void put_name(uint64_t hash, void *value, void *arg)
{
	struct checkpoint_writing *w = arg;
	struct rec_name r = {.head = {.type = REC_NAME, .size = sizeof(r)},
			     .hash = hash,
			     .len = (uint16_t)strnlen(value, REC_MAX_NAME)};

	checkpoint_put(w, w->p->info.pid, &r, value, r.len);
}

static void put_texts(struct checkpoint_writing *w)
{
	struct proc *p = w->p;

	for (size_t at = 0; at < p->texts.len;) {
		const struct rec *r = (const struct rec *)(p->texts.data + at);
		at += r->size;
		begin_run(w, p->info.pid);
		buf_add(&w->batch, r, r->size);
	}
}

static void put_stack(struct checkpoint_writing *w, uint32_t id, uint64_t frames)
{
	uint64_t pc[ARENA_MAX_DEPTH];
	uint32_t depth = callstacks_words(w->p, frames, pc);
	struct batch_stack item = {
		.head = {BATCH_STACK, 0, w->p->info.proc, 0}, .id = id, .depth = depth};

	if (w->batch.len >= BATCH_BYTES)
		flush_batch(w);
	end_run(w);
	item.head.bytes = (uint32_t)(sizeof(item) + depth * sizeof(pc[0]));
	buf_add(&w->batch, &item, sizeof(item));
	buf_add(&w->batch, pc, depth * sizeof(pc[0]));
}

static void put_stacks(struct checkpoint_writing *w)
{
	uint64_t id, frames;

	for (size_t at = 0; hmap_next(&w->p->stacks, &at, &id, &frames);)
		if (frames)
			put_stack(w, (uint32_t)id, frames);
}

static void put_heap(uint64_t addr, void *value, void *arg)
{
	struct checkpoint_writing *w = arg;
	const struct usage *heap = value;

	for (uint8_t pool = 1; pool < POOL_END; pool++) {
		struct rec_heap r = {.head = {.type = REC_HEAP, .size = sizeof(r)},
				     .addr = addr,
				     .bytes = (int64_t)heap->total[pool],
				     .device = (uint16_t)heap->device,
				     .pool = pool,
				     .mode = HEAP_ADD};
		if (heap->total[pool])
			checkpoint_put(w, w->p->info.pid, &r, NULL, 0);
	}
}

static void put_block(struct checkpoint_writing *w, const struct block *b)
{
	char labels[LABELS_MAX_BYTES];
	struct rec_block r = {
		.head = {.type = REC_BLOCK,
			 .size = sizeof(r),
			 .stack = b->stack,
			 .time_ns = b->time_ns},
		.addr = b->addr,
		.size_bytes = b->size_bytes,
		.id = b->id,
		.step = b->step,
		.device = b->device,
		.pool = b->pool,
		.kind = b->kind,
		.page = b->page,
		.module = b->module,
		.cut_by = b->cut_by,
		.context = (uint8_t)b->context,
		.len = (uint16_t)labels_pack(b->labels, labels),
	};

	r.flags = (uint16_t)((b->written ? BLOCK_WRITTEN : 0) | (b->shadow ? BLOCK_SHADOW : 0) |
			     (b->arena ? BLOCK_ARENA : 0) | (b->alone ? BLOCK_ALONE : 0) |
			     (b->labelled_late ? BLOCK_LABELLED_LATE : 0));
	if (b->layer)
		put_state(w,
			  &(struct rec_state){.kind = STATE_LAYER,
					      .device = DEV_NONE,
					      .value = {b->layer, b->is_shared ? 0 : b->tensor_addr,
							b->tensor_bytes, b->forward}});
	checkpoint_put(w, b->tid, &r, labels, r.len);
	layers_write_block(b, w);
}

static void put_usage(struct checkpoint_writing *w, struct usage *u)
{
	if (u->memory.head.size)
		checkpoint_put(w, w->p->info.pid, &u->memory, NULL, 0);
	struct rec_state refused = {
		.kind = STATE_REFUSED,
		.device = (uint16_t)u->device,
		.value = {u->oom_shown_ns, u->oom_waits, w->p->oom_detail_ns, w->p->oom_listed},
	};
	if (u->oom_shown_ns || u->oom_waits || w->p->oom_detail_ns)
		put_state(w, &refused);
	for (uint8_t map = 0; map < NMAPS; map++) {
		struct rec_state s = {
			.kind = STATE_USAGE,
			.device = (uint16_t)u->device,
			.pool = map,
			.value = {u->total[map], u->peak_used[map], u->peak_total[map],
				  u->peak_ns[map]},
		};
		if (s.value[0] || s.value[1] || s.value[2])
			put_state(w, &s);
	}
}

struct owed_writing {
	struct checkpoint_writing *w;
	unsigned map;
};

static void put_owed(uint64_t addr, void *value, void *arg)
{
	const struct owed_writing *o = arg;
	const struct early *e = value;

	put_state(o->w, &(struct rec_state){
				.kind = STATE_OWED,
				.device = DEV_NONE,
				.pool = (uint8_t)o->map,
				.value = {addr, e->time_ns, (uint64_t)(int64_t)e->frees, e->tid}});
}

static void put_moving(uint64_t tid, void *value, void *arg)
{
	put_state(arg, &(struct rec_state){.kind = STATE_MOVING,
					   .device = DEV_NONE,
					   .value = {tid, (uintptr_t)value}});
}

static void write_process(struct checkpoint_writing *w)
{
	struct proc *p = w->p;
	struct block_list live = {0};

	put_begin(w);
	put_config(w);
	if (omap_get(&p->names, p->step_name)) /* rows of steps come with the blocks */
		put_name(p->step_name, omap_get(&p->names, p->step_name), w);
	if (p->who.head.size)
		checkpoint_put(w, p->info.pid, &p->who, NULL, 0);
	put_texts(w);
	put_stacks(w);
	omap_each(&p->heaps, put_heap, w);
	for (size_t i = 0; i < p->nusage; i++)
		put_usage(w, &p->usage[i]);
	window_list(p, &live);
	for (size_t i = 0; i < live.n; i++)
		put_block(w, live.list[i]);
	free(live.list);
	cuda_write(p, w);
	labels_write(p, w);
	layers_write(p, w);
	trace_write(p, w);
	omap_each(&p->names, put_name, w); /* a span that begins takes its own away */
	for (unsigned m = 0; m < NMAPS; m++) {
		struct owed_writing o = {w, m};
		omap_each(&p->early[m], put_owed, &o);
	}
	omap_each(&p->moving, put_moving, w);
	put_state(w, &(struct rec_state){.kind = STATE_END,
					 .device = DEV_NONE,
					 .value = {p->next_row, p->next_block}});
	flush_batch(w);
}

/* --- from outside --- */

static void *open_checkpoint(void)
{
	struct track *t = track_new(&(struct track_sink){0});

	t->for_checkpoint = true;
	return t;
}

static void close_checkpoint(void *state)
{
	track_free(state);
}

static uint64_t count_steps(const void *state)
{
	return ((const struct track *)state)->steps;
}

static void describe_checkpoint(const void *state, struct frame_cut *out)
{
	const struct track *t = state;

	out->last_step = t->last_step;
	for (size_t i = 0; i < t->nprocs; i++) {
		const struct proc *p = t->procs[i];
		if (p && p->first_step && (!out->first_step || p->first_step < out->first_step))
			out->first_step = p->first_step;
	}
}

static int write_checkpoint(void *state, int (*fn)(void *arg, const void *payload, size_t bytes),
			    void *arg)
{
	struct track *t = state;
	struct checkpoint_writing w = {.run = SIZE_MAX, .fn = fn, .arg = arg};

	for (size_t i = 0; w.result == 0 && i < t->nprocs; i++) {
		w.p = t->procs[i];
		if (w.p)
			write_process(&w);
	}
	buf_release(&w.batch);
	return w.result;
}

const struct checkpoint_ops track_checkpoint = {
	.open = open_checkpoint,
	.close = close_checkpoint,
	.stream = &track_stream,
	.steps = count_steps,
	.describe = describe_checkpoint,
	.write = write_checkpoint,
};
