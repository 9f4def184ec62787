/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Where a recording begins whose oldest part was dropped: each block that is alive there comes as a
 * REC_BLOCK, and gets a MALLOC row with carried:true and the time of its allocation. Rows of steps
 * come between them where they are of different steps, so that whoever reads rows knows the step of
 * each. The sums of pools are in the rows that follow.
 *
 *	STATE_BEGIN  settings, names, stacks, pools  REC_BLOCK*  labels, calls, what is owed  STATE_END
 */
#include "base/mem.h"
#include "memory/track/track_impl.h"

#include <stdlib.h>
#include <string.h>

#define PAST_RANGE 1 /* the id of a range that has ended long ago */

struct checkpoint_reading {
	uint64_t row_ns; /* of the newest row: they do not go back in time */
	uint64_t step; /* that rows have come to */
	struct labels *labels; /* the newest ones, and as they came */
	size_t len;
	char text[LABELS_MAX_BYTES];
	struct rec_state layer; /* STATE_LAYER of the block that comes; its size is 0: none */
};

void checkpoint_release(struct proc *p)
{
	if (p->checkpoint)
		labels_put(p->checkpoint->labels);
	free(p->checkpoint);
	p->checkpoint = NULL;
}

static uint64_t row_time(struct proc *p, uint64_t time_ns)
{
	if (time_ns > p->checkpoint->row_ns)
		p->checkpoint->row_ns = time_ns;
	return p->checkpoint->row_ns;
}

static void put_range(struct proc *p, enum rec_mark_kind kind, uint64_t step, uint64_t time_ns)
{
	static const char text[] = "step start";
	bool now = step == p->step && p->step_range;
	struct row row;

	rows_begin(p, &row, ROW_MSTX, kind == MARK_RANGE_START ? TYPE_RANGE_START : TYPE_RANGE_END,
		   p->info.pid, DEV_NONE, row_time(p, time_ns));
	row.range = now ? p->step_range : PAST_RANGE;
	row.step = (uint32_t)step;
	rows_put_name(&row, text, sizeof(text) - 1);
	rows_emit(p, &row);
}

/* From here on rows are of this step. */
static void begin_step(struct proc *p, uint64_t step, uint64_t time_ns)
{
	if (!p->window || step == p->checkpoint->step || !step)
		return;
	p->checkpoint->step = step;
	if (p->by_range) {
		put_range(p, MARK_RANGE_START, step, time_ns);
	} else if ((p->by_call || p->detected) && step > 1) {
		struct rec_system s = {.head = {.time_ns = row_time(p, time_ns)},
				       .value = step - 1,
				       .device = DEV_NONE,
				       .kind = SYSTEM_STEP,
				       .source = p->detected};
		(p->detected ? rows_detected_step : rows_system)(p, p->info.pid, &s);
	}
}

static unsigned map_of(const struct rec_block *r)
{
	bool mapping = r->kind >= ALLOC_MAPPED && r->pool != POOL_CUDA;

	return mapping ? MAP_MAPPINGS : block_map(r->pool, r->kind);
}

static bool is_sane(const struct rec_block *r)
{
	bool mapping = r->kind >= ALLOC_MAPPED && r->pool != POOL_CUDA;

	if (!r->pool || r->pool >= POOL_END ||
	    (mapping && r->kind > ALLOC_RESERVED && r->kind != BLOCK_OF_MALLOC) ||
	    (!mapping && r->kind >= ALLOC_KIND_END))
		return false;
	return !mapping || (r->size_bytes && r->addr + r->size_bytes > r->addr);
}

/* Many blocks in a row have the same ones. */
static struct labels *labels_for(struct checkpoint_reading *checkpoint, const struct rec_block *r)
{
	size_t len;
	const char *text = rec_text(&r->head, &len);

	if (!len || len > LABELS_MAX_BYTES)
		return NULL;
	if (len != checkpoint->len || memcmp(checkpoint->text, text, len) != 0) {
		labels_put(checkpoint->labels);
		checkpoint->labels = labels_unpack(text, len);
		checkpoint->len = len;
		memcpy(checkpoint->text, text, len);
	}
	return labels_share(checkpoint->labels);
}

