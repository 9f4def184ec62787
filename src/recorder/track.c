/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Rows are written while a window is open: the process is tracing (start/stop) and, with --steps,
 * inside a listed step. Blocks are followed all the time. When a window opens, blocks that were
 * allocated before it get their MALLOC row then (shadow:true, time of the opening), so that every
 * FREE row has its MALLOC row; a FREE row is written whenever its MALLOC row was.
 */
#include "recorder/track.h"

#include "base/mem.h"
#include "recorder/track_proc.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define STEP_MESSAGE "step start"
#define SANITIZER_PREFIX "sanitizer-op:" /* for torch's sanitizer, not for people */

/* --- blocks and pools --- */

struct usage *usage_of(struct proc *p, uint32_t device)
{
	for (size_t i = 0; i < p->nusage; i++)
		if (p->usage[i].device == device)
			return &p->usage[i];
	p->usage = xgrow(p->usage, &p->cap_usage, p->nusage + 1, sizeof(*p->usage));
	p->usage[p->nusage] = (struct usage){.device = device};
	p->track->signs.users++;
	return &p->usage[p->nusage++];
}

uint32_t physical_device(const struct proc *p, uint32_t device)
{
	if (device >= DEV_NONE || !p->nvisible)
		return device;
	return device < (uint32_t)p->nvisible ? (uint32_t)p->visible[device] : device;
}

static struct block *block_new(struct track *t)
{
	struct block *b = t->free_blocks;

	if (!b)
		return xcalloc(1, sizeof(*b));
	t->free_blocks = b->next_free;
	memset(b, 0, sizeof(*b));
	return b;
}

static void block_free(struct track *t, struct block *b)
{
	labels_put(b->labels);
	b->next_free = t->free_blocks;
	t->free_blocks = b;
}

struct block *block_around(struct proc *p, unsigned map, uint64_t addr)
{
	uint64_t start;
	struct block *b = omap_floor(&p->maps[map], addr, &start);

	return b && (addr == start || addr - start < b->size_bytes) ? b : NULL;
}

static unsigned map_of(uint8_t pool, uint8_t kind)
{
	return kind == ALLOC_PINNED ? MAP_PINNED : pool;
}

static void count_used(struct proc *p, const struct block *b, bool more)
{
	unsigned map = map_of(b->pool, b->kind);
	struct usage *u = usage_of(p, b->device);
	uint64_t *used = &u->used[map];

	if (more)
		*used = *used > UINT64_MAX - b->size_bytes ? UINT64_MAX : *used + b->size_bytes;
	else
		*used = *used > b->size_bytes ? *used - b->size_bytes : 0;
	if (*used > u->peak_used[map])
		u->peak_used[map] = *used;
	if (map == POOL_HAL || map == POOL_CUDA)
		u->own_bytes += more ? whole_pages(b) : -whole_pages(b);
}

static void drop_block(struct proc *p, struct block *b)
{
	count_used(p, b, false);
	block_free(p->track, b);
}

/* The time for a row: that of a shadow record is no earlier than what has been written already. */
static uint64_t row_time(const struct proc *p, const struct rec *r)
{
	return r->flags & REC_F_SHADOW ? p->last_ns : r->time_ns;
}

