/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Taking in rows; summary_impl.h says how it is kept. */
#include "memory/analysis/summary/summary.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "memory/analysis/summary/summary_impl.h"
#include "wire/record.h"

#define NO_PID UINT32_MAX

struct summary *summary_new(void)
{
	struct summary *s = xcalloc(1, sizeof(*s));

	s->first_ns = UINT64_MAX;
	s->unused_blocks = SUMMARY_NIL;
	return s;
}

static void free_process(struct summary_process *p)
{
	uint64_t key, value;
	size_t at = 0;

	while (hmap_next(&p->devices, &at, &key, &value))
		free((void *)(uintptr_t)value);
	for (size_t i = 0; i < p->npools; i++)
		free(p->pool_list[i]);
	free(p->pool_list);
	hmap_release(&p->blocks);
	hmap_release(&p->pools);
	hmap_release(&p->devices);
	free(p->cmdline);
	free(p);
}

void summary_free(struct summary *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < s->nprocesses; i++)
		free_process(s->processes[i]);
	for (size_t i = 0; i < s->ndevices; i++) {
		total_release(&s->devices[i]->driver_total);
		total_release(&s->devices[i]->pools_total);
		free(s->devices[i]);
	}
	stacks_release(&s->stacks);
	for (size_t i = 0; i < s->nnotes; i++)
		free(s->notes[i]);
	hmap_release(&s->by_pid);
	hmap_release(&s->by_device);
	hmap_release(&s->by_group);
	free(s->processes);
	free(s->devices);
	free(s->groups);
	free(s->blocks);
	free(s->notes);
	gpu_use_release(&s->gpu);
	free(s);
}

/* The group of blocks that came from one call stack. */
static uint32_t group_of(struct summary *s, struct summary_pool *pool, uint32_t stack)
{
	if (pool->last_group != SUMMARY_NIL && pool->last_stack == stack)
		return pool->last_group;
	uint64_t key = (uint64_t)pool->number << 32 | stack;
	uint64_t found = hmap_get(&s->by_group, key);
	if (found == HMAP_NONE) {
		s->groups = xgrow(s->groups, &s->groups_cap, s->ngroups + 1, sizeof(*s->groups));
		found = s->ngroups++;
		s->groups[found] =
			(struct summary_group){.pool = pool, .stack = stack, .next = pool->groups};
		pool->groups = (uint32_t)found;
		hmap_put(&s->by_group, key, found);
	}
	pool->last_stack = stack;
	pool->last_group = (uint32_t)found;
	return pool->last_group;
}

/* --- blocks --- */

/*
 * A block's entry in the map of its process: group and size themselves, so that a row costs one
 * cache miss and not two; or, for one that ended or is too large for that, where it is in
 * s->blocks.
 */
#define SIZE_BITS 40
#define MAX_PACKED_GROUP (1u << 22)
#define IN_TABLE (1ull << 63)

static uint64_t put_in_table(struct summary *s, struct summary_block b)
{
	uint32_t i = s->unused_blocks;

	if (i != SUMMARY_NIL) {
		s->unused_blocks = s->blocks[i].next;
	} else {
		BUG_ON(s->nblocks >= SUMMARY_NIL);
		s->blocks = xgrow(s->blocks, &s->blocks_cap, s->nblocks + 1, sizeof(*s->blocks));
		i = (uint32_t)s->nblocks++;
	}
	s->blocks[i] = b;
	return IN_TABLE | i;
}

static uint64_t pack_block(struct summary *s, struct summary_block b)
{
	if (b.bytes >> SIZE_BITS || b.group >= MAX_PACKED_GROUP)
		return put_in_table(s, b);
	return (uint64_t)b.group << SIZE_BITS | b.bytes;
}

static struct summary_block unpack_block(const struct summary *s, uint64_t entry)
{
	if (entry & IN_TABLE)
		return s->blocks[(uint32_t)entry];
	return (struct summary_block){.bytes = entry & ((1ull << SIZE_BITS) - 1),
				      .group = (uint32_t)(entry >> SIZE_BITS)};
}

static void put_back(struct summary *s, uint64_t entry)
{
	if (!(entry & IN_TABLE))
		return;
	s->blocks[(uint32_t)entry].next = s->unused_blocks;
	s->unused_blocks = (uint32_t)entry;
}

static bool tally_add(struct summary_tally *t, uint64_t bytes, uint64_t time_ns)
{
	t->live_bytes += bytes;
	if (t->live_bytes <= t->peak_bytes)
		return false;
	t->peak_bytes = t->live_bytes;
	t->peak_time_ns = time_ns;
	return true;
}

static void held_add(struct summary_held *h, uint64_t bytes)
{
	h->blocks++;
	h->bytes += bytes;
}

