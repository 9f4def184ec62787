/* SPDX-License-Identifier: MulanPSL-2.0 */
/* A packed batch as it was (pack.h). What it says is foreign: every number is checked. */
#include "recorder/pack/pack.h"

#include "base/mem.h"
#include "recorder/pack/pack_impl.h"

#include <errno.h>
#include <string.h>

#define NO_RUN SIZE_MAX

struct expansion {
	struct pack_state *state;
	struct {
		const unsigned char *at, *end;
	} column[COLUMNS];
	char *batch;
	size_t len, size;
	size_t run; /* where the run begins that is open */
	bool v2; /* of version 2 */
	bool bad;
};

static uint64_t get_varint(struct expansion *e, enum pack_column c)
{
	uint64_t v = 0;

	for (unsigned shift = 0; shift < 64; shift += 7) {
		if (e->column[c].at == e->column[c].end)
			break;
		unsigned char byte = *e->column[c].at++;
		v |= (uint64_t)(byte & 127) << shift;
		if (byte < 128)
			return v;
	}
	e->bad = true;
	return 0;
}

static uint64_t get_byte(struct expansion *e, enum pack_column c)
{
	if (e->column[c].at < e->column[c].end)
		return *e->column[c].at++;
	e->bad = true;
	return 0;
}

static uint64_t get_time(struct expansion *e)
{
	struct pack_state *st = e->state;
	uint64_t steps = e->v2 ? TIME_EXACT : get_byte(e, COLUMN_TIME);

	if (steps != TIME_EXACT)
		return st->time_ns = pack_state_tick(st, steps);
	uint64_t low = get_byte(e, COLUMN_TIME_LOW), high = get_varint(e, COLUMN_TIME_HIGH);
	return st->time_ns = unzigzag(high << 8 | low, st->time_ns);
}

/* The stack that a record names. */
static uint32_t get_stack(struct expansion *e)
{
	struct pack_state *st = e->state;
	uint64_t v = get_varint(e, COLUMN_STACK);

	if (e->v2 || !v)
		return (uint32_t)v;
	if (v > 1)
		return (uint32_t)(v - 1);
	e->bad |= !st->stack_is_new;
	st->stack_is_new = false;
	return st->stack;
}

/* Room for the next piece of the batch; NULL: it has no more. */
static void *extend_batch(struct expansion *e, size_t bytes)
{
	if (e->bad || bytes > e->size - e->len) {
		e->bad = true;
		return NULL;
	}
	void *at = e->batch + e->len;
	e->len += bytes;
	return at;
}

static void copy_bytes(struct expansion *e, void *to, size_t bytes)
{
	if (bytes > (size_t)(e->column[COLUMN_BYTES].end - e->column[COLUMN_BYTES].at)) {
		e->bad = true;
		return;
	}
	memcpy(to, e->column[COLUMN_BYTES].at, bytes);
	e->column[COLUMN_BYTES].at += bytes;
}

static void close_run(struct expansion *e)
{
	if (e->run != NO_RUN)
		((struct batch_item *)(e->batch + e->run))->bytes = (uint32_t)(e->len - e->run);
	e->run = NO_RUN;
}

static void expand_run(struct expansion *e)
{
	size_t begin = e->len;
	struct batch_item *it = extend_batch(e, sizeof(*it));

	if (!it)
		return;
	*it = (struct batch_item){.kind = BATCH_RUN};
	it->proc = (uint32_t)get_varint(e, COLUMN_RUN);
	it->tid = (uint32_t)get_varint(e, COLUMN_RUN);
	e->run = begin;
}

static void expand_item(struct expansion *e)
{
	uint64_t words = get_varint(e, COLUMN_RUN);
	struct batch_item *it =
		words < sizeof(*it) / 8 || words > e->size / 8 ? NULL : extend_batch(e, words * 8);

	e->bad |= !it;
	if (it)
		copy_bytes(e, it, words * 8);
}

static void expand_stack(struct expansion *e)
{
	struct pack_state *st = e->state;
	enum pack_column column = e->v2 ? COLUMN_STACK : COLUMN_NEW;
	uint32_t proc = (uint32_t)get_varint(e, COLUMN_RUN);
	uint64_t id = get_varint(e, column), depth = get_varint(e, column),
		 same = get_varint(e, column), before = 0;
	struct batch_stack *s;

	if (depth > ARENA_MAX_DEPTH || same > depth || same > st->depth) {
		e->bad = true;
		return;
	}
	size_t bytes = sizeof(*s) + depth * sizeof(s->pc[0]);
	s = extend_batch(e, bytes);
	if (!s)
		return;
	s->head = (struct batch_item){BATCH_STACK, (uint32_t)bytes, proc, 0};
	s->id = (uint32_t)(e->v2 ? id : unzigzag(id, pack_state_next_stack(st)));
	s->depth = (uint32_t)depth;
	for (uint64_t i = 0; i < depth - same; i++)
		s->pc[i] = before = unzigzag(get_varint(e, COLUMN_PC), before);
	for (uint64_t i = depth - same; i < depth; i++)
		s->pc[i] = st->pc[st->depth - (depth - i)];
	pack_state_stack(st, s);
}