static void on_alloc(struct proc *p, uint32_t tid, const struct rec_alloc *r)
{
	unsigned map = map_of(r->pool, r->kind);
	struct owed owed = {map, tid, r->addr};
	uint64_t now_ns = row_time(p, &r->head);
	bool shadow = r->head.flags & REC_F_SHADOW;

	if (r->pool >= POOL_END || !r->pool)
		return;
	struct block *b = block_new(p->track);
	b->addr = r->addr;
	b->size_bytes = r->size_bytes;
	b->id = ++p->next_block;
	b->time_ns = r->head.time_ns;
	b->tid = tid;
	b->stack = r->head.stack;
	b->pool = r->pool;
	b->kind = r->kind;
	b->page = r->page;
	b->module = r->module;
	b->device = (uint16_t)(r->kind == ALLOC_REGION ? physical_device(p, r->device) : r->device);
	if (p->threads.count) /* the time of a shadow record is a rough one, its place is not */
		b->labels = labels_of(p, tid, r->pool, shadow ? UINT64_MAX : b->time_ns);
	struct block *old = omap_put(&p->maps[map], r->addr, b);
	if (old) {
		/* Its free was never seen (lost, or before we looked): it ended no later than now.
		 */
		if (shadow)
			owed_add(p, &owed, r->head.time_ns, 1);
		if (old->written)
			rows_free(p, old, NULL, tid, now_ns, true);
		drop_block(p, old);
	}
	count_used(p, b, true);
	if (p->window && rows_wanted(p, b->device))
		rows_malloc(p, b, now_ns, shadow);
	if (owed_settle(p, &owed, &r->head, -1)) {
		omap_remove(&p->maps[map], r->addr);
		if (b->written)
			rows_free(p, b, NULL, tid, now_ns, true);
		drop_block(p, b);
	}
}

static void on_free(struct proc *p, uint32_t tid, const struct rec_free *r)
{
	if (r->pool >= POOL_END || !r->pool)
		return;
	unsigned map = map_of(r->pool, r->kind);
	struct owed owed = {map, tid, r->addr};
	bool shadow = r->head.flags & REC_F_SHADOW;
	if (shadow && owed_settle(p, &owed, &r->head, 1))
		return;
	struct block *b = omap_remove(&p->maps[map], r->addr);
	/* The driver's free does not say whether it was host memory. */
	if (!b && r->pool == POOL_HAL)
		b = omap_remove(&p->maps[POOL_HOST], r->addr);
	if (!b) {
		/* Allocated before the library was there, or in a moment. */
		if (shadow)
			owed_add(p, &owed, r->head.time_ns, -1);
		return;
	}
	count_used(p, b, false);
	if (b->written)
		rows_free(p, b, &r->head, tid, row_time(p, &r->head), false);
	block_free(p->track, b);
}

static void set_total(struct usage *u, uint8_t pool, uint64_t bytes)
{
	u->total[pool] = bytes;
	if (bytes > u->peak_total[pool])
		u->peak_total[pool] = bytes;
}

static void on_heap(struct proc *p, const struct rec_heap *r)
{
	uint32_t device = physical_device(p, r->device);

	if (r->pool >= POOL_END || r->mode > HEAP_DROP)
		return;
	if (r->mode == HEAP_SET) {
		set_total(usage_of(p, device), r->pool, r->bytes > 0 ? (uint64_t)r->bytes : 0);
		return;
	}
	struct usage *heap = omap_remove(&p->heaps, r->addr);
	if (heap) { /* dropped now, or added once more: then its end was not seen */
		uint64_t *total = &usage_of(p, heap->device)->total[r->pool];
		if (*total >= heap->total[r->pool])
			*total -= heap->total[r->pool];
		free(heap);
	}
	if (r->mode == HEAP_ADD && r->bytes > 0) {
		struct usage *u = usage_of(p, device);
		set_total(u, r->pool, u->total[r->pool] + (uint64_t)r->bytes);
		heap = xcalloc(1, sizeof(*heap));
		heap->device = device;
		heap->total[r->pool] = (uint64_t)r->bytes;
		omap_put(&p->heaps, r->addr, heap);
	}
}

/* --- windows and steps --- */

struct promote {
	struct proc *p;
	uint64_t time_ns;
	struct block **list;
	size_t n, cap;
};

static void collect_block(uint64_t key, void *value, void *arg)
{
	struct promote *pr = arg;

	(void)key;
	pr->list = xgrow(pr->list, &pr->cap, pr->n + 1, sizeof(*pr->list));
	pr->list[pr->n++] = value;
}