static void held_take(struct summary_held *h, uint64_t bytes)
{
	h->blocks--;
	h->bytes -= bytes;
}

/* Before a group's `live` changes. */
static void keep_peak(struct summary_group *g)
{
	if (g->at_peak_no == g->pool->peak_no)
		return;
	g->at_peak = g->live;
	g->at_peak_no = g->pool->peak_no;
}

static void hold_block(struct summary_group *g, uint64_t bytes, uint64_t time_ns)
{
	struct summary_pool *pool = g->pool;
	bool driver = blocks_is_driver(pool->type);

	keep_peak(g);
	held_add(&g->live, bytes);
	held_add(&pool->live, bytes);
	if (tally_add(&pool->bytes, bytes, time_ns)) {
		pool->peak_no++;
		pool->peak_blocks = pool->live.blocks;
	}
	tally_add(driver ? &pool->own->driver : &pool->own->pools, bytes, time_ns);
	total_add(driver ? &pool->all->driver_total : &pool->all->pools_total, time_ns, bytes);
}

static void release_block(struct summary_group *g, uint64_t bytes, uint64_t time_ns)
{
	struct summary_pool *pool = g->pool;
	bool driver = blocks_is_driver(pool->type);

	keep_peak(g);
	held_take(&g->live, bytes);
	held_take(&pool->live, bytes);
	pool->bytes.live_bytes -= bytes;
	(driver ? &pool->own->driver : &pool->own->pools)->live_bytes -= bytes;
	total_take(driver ? &pool->all->driver_total : &pool->all->pools_total, time_ns, bytes);
}

static void end_block(struct summary *s, uint64_t key, uint64_t entry, uint64_t time_ns)
{
	struct summary_block b = unpack_block(s, entry);
	struct summary_group *g = &s->groups[b.group];
	struct summary_pool *pool = g->pool;

	release_block(g, b.bytes, time_ns);
	held_add(&g->ended, b.bytes);
	held_add(&pool->ended, b.bytes);
	pool->process->nended++;
	b.key = key;
	b.ended = true;
	b.next = pool->ended_list;
	put_back(s, entry);
	entry = put_in_table(s, b);
	hmap_put(&pool->process->blocks, key, entry);
	pool->ended_list = (uint32_t)entry;
	if (time_ns > pool->ended_time_ns)
		pool->ended_time_ns = time_ns;
}

static void end_was_free(struct summary *s, struct summary_block *b)
{
	struct summary_group *g = &s->groups[b->group];

	held_take(&g->ended, b->bytes);
	held_take(&g->pool->ended, b->bytes);
	g->pool->process->nended--;
	b->group = SUMMARY_NIL;
}

/* The pool goes on after made-up frees: those blocks were not alive at the end of anything. */
static void pool_resume(struct summary *s, struct summary_pool *pool)
{
	for (uint32_t i = pool->ended_list, next; i != SUMMARY_NIL; i = next) {
		struct summary_block *b = &s->blocks[i];

		next = b->next;
		if (b->group != SUMMARY_NIL) {
			hmap_remove(&pool->process->blocks, b->key);
			end_was_free(s, b);
			pool->unseen_frees++;
		}
		put_back(s, IN_TABLE | i);
	}
	pool->ended_list = SUMMARY_NIL;
	pool->ended_time_ns = 0;
}

static void pool_is_used(struct summary *s, struct summary_pool *pool, uint64_t time_ns)
{
	if (pool->ended_list != SUMMARY_NIL && time_ns > pool->ended_time_ns)
		pool_resume(s, pool);
}

/* --- rows --- */

/* What a MALLOC or FREE row says of its block. */
struct facts {
	uint64_t key;
	uint64_t bytes;
	bool has_key, by_address;
	bool shadow;
	bool carried; /* allocated before the part that was recorded */
};

static struct facts facts_of(const struct row *row)
{
	struct facts f = {0};

	for (unsigned i = 0; i < row->nattrs; i++) {
		const struct attr *a = &row->attrs[i];

		if (a->key == ATTR_ALLOCATION_ID) {
			f.key = a->number;
			f.has_key = true;
		} else if (a->key == ATTR_SIZE) {
			f.bytes = a->number;
		} else if (a->key == ATTR_SHADOW) {
			f.shadow = a->text && a->text_len == 4 && !memcmp(a->text, "true", 4);
		} else if (a->key == ATTR_CARRIED) {
			f.carried = true;
		}
	}
	if (!f.has_key && row->has_ptr) {
		f.key = blocks_address_key(row);
		f.has_key = f.by_address = true;
	}
	return f;
}

/*
 * The process of a row. An id that ended with a made-up FREE and is handed out again means that the
 * counter of ids began anew: another process has got that pid.
 */
