/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "recorder/pack/pack.h"

#include "base/mem.h"
#include "recorder/pack/pack_impl.h"

#include <stdlib.h>
#include <string.h>

#define ZSTD_LEVEL 3
#define COMPRESS_FROM 64 /* bytes of a column */
#define FREED UINT32_MAX

struct pack *pack_new(void)
{
	return xcalloc(1, sizeof(struct pack));
}

void pack_free(struct pack *p)
{
	if (!p)
		return;
	for (unsigned i = 0; i < COLUMNS; i++)
		buf_release(&p->column[i]);
	buf_release(&p->batch);
	ZSTD_freeCCtx(p->compress);
	ZSTD_freeDCtx(p->expand);
	free(p->state.allocs);
	free(p->known);
	free(p);
}

/* There is room in each column for whatever the batch says. */
static void put_varint(struct pack *p, enum pack_column c, uint64_t v)
{
	struct buf *to = &p->column[c];

	for (; v >= 128; v >>= 7)
		to->data[to->len++] = (char)(v | 128);
	to->data[to->len++] = (char)v;
}

static void put_byte(struct pack *p, enum pack_column c, uint64_t v)
{
	p->column[c].data[p->column[c].len++] = (char)v;
}

static void put_time(struct pack *p, uint64_t time_ns)
{
	struct pack_state *s = &p->state;
	uint64_t steps = time_ns / PACK_TICK_NS - s->time_ns / PACK_TICK_NS;

	if (steps < TIME_EXACT && pack_state_tick(s, steps) == time_ns) {
		put_byte(p, COLUMN_TIME, steps);
	} else {
		uint64_t v = zigzag(time_ns, s->time_ns);
		put_byte(p, COLUMN_TIME, TIME_EXACT);
		put_byte(p, COLUMN_TIME_LOW, v);
		put_varint(p, COLUMN_TIME_HIGH, v >> 8);
	}
	s->time_ns = time_ns;
}

static void put_stack_of(struct pack *p, uint32_t id)
{
	struct pack_state *s = &p->state;

	if (id && s->stack_is_new && id == s->stack) {
		put_byte(p, COLUMN_STACK, 1);
		s->stack_is_new = false;
	} else {
		put_varint(p, COLUMN_STACK, id ? id + 1ull : 0);
	}
}

static struct pack_known *known_at(struct pack *p, uint64_t addr)
{
	size_t i = (size_t)((addr >> 4) * 0x9e3779b97f4a7c15ull >> 32) & (p->nknown - 1);

	while (p->known[i].index && p->known[i].addr != addr)
		i = (i + 1) & (p->nknown - 1);
	return &p->known[i];
}

static void know_alloc(struct pack *p, uint64_t addr)
{
	*known_at(p, addr) = (struct pack_known){addr, (uint32_t)p->state.nallocs};
}

/* The slot with all that is not written; PACK_SLOTS: none. */
static unsigned slot_of_alloc(const struct pack_state *s, const struct rec_alloc *a)
{
	for (unsigned i = 0; i < PACK_SLOTS && i < s->nalloc_slots; i++) {
		const struct rec_alloc *t = &s->alloc_slot[i];
		if (t->head.flags == a->head.flags && t->device == a->device &&
		    t->pool == a->pool && t->kind == a->kind && t->page == a->page &&
		    t->module == a->module && t->context == a->context)
			return i;
	}
	return PACK_SLOTS;
}

static unsigned slot_of_free(const struct pack_state *s, const struct rec_free *f)
{
	for (unsigned i = 0; i < PACK_SLOTS && i < s->nfree_slots; i++) {
		const struct rec_free *t = &s->free_slot[i];
		if (t->head.flags == f->head.flags && t->device == f->device &&
		    t->pool == f->pool && t->kind == f->kind && t->reserved == f->reserved)
			return i;
	}
	return PACK_SLOTS;
}

/* Where an allocator would be expected to put it. */
static unsigned place_of_alloc(const struct pack_state *s, uint64_t addr, uint32_t class)
{
	uint32_t at = s->freed[class];

	if (at && s->allocs[at - 1].addr == addr)
		return PLACE_CLASS;
	if (addr == s->behind)
		return PLACE_BEHIND;
	for (unsigned i = PLACE_CLASS; at && i < PLACE_BEHIND; i++) {
		if (s->allocs[at - 1].addr == addr)
			return i;
		at = s->allocs[at - 1].next;
	}
	for (uint32_t i = 0; i < RECENT && i < s->nrecent; i++)
		if (s->recent[(s->nrecent - 1 - i) % RECENT] == addr)
			return PLACE_FREED + i;
	return addr % 16 ? PLACE_ANY : PLACE_ALIGNED;
}