static int by_id(const void *a, const void *b)
{
	const struct block *x = *(struct block *const *)a, *y = *(struct block *const *)b;

	return (x->id > y->id) - (x->id < y->id);
}

/* All blocks of a process in the order of their allocation. */
static void list_blocks(struct proc *p, struct promote *out)
{
	for (unsigned m = 0; m < NMAPS; m++)
		omap_each(&p->maps[m], collect_block, out);
	if (out->n)
		qsort(out->list, out->n, sizeof(*out->list), by_id);
}

static void promote_blocks(struct proc *p, uint64_t time_ns)
{
	struct promote pr = {.p = p};

	list_blocks(p, &pr);
	for (size_t i = 0; i < pr.n; i++) {
		if (!pr.list[i]->written && rows_wanted(p, pr.list[i]->device))
			rows_malloc(p, pr.list[i], time_ns, true);
	}
	free(pr.list);
}

static bool step_is_listed(const struct proc *p)
{
	const struct mem_config *c = p->cfg;

	if (!c->nsteps)
		return true;
	for (uint32_t i = 0; i < c->nsteps; i++)
		if (c->steps[i] == p->step && (p->step_range || p->by_call))
			return true;
	return false;
}

static void update_window(struct proc *p, uint64_t time_ns)
{
	bool open = p->tracing && step_is_listed(p);

	if (open && !p->window) {
		p->window = true;
		promote_blocks(p, time_ns);
	}
	p->window = open;
}

/* The program has other wishes from now on. What is alive and is now to be told, is told. */
static void on_config(struct proc *p, const struct rec_config *r)
{
	const struct track_sink *sink = &p->track->sink;
	size_t len;
	const char *output = rec_text(&r->head, &len);
	struct mem_config *c = xmalloc(sizeof(*c));

	*c = *p->cfg;
	mem_config_set_settings(c, &r->settings);
	if (len && len < sizeof(c->output_dir) && output[0] == '/' && !memchr(output, 0, len)) {
		memcpy(c->output_dir, output, len);
		c->output_dir[len] = '\0';
	}
	free(p->own_cfg);
	p->cfg = p->own_cfg = c;
	if (sink->config)
		sink->config(sink->arg, p->info.proc, c);
	if (p->window)
		promote_blocks(p, r->head.time_ns);
}

static void on_mark(struct proc *p, uint32_t tid, const struct rec_mark *m)
{
	size_t len;
	const char *text = rec_text(&m->head, &len);

	if (rows_aten(p, tid, m))
		return;
	if (len >= strlen(SANITIZER_PREFIX) &&
	    !memcmp(text, SANITIZER_PREFIX, strlen(SANITIZER_PREFIX)))
		return;
	bool begins = m->kind == MARK_RANGE_START && len == strlen(STEP_MESSAGE) &&
		      !memcmp(text, STEP_MESSAGE, len);
	if (begins && !p->by_call) {
		p->by_range = true;
		p->step++;
		p->step_range = m->range;
		update_window(p, m->head.time_ns);
	}
	if (p->window)
		rows_mark(p, tid, m);
	if (m->kind == MARK_RANGE_END && m->range && m->range == p->step_range) {
		p->step_range = 0;
		update_window(p, m->head.time_ns);
	}
}

static void on_system(struct proc *p, uint32_t tid, const struct rec_system *s)
{
	if (s->kind == SYSTEM_START_TRACE) {
		p->tracing = true;
		update_window(p, s->head.time_ns);
	}
	if (s->kind == SYSTEM_STEP && p->by_range)
		return;
	if (p->window || s->kind == SYSTEM_STOP_TRACE)
		rows_system(p, tid, s);
	if (s->kind == SYSTEM_STOP_TRACE) {
		trace_leave(p, s->head.time_ns);
		p->tracing = false;
		update_window(p, s->head.time_ns);
	}
	if (s->kind == SYSTEM_STEP) {
		/* The call ends step n; what follows is step n + 1. */
		p->by_call = true;
		p->step = s->value + 1;
		update_window(p, s->head.time_ns);
	}
}