static void drop_block(struct proc *p, struct block *b)
{
	if (!b)
		return;
	omap_remove(&p->reserved, b->addr);
	if (block_is_memory(b))
		count_used(p, b, false);
	block_free(p->track, b);
}

/*
 * Memory that a pool once cut blocks from is the pool's affair for good. An empty block that it
 * cuts says so, to analyses alone.
 */
static void put_cut(struct proc *p, const struct block *b)
{
	static const enum row_event events[] = {ROW_MALLOC, ROW_FREE};

	for (unsigned i = 0; i < 2; i++) {
		struct row row;
		rows_begin(p, &row, events[i], rows_pool_type(b->cut_by), b->tid, b->device,
			   row_time(p, b->time_ns));
		row.hidden = true;
		row.has_ptr = true;
		row.ptr = b->addr;
		row_attr_number(&row, ATTR_ALLOCATION_ID, 0);
		row_attr_number(&row, ATTR_SIZE, 0);
		rows_emit(p, &row);
	}
}

static void take_layer(struct checkpoint_reading *checkpoint, struct block *b)
{
	const uint64_t *value = checkpoint->layer.value;

	if (checkpoint->layer.head.size) {
		b->layer = value[0];
		b->tensor_addr = value[1];
		b->tensor_bytes = value[2];
		b->forward = (uint32_t)value[3];
	}
	checkpoint->layer.head.size = 0;
}

static void add_block(struct proc *p, uint32_t tid, const struct rec_block *r)
{
	if (!is_sane(r) || !budget_take(p, BLOCK_COST))
		return;
	struct block *b = block_new(p->track);
	b->addr = r->addr;
	b->size_bytes = r->size_bytes;
	b->id = r->id;
	b->time_ns = r->head.time_ns;
	b->tid = tid;
	b->stack = r->head.stack;
	b->step = r->step;
	b->device = r->device;
	b->pool = r->pool;
	b->kind = r->kind;
	b->page = r->page;
	b->module = r->module;
	b->context = r->context;
	b->cut_by = r->cut_by < POOL_END ? r->cut_by : 0;
	b->arena = r->flags & BLOCK_ARENA;
	b->alone = r->flags & BLOCK_ALONE;
	b->labels = labels_for(p->checkpoint, r);
	take_layer(p->checkpoint, b);
	if (b->pool == POOL_CUDA && b->kind == ALLOC_CREATE)
		cuda_created(p, b->addr);
	drop_block(p, omap_put(&p->maps[map_of(r)], b->addr, b));
	if (b->kind == ALLOC_RESERVED)
		omap_put(&p->reserved, b->addr, b);
	if (!block_is_memory(b))
		return;
	count_used(p, b, true);
	if (!(r->flags & BLOCK_WRITTEN))
		return;
	begin_step(p, b->step, b->time_ns);
	rows_malloc(p, b, row_time(p, b->time_ns), r->flags & BLOCK_SHADOW);
	b->labelled_late = r->flags & BLOCK_LABELLED_LATE;
	if (b->cut_by)
		put_cut(p, b);
}

static void begin_checkpoint(struct proc *p, const struct rec_state *s)
{
	p->checkpoint = xcalloc(1, sizeof(*p->checkpoint));
	p->tracing = s->flags & STATE_TRACING;
	p->window = s->flags & STATE_WINDOW;
	p->by_range = s->flags & STATE_BY_RANGE;
	p->by_call = s->flags & STATE_BY_CALL;
	p->detected = s->flags & STATE_BY_OPTIMIZER ? STEP_OPTIMIZER
		      : s->flags & STATE_BY_FORWARD ? STEP_FORWARD
						    : 0;
	p->step_name = s->value[3];
	p->step = s->value[0];
	p->step_range = s->value[1];
	p->first_step = s->value[2];
}