static struct summary_process *process_of_block(struct summary *s, const struct row *row,
						const struct facts *f)
{
	struct summary_process *p = summary_process_of(s, row->pid);

	if (!p->nended || row->event != ROW_MALLOC || !f->has_key || f->by_address)
		return p;
	uint64_t old = hmap_get(&p->blocks, f->key);
	return old != HMAP_NONE && unpack_block(s, old).ended ? summary_new_process(s, row->pid)
							      : p;
}

static void add_malloc(struct summary *s, struct summary_process *p, const struct row *row,
		       const struct facts *f)
{
	struct summary_pool *pool = summary_pool_of(s, p, row);

	pool_is_used(s, pool, row->time_ns);
	pool->mallocs += !f->carried;
	pool->carried += f->carried;
	if (!f->has_key) {
		s->nameless++;
		return;
	}
	uint32_t stack = stacks_of(&s->stacks, row);
	uint32_t group = group_of(s, pool, !stack && f->shadow ? SUMMARY_BEFORE : stack);
	struct summary_block b = {.bytes = f->bytes, .group = group};
	uint64_t old = hmap_put(&p->blocks, f->key, pack_block(s, b));
	if (old != HMAP_NONE) { /* its FREE is missing */
		b = unpack_block(s, old);
		release_block(&s->groups[b.group], b.bytes, row->time_ns);
		put_back(s, old);
	}
	hold_block(&s->groups[group], f->bytes, row->time_ns);
}

static void add_free_of_nothing(struct summary *s, struct summary_process *p, const struct row *row,
				bool shadow)
{
	if (shadow) {
		p->seen.synthetic_frees++;
		return;
	}
	struct summary_pool *pool = summary_pool_of(s, p, row);
	pool_is_used(s, pool, row->time_ns);
	pool->frees++;
	pool->unmatched_frees++;
}

static void add_free(struct summary *s, struct summary_process *p, const struct row *row,
		     const struct facts *f)
{
	uint64_t entry = HMAP_NONE;

	if (f->has_key)
		entry = f->shadow ? hmap_get(&p->blocks, f->key) : hmap_remove(&p->blocks, f->key);
	if (entry == HMAP_NONE) {
		add_free_of_nothing(s, p, row, f->shadow);
		return;
	}
	struct summary_block b = unpack_block(s, entry);
	struct summary_pool *pool = s->groups[b.group].pool;
	if (f->shadow) {
		if (!b.ended)
			end_block(s, f->key, entry, row->time_ns);
		return;
	}
	pool->frees++;
	if (b.ended) {
		end_was_free(s, &s->blocks[(uint32_t)entry]);
	} else {
		release_block(&s->groups[b.group], b.bytes, row->time_ns);
		put_back(s, entry);
	}
	pool_is_used(s, pool, row->time_ns);
}

static void add_oom(struct summary *s, const struct row *row)
{
	if (s->nooms == SUMMARY_MAX_OOMS)
		return;
	struct summary_oom *o = &s->ooms[s->nooms++];
	*o = (struct summary_oom){.pid = row->pid, .device = row->device, .time_ns = row->time_ns};
	row_number(row, ATTR_REQ_SIZE, &o->requested_bytes);
	const struct attr *function = row_attr(row, ATTR_FUNC);
	if (function && function->text && function->text_len < sizeof(o->function))
		memcpy(o->function, function->text, function->text_len);
}

/* Recording begins again: made-up frees up to here were of the time in between. */
static void trace_started(struct summary *s, const struct row *row)
{
	struct summary_process *p = summary_process_of(s, row->pid);

	for (size_t i = 0; i < p->npools; i++)
		if (p->pool_list[i]->ended_list != SUMMARY_NIL &&
		    p->pool_list[i]->ended_time_ns <= row->time_ns)
			pool_resume(s, p->pool_list[i]);
}

static void add_other(struct summary *s, struct summary_counts *seen, const struct row *row)
{
	switch (row->event) {
	case ROW_ACCESS:
		seen->accesses++;
		break;
	case ROW_OP_LAUNCH:
		seen->operator_launches +=
			row->type == TYPE_ATEN_START || row->type == TYPE_ATB_START;
		break;
	case ROW_KERNEL_LAUNCH:
		seen->kernel_launches +=
			row->type == TYPE_KERNEL_LAUNCH || row->type == TYPE_KERNEL_START;
		break;
	case ROW_MSTX:
		if (row_attr(row, ATTR_CARRIED)) /* a step of before */
			break;
		seen->marks += row->type == TYPE_MARK;
		seen->ranges += row->type == TYPE_RANGE_START;
		seen->steps += row->type == TYPE_RANGE_START && row_is_step_range(row);
		if (seen->steps)
			seen->detected_steps = 0;
		break;
	case ROW_SYSTEM:
		seen->steps += row->type == TYPE_STEP && !row_attr(row, ATTR_CARRIED);
		if (seen->steps)
			seen->detected_steps = 0;
		if (row->type == TYPE_START_TRACE && row->pid != NO_PID)
			trace_started(s, row);
		break;
	case ROW_SNAPSHOT:
		seen->snapshots++;
		break;
	case ROW_OOM_DETAIL:
		if (row->type != TYPE_OOM_TRIGGER)
			break;
		seen->ooms++;
		add_oom(s, row);
		break;
	default:
		break;
	}
}