/* --- the stream --- */

static void on_name(struct proc *p, const struct rec_name *r)
{
	size_t len;
	const char *text = rec_text(&r->head, &len);

	if (!omap_get(&p->names, r->hash))
		omap_put(&p->names, r->hash, xstrndup(text, len));
}

static struct proc *proc_of(struct track *t, uint32_t number)
{
	return number < t->nprocs ? t->procs[number] : NULL;
}

static void track_record(void *arg, uint32_t number, uint32_t tid, const struct rec *r)
{
	struct proc *p = proc_of(arg, number);

	if (!p)
		return;
	if (r->time_ns > p->last_ns && r->type != REC_DEVICE)
		p->last_ns = r->time_ns;
	switch (r->type) {
	case REC_ALLOC:
		on_alloc(p, tid, (const struct rec_alloc *)r);
		break;
	case REC_FREE:
		on_free(p, tid, (const struct rec_free *)r);
		break;
	case REC_HEAP:
		on_heap(p, (const struct rec_heap *)r);
		break;
	case REC_ACCESS:
		if (p->window)
			rows_access(p, tid, (const struct rec_access *)r);
		break;
	case REC_OP:
		rows_op(p, tid, (const struct rec_op *)r);
		break;
	case REC_KERNEL:
		if (p->window)
			rows_kernel(p, tid, (const struct rec_kernel *)r);
		break;
	case REC_NAME:
		on_name(p, (const struct rec_name *)r);
		break;
	case REC_MARK:
		on_mark(p, tid, (const struct rec_mark *)r);
		break;
	case REC_SYSTEM:
		on_system(p, tid, (const struct rec_system *)r);
		break;
	case REC_THREAD:
		if (!((const struct rec_thread *)r)->level) {
			labels_thread_begins(p, tid);
			trace_thread_begins(p, tid);
		}
		break;
	case REC_LABEL:
		labels_record(p, tid, (const struct rec_label *)r);
		break;
	case REC_SNAPSHOT:
		snapshot_record(p, tid, (const struct rec_snapshot *)r);
		break;
	case REC_OOM:
		oom_record(p, tid, (const struct rec_oom *)r);
		break;
	case REC_WATCH:
		watch_record(p, tid, (const struct rec_watch *)r);
		break;
	case REC_DEVICE:
		device_record(p, (const struct rec_device *)r);
		break;
	case REC_CONFIG:
		on_config(p, (const struct rec_config *)r);
		break;
	case REC_MODULE:
		callstacks_module(p, (const struct rec_module *)r);
		break;
	case REC_PYTHON:
		callstacks_python(p, (const struct rec_python *)r);
		break;
	case REC_CALL:
		trace_record(p, tid, (const struct rec_call *)r);
		break;
	default:
		break;
	}
}

static void track_stack(void *arg, uint32_t number, uint32_t id, const uint64_t *pc, uint32_t depth)
{
	struct proc *p = proc_of(arg, number);

	if (p)
		callstacks_add(p, id, pc, depth);
}

/* "0,2,3": entry i is the physical number of device i. Anything else: no mapping at all. */
static void parse_visible(struct proc *p)
{
	const char *s = p->info.visible_devices;

	for (int n = 0; *s && n < MAX_VISIBLE;) {
		char *end;
		if (*s == ',' || *s == ' ') {
			s++;
			continue;
		}
		long v = strtol(s, &end, 10);
		if (end == s || v < 0 || v >= (long)DEV_NONE ||
		    (*end && *end != ',' && *end != ' ')) {
			p->nvisible = 0;
			return;
		}
		p->visible[n++] = (int)v;
		p->nvisible = n;
		s = end;
	}
}