/* A peak that is no higher than what is alive now is not one of before. */
static void settle_peaks(struct proc *p)
{
	for (size_t i = 0; i < p->nusage; i++)
		for (unsigned map = 0; map < NMAPS; map++)
			if (p->usage[i].peak_used[map] <= p->usage[i].used[map])
				p->usage[i].peak_ns[map] = 0;
}

static void end_checkpoint(struct proc *p, const struct rec_state *s)
{
	settle_peaks(p);
	begin_step(p, p->step, s->head.time_ns);
	if (p->window && p->by_range && p->step && !p->step_range)
		put_range(p, MARK_RANGE_END, p->step, s->head.time_ns);
	/* Rows of blocks have taken fewer numbers than the part that they stand for. */
	if (s->value[0] > p->next_row)
		p->next_row = s->value[0];
	if (s->value[1] > p->next_block)
		p->next_block = s->value[1];
	p->lacks_checkpoint = false;
	checkpoint_release(p);
}

static void set_usage(struct proc *p, const struct rec_state *s)
{
	struct usage *u = usage_of(p, s->device);

	if (s->pool >= NMAPS)
		return;
	u->total[s->pool] = s->value[0];
	u->peak_used[s->pool] = s->value[1];
	u->peak_ns[s->pool] = s->value[3];
	u->peak_total[s->pool] = s->value[2];
}

static void set_refused(struct proc *p, const struct rec_state *s)
{
	struct usage *u = usage_of(p, s->device);

	u->oom_shown_ns = s->value[0];
	u->oom_waits = s->value[1];
	p->oom_detail_ns = s->value[2];
	p->oom_listed = s->value[3];
}

static void set_state(struct proc *p, const struct rec_state *s)
{
	const struct owed owed = {s->pool, (uint32_t)s->value[3], s->value[0]};

	switch (s->kind) {
	case STATE_USAGE:
		set_usage(p, s);
		break;
	case STATE_REFUSED:
		set_refused(p, s);
		break;
	case STATE_OWED:
		if (s->pool < NMAPS)
			owed_add(p, &owed, s->value[1], (int)(int64_t)s->value[2]);
		break;
	case STATE_MOVING:
		mappings_set_moving(p, (uint32_t)s->value[0], (uint8_t)s->value[1]);
		break;
	case STATE_THREAD:
		labels_set_operators(p, (uint32_t)s->value[0], (unsigned)s->value[1]);
		break;
	case STATE_LAYER:
		p->checkpoint->layer = *s;
		break;
	case STATE_FORWARDS:
		layers_set_forwards(p, (uint32_t)s->value[0], (uint32_t)s->value[1]);
		break;
	case STATE_END:
		end_checkpoint(p, s);
		break;
	default:
		break;
	}
}

void checkpoint_record(struct proc *p, uint32_t tid, const struct rec *r)
{
	const struct rec_state *s = (const struct rec_state *)r;

	if (r->type == REC_BLOCK) {
		if (p->checkpoint)
			add_block(p, tid, (const struct rec_block *)r);
	} else if (s->kind == STATE_BEGIN) {
		if (!p->checkpoint && p->track->was_cut && !p->next_block)
			begin_checkpoint(p, s);
	} else if (p->checkpoint) {
		set_state(p, s);
	}
}

void checkpoint_end(struct proc *p)
{
	const struct track_sink *sink = &p->track->sink;

	for (size_t i = 0; p->track->was_cut && sink->earlier_peak && i < p->nusage; i++) {
		const struct usage *u = &p->usage[i];
		for (uint8_t map = 1; map < POOL_END; map++) {
			if (!u->peak_ns[map] || u->peak_ns[map] > p->track->cut.until_ns)
				continue;
			struct track_peak peak = {u->device, rows_pool_type(map), u->peak_used[map],
						  u->peak_ns[map] +
							  (uint64_t)p->track->wall_minus_mono_ns};
			sink->earlier_peak(sink->arg, p->info.proc, &peak);
		}
	}
}