static void expand_record(struct expansion *e)
{
	uint64_t words = get_varint(e, COLUMN_RUN);
	struct rec *r = NULL;

	if (e->run != NO_RUN && words >= sizeof(*r) / 8 && words <= REC_MAX_SIZE / 8)
		r = extend_batch(e, words * 8);
	e->bad |= !r;
	if (!r)
		return;
	r->time_ns = get_time(e);
	copy_bytes(e, r, offsetof(struct rec, time_ns));
	copy_bytes(e, r + 1, words * 8 - sizeof(*r));
	if (!e->bad && r->size == words * 8)
		pack_state_learn(e->state, r);
	else
		e->bad = true;
}

/* The next record of a run, as one that was written in full. */
static struct rec_alloc *extend_alloc(struct expansion *e, unsigned slot)
{
	struct rec_alloc *a = NULL;

	if (e->run != NO_RUN && slot < e->state->nalloc_slots)
		a = extend_batch(e, sizeof(*a));
	e->bad |= !a;
	if (a) {
		*a = e->state->alloc_slot[slot];
		a->head.time_ns = get_time(e);
		a->head.stack = get_stack(e);
		a->size_bytes = get_varint(e, COLUMN_SIZE);
	}
	return a;
}

static struct rec_free *extend_free(struct expansion *e, unsigned slot)
{
	struct rec_free *f = NULL;

	if (e->run != NO_RUN && slot < e->state->nfree_slots)
		f = extend_batch(e, sizeof(*f));
	e->bad |= !f;
	if (f) {
		*f = e->state->free_slot[slot];
		f->head.time_ns = get_time(e);
		f->head.stack = get_stack(e);
	}
	return f;
}

static void expand_alloc(struct expansion *e, unsigned place)
{
	struct pack_state *st = e->state;
	struct rec_alloc *a = extend_alloc(e, st->alloc_as);

	if (!a)
		return;
	if (place == PLACE_ALIGNED)
		a->addr = unzigzag(get_varint(e, COLUMN_ADDR), st->behind / 16) * 16;
	else if (place == PLACE_ANY)
		a->addr = unzigzag(get_varint(e, COLUMN_ADDR), st->behind);
	else
		e->bad |= !pack_state_take(st, pack_state_class(a->size_bytes), place, &a->addr);
	pack_state_alloc(st, a->addr, a->size_bytes, place);
}

/* The address of the allocation that is so many steps back. */
static uint64_t free_by_age(struct expansion *e, uint64_t age)
{
	struct pack_state *st = e->state;

	if (!age || age > st->nallocs) {
		e->bad = true;
		return 0;
	}
	pack_state_free(st, st->nallocs - age);
	return st->allocs[st->nallocs - age].addr;
}

static void expand_free(struct expansion *e, unsigned code)
{
	struct pack_state *st = e->state;
	struct rec_free *f = extend_free(e, st->free_as);

	if (!f)
		return;
	if (code == PACK_FREE_OLD) {
		f->addr = free_by_age(e, get_varint(e, COLUMN_AGE));
	} else if (code != PACK_FREE && code != PACK_FREE_ANY) {
		f->addr = free_by_age(e, code - PACK_FREE);
	} else {
		f->addr = code == PACK_FREE
				  ? unzigzag(get_varint(e, COLUMN_FREED), st->free_addr / 16) * 16
				  : unzigzag(get_varint(e, COLUMN_FREED), st->free_addr);
		pack_state_free_other(st, f->addr);
	}
}

/* A code of REC_ALLOC or REC_FREE. */
static void expand_event(struct expansion *e, unsigned code)
{
	if (code >= PACK_FREE)
		expand_free(e, code);
	else if (code >= PACK_ALLOC)
		expand_alloc(e, code - PACK_ALLOC);
	else if (code >= PACK_FREE_AS)
		e->state->free_as = code - PACK_FREE_AS;
	else
		e->state->alloc_as = code - PACK_ALLOC_AS;
}