static void track_proc(void *arg, const struct frame_proc *info)
{
	struct track *t = arg;

	if (info->proc >= TRACK_MAX_PROCS || proc_of(t, info->proc))
		return;
	size_t had = t->cap_procs;
	t->procs = xgrow(t->procs, &t->cap_procs, info->proc + 1, sizeof(struct proc *));
	memset(t->procs + had, 0, (t->cap_procs - had) * sizeof(struct proc *));
	if (info->proc >= t->nprocs)
		t->nprocs = info->proc + 1;
	struct proc *p = xcalloc(1, sizeof(*p));
	p->track = t;
	p->info = *info;
	parse_visible(p);
	p->cfg = &t->cfg;
	p->tracing = t->cfg.mode == MEM_IMMEDIATE;
	p->window = p->tracing && !t->cfg.nsteps;
	t->procs[info->proc] = p;
	if (t->sink.proc)
		t->sink.proc(t->sink.arg, info);
}

static void free_text(uint64_t key, void *value, void *arg)
{
	(void)key;
	(void)arg;
	free(value);
}

static void free_live(uint64_t key, void *value, void *arg)
{
	(void)key;
	block_free(arg, value);
}

static void proc_free(struct proc *p)
{
	for (unsigned m = 0; m < NMAPS; m++) {
		omap_each(&p->maps[m], free_live, p->track);
		omap_release(&p->maps[m]);
		owed_release(p, m);
	}
	omap_each(&p->heaps, free_text, NULL);
	omap_release(&p->heaps);
	omap_each(&p->names, free_text, NULL);
	omap_release(&p->names);
	callstacks_release(p);
	labels_release(p);
	trace_release(p);
	free(p->own_cfg);
	free(p->usage);
	free(p);
}

/* Whatever is alive ends with its process: a FREE row with shadow:true for each. */
static void track_proc_end(void *arg, const struct frame_proc_end *e)
{
	struct track *t = arg;
	struct proc *p = proc_of(t, e->proc);
	struct promote live = {.p = p};

	if (!p)
		return;
	uint64_t end_ns = p->tracing && e->time_ns > p->last_ns ? e->time_ns : p->last_ns + 1;
	list_blocks(p, &live);
	for (size_t i = 0; i < live.n; i++)
		if (live.list[i]->written)
			rows_free(p, live.list[i], NULL, live.list[i]->tid, end_ns, true);
	free(live.list);
	trace_leave(p, 0);
	if (t->sink.proc_end)
		t->sink.proc_end(t->sink.arg, e);
	proc_free(p);
	t->procs[e->proc] = NULL;
}

static void track_session(void *arg, const char *json, size_t len)
{
	struct track *t = arg;
	json_error_t why;
	json_t *root = json_loadb(json, len, JSON_REJECT_DUPLICATES, &why);
	struct mem_config cfg;

	if (root && mem_config_parse(json, len, &cfg, NULL) == 0) {
		t->cfg = cfg;
		t->wall_minus_mono_ns = json_integer_value(json_object_get(root, "wallMinusMono"));
	}
	json_decref(root);
	if (t->sink.session)
		t->sink.session(t->sink.arg, &t->cfg);
}

const struct stream_ops track_stream = {
	.session = track_session,
	.proc = track_proc,
	.stack = track_stack,
	.record = track_record,
	.proc_end = track_proc_end,
};

struct track *track_new(const struct track_sink *sink)
{
	struct track *t = xcalloc(1, sizeof(*t));

	t->sink = *sink;
	mem_config_init(&t->cfg, NULL);
	return t;
}

void track_free(struct track *t)
{
	if (!t)
		return;
	for (size_t i = 0; i < t->nprocs; i++)
		if (t->procs[i])
			proc_free(t->procs[i]);
	while (t->free_blocks) {
		struct block *b = t->free_blocks;
		t->free_blocks = b->next_free;
		free(b);
	}
	free(t->procs);
	free(t);
}

const struct mem_config *track_config(const struct track *t)
{
	return &t->cfg;
}

int64_t track_wall_minus_mono(const struct track *t)
{
	return t->wall_minus_mono_ns;
}