static void check_order(struct summary *s, struct summary_process *p, uint64_t time_ns)
{
	if (time_ns < p->order_ns)
		s->unordered = true;
	p->order_ns = time_ns;
}

static void note_time(uint64_t *first_ns, uint64_t *last_ns, uint64_t time_ns)
{
	if (time_ns < *first_ns)
		*first_ns = time_ns;
	if (time_ns > *last_ns)
		*last_ns = time_ns;
}

/* The program has ended: what is freed now was there at its end, and the rest is not looked at. */
static void add_teardown(struct summary *s, struct summary_process *p, const struct row *row,
			 const struct facts *f)
{
	struct summary_pool *pool = summary_pool_of(s, p, row);
	uint64_t entry = f->has_key ? hmap_get(&p->blocks, f->key) : HMAP_NONE;
	bool known = entry != HMAP_NONE && !unpack_block(s, entry).ended;

	if (row->event == ROW_MALLOC) {
		pool->mallocs++;
		return;
	}
	if (known) {
		pool = s->groups[unpack_block(s, entry).group].pool;
		end_block(s, f->key, entry, row->time_ns);
	}
	pool->frees += !f->shadow;
	pool->torn_down += known && !f->shadow;
	pool->left_by_teardown += !known && f->shadow;
}

static bool is_torn_down(struct summary_process *p, const struct row *row, const struct facts *f)
{
	bool malloc = row->event == ROW_MALLOC && f->has_key;

	if (malloc && p->torn_down && f->key <= p->newest_id)
		p->torn_down = false; /* another process of the same pid */
	if (malloc && f->key > p->newest_id)
		p->newest_id = f->key;
	return p->torn_down && row->device == DEV_HOST;
}

static void add_file(struct summary_process *p, const struct row *row, const struct facts *f)
{
	if (row->event == ROW_MALLOC) {
		p->file_mappings++;
		tally_add(&p->files, f->bytes, row->time_ns);
	} else if (!f->shadow) {
		p->files.live_bytes -=
			f->bytes < p->files.live_bytes ? f->bytes : p->files.live_bytes;
	}
}

static void add_memory(struct summary *s, const struct row *row)
{
	struct facts f = facts_of(row);
	struct summary_process *p = process_of_block(s, row, &f);

	p->seen.rows++;
	note_time(&p->first_ns, &p->last_ns, row->time_ns);
	if (row->event == ROW_MALLOC || !f.shadow) /* made-up frees have a made-up time */
		check_order(s, p, row->time_ns);
	if (row_is_file(row)) {
		add_file(p, row, &f);
		return;
	}
	if (is_torn_down(p, row, &f)) {
		add_teardown(s, p, row, &f);
		return;
	}
	if (row->event == ROW_MALLOC)
		add_malloc(s, p, row, &f);
	else
		add_free(s, p, row, &f);
	if (p->last_pool)
		summary_use_block(p->last_pool->own, row);
}

/* The first one begins anew. */
void summary_detected_step(struct summary *s, const struct row *row)
{
	struct summary_counts *seen = &summary_process_of(s, row->pid)->seen;

	if (row->name_len > 1 && !memcmp(row->name, "1 ", 2))
		seen->detected_steps = 0;
	seen->detected_steps += !seen->steps && !row_attr(row, ATTR_CARRIED);
}

void summary_add(struct summary *s, const struct row *row)
{
	note_time(&s->first_ns, &s->last_ns, row->time_ns);
	gpu_use_row(&s->gpu, row);
	if (row->event == ROW_MALLOC || row->event == ROW_FREE) {
		add_memory(s, row);
		return;
	}
	if (row->pid == NO_PID) {
		s->seen.rows++;
		add_other(s, &s->seen, row);
		return;
	}
	struct summary_process *p = summary_process_of(s, row->pid);
	p->seen.rows++;
	note_time(&p->first_ns, &p->last_ns, row->time_ns);
	add_other(s, &p->seen, row);
	p->torn_down |= row->event == ROW_SYSTEM && row->type == TYPE_EXIT;
	struct summary_device *d = hmap_get_ptr(&p->devices, row->device);
	if (d && row->event == ROW_SNAPSHOT)
		summary_use_snapshot(d, row);
}
