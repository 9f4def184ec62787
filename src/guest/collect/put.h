/* SPDX-License-Identifier: MulanPSL-2.0 */
/* How records are put together; inside this folder. */
#ifndef SONDE_GUEST_COLLECT_PUT_H
#define SONDE_GUEST_COLLECT_PUT_H

#include "guest/collect/collect.h"
#include "guest/runtime/guest.h"

#include <string.h>

/*
 * One record from the hold to the publication, for everything but the two hot kinds of emit.c. The
 * caller fills what follows the head between put_begin() and put_end(); rec is NULL when there is
 * no room, and put_end() must be called all the same.
 */
struct put {
	void *rec;
	uint16_t size;
	bool held;
};

static inline struct put put_begin_depth(uint8_t type, uint16_t size, const void *caller,
					 uint32_t depth, uint32_t py_depth)
{
	struct put p = {.size = size, .held = guest_hold(RING_PENDING_NOW)};
	uint64_t ns = guest_now();
	uint32_t stack = caller ? guest_stack_depth((uint64_t)caller, depth, py_depth) : 0;

	p.rec = guest_reserve(size);
	if (p.rec) {
		memset(p.rec, 0, size);
		*(struct rec *)p.rec = (struct rec){type, 0, size, stack, ns};
	}
	return p;
}

static inline struct put put_begin(uint8_t type, uint16_t size, const void *caller)
{
	return put_begin_depth(type, size, caller, guest.c_depth, guest.py_depth);
}

static inline void put_end(const struct put *p)
{
	if (p->rec)
		guest_publish(p->size);
	guest_unhold(p->held);
}

/* Everything but the head of a record of a block; each word of it is written. */
static inline void put_alloc_body(struct rec_alloc *r, const struct collect_block *b)
{
	r->addr = b->addr;
	r->size_bytes = b->size_bytes;
	r->device = b->device;
	r->pool = b->pool;
	r->kind = b->kind;
	r->page = b->page;
	r->module = b->module;
	r->context = b->context;
}

static inline void put_free_body(struct rec_free *r, const struct collect_block *b)
{
	r->addr = b->addr;
	r->device = b->device;
	r->pool = b->pool;
	r->kind = b->kind;
	r->reserved = 0;
}

/* Two texts joined by a NUL, as text bodies hold them; the second may be missing. */
struct two_texts {
	const char *a, *b;
	size_t na, nb;
	bool cut;
};

static inline struct two_texts texts(const char *a, const char *b)
{
	struct two_texts t = {.a = a ? a : "", .b = b ? b : ""};

	t.na = strnlen(t.a, REC_MAX_TEXT);
	t.cut = t.na == REC_MAX_TEXT && t.a[t.na] != '\0';
	size_t room = REC_MAX_TEXT - t.na;
	t.nb = room > 1 ? strnlen(t.b, room - 1) : 0;
	return t;
}

static inline uint16_t texts_len(const struct two_texts *t)
{
	return (uint16_t)(t->na + (t->nb ? t->nb + 1 : 0));
}

/* Into a record that is zero already. */
static inline void texts_put(struct rec *head, char *out, const struct two_texts *t)
{
	memcpy(out, t->a, t->na);
	if (t->nb)
		memcpy(out + t->na + 1, t->b, t->nb);
	if (t->cut)
		head->flags |= REC_F_TEXT_CUT;
}

/* program_end.c: CPython's answer to whether it tears itself down, NULL where it needs no asking. */
typedef int (*python_ends_fn)(void);
extern _Atomic(python_ends_fn) python_ends;
void program_ask_python(void);
void program_await_python_end(void);

/* Activities (activity.c) in that arena that its recorder has not brought to where they belong:
 * they are gone with it. */
uint64_t activities_unwritten(const struct control_page *page, struct arena_head *arena);

/* attribution.c: gradients are followed, for memory. */
extern _Atomic bool work_follows_gradients;
void work_emit_gradient(const struct collect_block *b, const void *caller);

/* Rare, and often the last thing that a job does: worth more frames than usual. */
static inline uint32_t oom_depth(uint32_t depth)
{
	uint32_t least = guest.page->oom_depth;

	return depth > least ? depth : least;
}

#endif