static bool put_alloc(struct pack *p, const struct rec_alloc *a)
{
	struct pack_state *s = &p->state;
	unsigned slot = slot_of_alloc(s, a);
	uint32_t class = pack_state_class(a->size_bytes);
	uint64_t there;

	if (slot == PACK_SLOTS)
		return false;
	if (slot != s->alloc_as)
		put_byte(p, COLUMN_CODE, PACK_ALLOC_AS + slot);
	s->alloc_as = slot;
	unsigned place = place_of_alloc(s, a->addr, class);
	put_byte(p, COLUMN_CODE, PACK_ALLOC + place);
	put_time(p, a->head.time_ns);
	put_stack_of(p, a->head.stack);
	put_varint(p, COLUMN_SIZE, a->size_bytes);
	if (place == PLACE_ALIGNED)
		put_varint(p, COLUMN_ADDR, zigzag(a->addr / 16, s->behind / 16));
	else if (place == PLACE_ANY)
		put_varint(p, COLUMN_ADDR, zigzag(a->addr, s->behind));
	else
		(void)pack_state_take(s, class, place, &there);
	pack_state_alloc(s, a->addr, a->size_bytes, place);
	know_alloc(p, a->addr);
	return true;
}

/* The block that a REC_FREE ends. */
static void put_freed(struct pack *p, uint64_t addr)
{
	struct pack_state *s = &p->state;
	struct pack_known *k = known_at(p, addr);

	if (!k->index || k->index == FREED) {
		put_byte(p, COLUMN_CODE, addr % 16 ? PACK_FREE_ANY : PACK_FREE);
		put_varint(p, COLUMN_FREED,
			   addr % 16 ? zigzag(addr, s->free_addr)
				     : zigzag(addr / 16, s->free_addr / 16));
		pack_state_free_other(s, addr);
		return;
	}
	size_t age = s->nallocs - (k->index - 1);
	if (PACK_FREE + age < PACK_FREE_ANY) {
		put_byte(p, COLUMN_CODE, PACK_FREE + age);
	} else {
		put_byte(p, COLUMN_CODE, PACK_FREE_OLD);
		put_varint(p, COLUMN_AGE, age);
	}
	pack_state_free(s, k->index - 1);
	k->index = FREED; /* the chain goes on behind it */
}

static bool put_free(struct pack *p, const struct rec_free *f)
{
	unsigned slot = slot_of_free(&p->state, f);

	if (slot == PACK_SLOTS)
		return false;
	if (slot != p->state.free_as)
		put_byte(p, COLUMN_CODE, PACK_FREE_AS + slot);
	p->state.free_as = slot;
	put_freed(p, f->addr);
	put_time(p, f->head.time_ns);
	put_stack_of(p, f->head.stack);
	return true;
}

static void put_record(struct pack *p, const struct rec *r)
{
	struct buf *to = &p->column[COLUMN_BYTES];

	if (r->type == REC_ALLOC && put_alloc(p, (const struct rec_alloc *)r))
		return;
	if (r->type == REC_FREE && put_free(p, (const struct rec_free *)r))
		return;
	put_byte(p, COLUMN_CODE, PACK_RECORD);
	put_varint(p, COLUMN_RUN, r->size / 8u);
	put_time(p, r->time_ns);
	memcpy(to->data + to->len, r, offsetof(struct rec, time_ns));
	to->len += offsetof(struct rec, time_ns);
	memcpy(to->data + to->len, r + 1, r->size - sizeof(*r));
	to->len += r->size - sizeof(*r);
	pack_state_learn(&p->state, r);
	if (r->type == REC_ALLOC)
		know_alloc(p, ((const struct rec_alloc *)r)->addr);
}

static bool put_run(struct pack *p, const struct batch_item *it)
{
	const char *at = (const char *)(it + 1), *end = (const char *)it + it->bytes;

	put_byte(p, COLUMN_CODE, PACK_RUN);
	put_varint(p, COLUMN_RUN, it->proc);
	put_varint(p, COLUMN_RUN, it->tid);
	while (at < end) {
		const struct rec *r = (const struct rec *)at;
		if (!rec_check(r, (size_t)(end - at)))
			return false;
		put_record(p, r);
		at += r->size;
	}
	return true;
}

static void put_item(struct pack *p, const struct batch_item *it)
{
	struct buf *to = &p->column[COLUMN_BYTES];

	put_byte(p, COLUMN_CODE, PACK_ITEM);
	put_varint(p, COLUMN_RUN, it->bytes / 8);
	memcpy(to->data + to->len, it, it->bytes);
	to->len += it->bytes;
}