static void expand_event_v2(struct expansion *e, unsigned code)
{
	struct pack_state *st = e->state;
	struct rec_alloc *a;
	struct rec_free *f;

	if (code >= PACK_V2_ALLOC && code < PACK_V2_FREE &&
	    (a = extend_alloc(e, code - PACK_V2_ALLOC))) {
		uint64_t guess = pack_state_guess(st, pack_state_class(a->size_bytes));
		uint64_t v = get_varint(e, COLUMN_ADDR);
		a->addr = v ? unzigzag(v - 1, st->alloc_addr) : guess;
		pack_state_alloc(st, a->addr, a->size_bytes, PLACE_ANY);
	} else if (code >= PACK_V2_FREE && code < PACK_V2_END &&
		   (f = extend_free(e, code - PACK_V2_FREE))) {
		uint64_t age = get_varint(e, COLUMN_AGE);
		f->addr = age ? free_by_age(e, age)
			      : unzigzag(get_varint(e, COLUMN_ADDR), st->free_addr);
		if (!age)
			st->free_addr = f->addr;
	} else {
		e->bad = true;
	}
}

static void expand_batch(struct expansion *e)
{
	while (!e->bad && e->column[COLUMN_CODE].at < e->column[COLUMN_CODE].end) {
		unsigned code = *e->column[COLUMN_CODE].at++;
		if (code > PACK_RECORD) {
			if (e->v2)
				expand_event_v2(e, code);
			else
				expand_event(e, code);
		} else if (code == PACK_RECORD) {
			expand_record(e);
		} else {
			close_run(e);
			if (code == PACK_RUN)
				expand_run(e);
			else if (code == PACK_STACK)
				expand_stack(e);
			else
				expand_item(e);
		}
	}
	close_run(e);
	for (unsigned i = 0; i < COLUMNS; i++)
		e->bad |= e->column[i].at != e->column[i].end;
	e->bad |= e->len != e->size;
}

/* The columns as they were; false: not what the head says. */
static bool expand_columns(struct pack *p, const struct pack_head *head, const char *at,
			   struct expansion *e)
{
	for (unsigned i = 0; i < COLUMNS; i++) {
		uint32_t raw = head->column[i].raw, stored = head->column[i].stored;
		const char *data = at;
		if (stored < raw) {
			buf_clear(&p->column[i]);
			data = buf_room(&p->column[i], raw);
			if (ZSTD_decompressDCtx(p->expand, p->column[i].data, raw, at, stored) !=
			    raw)
				return false;
		}
		e->column[i].at = (const unsigned char *)data;
		e->column[i].end = e->column[i].at + raw;
		at += stored;
	}
	return true;
}

static bool head_is_sane(const struct pack_head *head, size_t bytes)
{
	uint64_t raw = 0, stored = 0;

	for (unsigned i = 0; i < COLUMNS; i++) {
		if (head->column[i].stored > head->column[i].raw)
			return false;
		raw += head->column[i].raw;
		stored += head->column[i].stored;
	}
	return head->batch_bytes <= FRAME_MAX_BYTES && raw <= head->batch_bytes && stored == bytes;
}

static int expand_packed(struct pack *p, const struct pack_head *head, bool v2, const char *columns,
			 size_t bytes, const char **out_batch, size_t *out_bytes)
{
	struct expansion e = {.state = &p->state, .run = NO_RUN, .v2 = v2};

	if (!head_is_sane(head, bytes))
		return -EINVAL;
	*out_bytes = head->batch_bytes;
	if (!p->expand)
		p->expand = ZSTD_createDCtx();
	if (!p->expand || !expand_columns(p, head, columns, &e))
		return -EINVAL;
	pack_state_reset(&p->state);
	buf_clear(&p->batch);
	e.batch = buf_room(&p->batch, head->batch_bytes + 1u);
	e.size = head->batch_bytes;
	expand_batch(&e);
	*out_batch = e.batch;
	return e.bad ? -EINVAL : 0;
}

int pack_expand(struct pack *p, const char *packed, size_t bytes, const char **out_batch,
		size_t *out_bytes)
{
	const unsigned char *at = (const unsigned char *)packed;
	struct expansion e = {.column[0] = {at, at + bytes}};
	struct pack_head head = {.batch_bytes = (uint32_t)get_varint(&e, 0)};

	*out_bytes = 0;
	for (unsigned i = 0; i < COLUMNS; i++) {
		head.column[i].raw = (uint32_t)get_varint(&e, 0);
		head.column[i].stored = head.column[i].raw ? (uint32_t)get_varint(&e, 0) : 0;
	}
	if (e.bad)
		return -EINVAL;
	return expand_packed(p, &head, false, (const char *)e.column[0].at,
			     (size_t)(e.column[0].end - e.column[0].at), out_batch, out_bytes);
}

int pack_expand_v2(struct pack *p, const char *packed, size_t bytes, const char **out_batch,
		   size_t *out_bytes)
{
	struct pack_head head = {0};
	size_t n = offsetof(struct pack_head, column[COLUMNS_V2]);

	*out_bytes = 0;
	if (bytes < n)
		return -EINVAL;
	memcpy(&head, packed, n);
	return expand_packed(p, &head, true, packed + n, bytes - n, out_batch, out_bytes);
}