static void put_stack(struct pack *p, const struct batch_stack *s)
{
	struct pack_state *st = &p->state;
	uint32_t same = 0;
	uint64_t before = 0;

	if (s->head.bytes < sizeof(*s) || s->depth > ARENA_MAX_DEPTH || s->head.tid ||
	    s->head.bytes != sizeof(*s) + s->depth * sizeof(s->pc[0])) {
		put_item(p, &s->head);
		return;
	}
	while (same < s->depth && same < st->depth &&
	       s->pc[s->depth - 1 - same] == st->pc[st->depth - 1 - same])
		same++;
	put_byte(p, COLUMN_CODE, PACK_STACK);
	put_varint(p, COLUMN_RUN, s->head.proc);
	put_varint(p, COLUMN_NEW, zigzag(s->id, pack_state_next_stack(st)));
	put_varint(p, COLUMN_NEW, s->depth);
	put_varint(p, COLUMN_NEW, same);
	for (uint32_t i = 0; i < s->depth - same; i++) {
		put_varint(p, COLUMN_PC, zigzag(s->pc[i], before));
		before = s->pc[i];
	}
	pack_state_stack(st, s);
}

static void begin_batch(struct pack *p, size_t bytes)
{
	size_t allocs = bytes / sizeof(struct rec_alloc);

	pack_state_reset(&p->state);
	/* A record or item has 16 bytes and more, a number 10 and less; 8 bytes of a stack one. */
	for (unsigned i = 0; i < COLUMNS; i++) {
		buf_clear(&p->column[i]);
		buf_room(&p->column[i], bytes + bytes / 2 + 64);
	}
	for (p->nknown = 64; p->nknown < 2 * allocs;)
		p->nknown *= 2;
	p->known = xgrow(p->known, &p->cap_known, p->nknown, sizeof(*p->known));
	memset(p->known, 0, p->nknown * sizeof(*p->known));
}

static bool put_batch(struct pack *p, const char *at, size_t bytes)
{
	const char *end = at + bytes;

	while (at < end) {
		const struct batch_item *it = (const struct batch_item *)at;
		size_t left = (size_t)(end - at);
		if (left < sizeof(*it) || it->bytes < sizeof(*it) || it->bytes > left ||
		    it->bytes % 8)
			return false;
		if (it->kind == BATCH_RUN) {
			if (!put_run(p, it))
				return false;
		} else if (it->kind == BATCH_STACK) {
			put_stack(p, (const struct batch_stack *)it);
		} else {
			put_item(p, it);
		}
		at += it->bytes;
	}
	return true;
}

static void add_column(struct pack *p, const struct buf *column, uint32_t *out_stored,
		       struct buf *out)
{
	size_t cap = ZSTD_compressBound(column->len), n = column->len;
	char *at = buf_room(out, cap > n ? cap : n);

	if (column->len >= COMPRESS_FROM && p->compress) {
		n = ZSTD_compressCCtx(p->compress, at, cap, column->data, column->len, ZSTD_LEVEL);
		if (ZSTD_isError(n) || n >= column->len)
			n = column->len;
	}
	if (n == column->len && n)
		memcpy(at, column->data, n);
	out->len += n;
	*out_stored = (uint32_t)n;
}

static void add_number(struct buf *out, uint32_t v)
{
	for (; v >= 128; v >>= 7)
		buf_add_char(out, (char)(v | 128));
	buf_add_char(out, (char)v);
}

/* What the columns hold, compressed, behind how long they are. */
static void add_columns(struct pack *p, size_t bytes, struct buf *out)
{
	if (!p->compress)
		p->compress = ZSTD_createCCtx();
	buf_clear(&p->batch);
	add_number(out, (uint32_t)bytes);
	for (unsigned i = 0; i < COLUMNS; i++) {
		uint32_t stored;
		add_column(p, &p->column[i], &stored, &p->batch);
		add_number(out, (uint32_t)p->column[i].len);
		if (p->column[i].len)
			add_number(out, stored);
	}
	buf_add(out, p->batch.data, p->batch.len);
}

bool pack_batch(struct pack *p, const char *batch, size_t bytes, struct buf *out)
{
	size_t begin = out->len, raw = 0;

	if (bytes > FRAME_MAX_BYTES)
		return false;
	begin_batch(p, bytes);
	if (!put_batch(p, batch, bytes))
		return false;
	for (unsigned i = 0; i < COLUMNS; i++)
		raw += p->column[i].len;
	if (raw > bytes)
		return false;
	add_columns(p, bytes, out);
	if (out->len - begin < bytes)
		return true;
	out->len = begin;
	return false;
}
