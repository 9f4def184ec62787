/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The ring of history: a producer of its own, which no thread owns. It writes as a second cursor of
 * the thread that used it first, the one for signal handlers, so that its REC_THREAD begins no
 * thread; nobody inherits the ring, because no cursor has its level.
 *
 * Callers come one at a time: the Python package holds a lock of its own.
 *
 *	torch's allocator notes events with their times; every half second the package reads them:
 *
 *	collect_history_until(t)     the recorder waits at t: pending_ns of this ring
 *	collect_alloc_at(…, t1)      events in order of their times, t <= t1 < …
 *	collect_free_at(…, t2)
 *	collect_history_until(now)   events up to now have been written
 *
 * So other rings' records that are younger than t wait for this one, a second at most, and rows
 * come out in order. Times never go back within the ring: one that would is raised to the last one.
 */
#include "guest/collect/collect.h"

#include "guest/collect/put.h"
#include "guest/runtime/guest.h"

#include <string.h>

#define LEVEL 1 /* of the cursor */
#define RING_LEVEL GUEST_LEVELS /* of the ring */
#define PLACE_WORDS 4

static struct {
	struct guest_thread writer;
	uint64_t last_ns; /* of what was reported */
	uint64_t until_ns; /* what collect_history_until() said */
} history;

static struct ring *own_ring(void)
{
	return history.writer.cur[LEVEL].ring;
}

static void set_hold(uint64_t ns)
{
	if (own_ring())
		atomic_store_explicit(&own_ring()->pending_ns, ns, memory_order_release);
}

/*
 * The thread itself must have joined: the writer begins as its copy.
 *
 * The writer is a guest_thread that no thread owns; with the epoch and tid of the first thread that
 * came, its slow paths work like a thread's. A forked child starts over, by the epoch.
 */
static bool writer_is_ready(void)
{
	struct guest_thread *w = &history.writer;

	if (likely(w->epoch && w->epoch == guest_epoch_now()))
		return true;
	guest_unhold(guest_hold(RING_PENDING_NOW));
	if (!guest_self.epoch || guest_self.epoch != guest_epoch_now())
		return false;
	memset(&history, 0, sizeof(history));
	w->epoch = guest_self.epoch;
	w->tid = guest_self.tid;
	w->level = LEVEL;
	for (unsigned i = 0; i < GUEST_LEVELS; i++)
		w->sp[i] = UINT64_MAX; /* never abandoned, see guest_reserve() */
	return true;
}

/* The slow path is the thread's own (guest_reserve_slow()), given this writer instead. While it
 * waits for a segment the hold must be off: the recorder would wait for us and we for it. */
static void *history_reserve(uint32_t size)
{
	struct guest_thread *w = &history.writer;
	struct guest_cursor *c = &w->cur[LEVEL];

	if (!writer_is_ready())
		return NULL;
	if (likely(c->end - c->pos >= (ptrdiff_t)size)) {
		w->level = LEVEL + 1;
		return c->pos;
	}
	/* Who waits for room must not hold back the recorder. */
	set_hold(0);
	void *room = guest_reserve_slow(w, size, guest_sp());
	if (c->ring)
		c->ring->level = RING_LEVEL;
	set_hold(history.until_ns);
	return room;
}

static void history_publish(uint32_t size)
{
	struct guest_thread *w = &history.writer;
	struct guest_cursor *c = &w->cur[LEVEL];

	c->pos += size;
	atomic_store_explicit(&c->seg->used, (uint32_t)(c->pos - (char *)c->seg),
			      memory_order_release);
	w->level = LEVEL;
}

/* Never back in time: the order of records in a ring is the order in which they are reported. */
static uint64_t time_of(uint64_t time_ns)
{
	if (time_ns > history.last_ns)
		history.last_ns = time_ns;
	return history.last_ns;
}

static struct rec head_of(uint8_t type, uint16_t size, uint64_t time_ns, uint32_t stack)
{
	/* When nobody knows: before now, and after everything that was reported. */
	uint64_t ns = time_of(time_ns ? time_ns : guest_now());

	return (struct rec){type, time_ns ? 0 : REC_F_SHADOW, size, stack, ns};
}

static bool is_wanted(void)
{
	return guest_mode() >= GUEST_SHADOW &&
	       atomic_load_explicit(&guest.want, memory_order_relaxed) & WANT_ALLOC;
}

void collect_alloc_at(const struct collect_block *b, uint64_t time_ns, uint32_t stack)
{
	struct rec_alloc *r = is_wanted() ? history_reserve(sizeof(*r)) : NULL;

	if (!r)
		return;
	r->head = head_of(REC_ALLOC, sizeof(*r), time_ns, stack);
	put_alloc_body(r, b);
	history_publish(sizeof(*r));
}

void collect_free_at(const struct collect_block *b, uint64_t time_ns, uint32_t stack)
{
	struct rec_free *r = is_wanted() ? history_reserve(sizeof(*r)) : NULL;

	if (!r)
		return;
	r->head = head_of(REC_FREE, sizeof(*r), time_ns, stack);
	put_free_body(r, b);
	history_publish(sizeof(*r));
}

void collect_heap_at(const struct collect_block *b, uint8_t mode, uint64_t time_ns)
{
	struct rec_heap *r = guest_mode() >= GUEST_SHADOW ? history_reserve(sizeof(*r)) : NULL;

	if (!r)
		return;
	*r = (struct rec_heap){
		.head = head_of(REC_HEAP, sizeof(*r), time_ns, 0),
		.addr = b->addr,
		.bytes = (int64_t)b->size_bytes,
		.device = b->device,
		.pool = b->pool,
		.mode = mode,
	};
	history_publish(sizeof(*r));
}

/* An empty reservation makes the ring, so that there is one to hold, before the first event is
 * known. */
void collect_history_until(uint64_t time_ns)
{
	if (!writer_is_ready())
		return;
	history.until_ns = time_ns;
	/* It is the ring that is waited for: it must be there before its first event. */
	if (time_ns && !own_ring() && history_reserve(sizeof(struct rec_heap)))
		history.writer.level = LEVEL;
	set_hold(time_ns);
}

/* --- stacks --- */

static uint64_t hash_text(uint64_t h, const char *text, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		h = (h ^ (unsigned char)text[i]) * 0x100000001b3ull;
	return h ^ h >> 32;
}

static void emit_place(uint32_t id, void *arg)
{
	const struct collect_frame *f = arg;
	uint32_t name = f->function_len < REC_MAX_TEXT / 4 ? f->function_len : REC_MAX_TEXT / 4;
	uint32_t room = REC_MAX_TEXT - name - 1;
	uint32_t file = f->file_len < room ? f->file_len : room, len = name + 1 + file;
	uint16_t size = rec_size(sizeof(struct rec_python), len);
	struct rec_python *r = history_reserve(size);

	if (!r)
		return;
	*r = (struct rec_python){
		.head = {.type = REC_PYTHON, .size = size, .time_ns = history.last_ns},
		.id = id,
		.line = f->line,
		.len = (uint16_t)len,
	};
	memset((char *)r + size - 8, 0, 8);
	memcpy(r->text, f->function, name);
	r->text[name] = '\0';
	memcpy(r->text + name + 1, f->file, file);
	history_publish(size);
}

uint32_t collect_frame_place(const struct collect_frame *f)
{
	/* Two hashes of different texts: as good as the texts themselves. */
	uint64_t words[PLACE_WORDS] = {
		hash_text(0xcbf29ce484222325ull, f->file, f->file_len),
		hash_text(0x84222325cbf29ce4ull, f->function, f->function_len),
		(uint64_t)f->file_len << 32 | f->function_len,
		f->line,
	};

	if (guest_mode() < GUEST_SHADOW || !writer_is_ready() || !guest.arena)
		return 0;
	union {
		const struct collect_frame *in;
		void *out;
	} arg = {f};
	uint32_t id = guest_intern(words, PLACE_WORDS, emit_place, arg.out);
	if (!id)
		guest_lost_stack();
	return id;
}

uint32_t collect_places(const uint32_t *places, uint32_t n)
{
	uint64_t words[COLLECT_MAX_PLACES];

	_Static_assert(COLLECT_MAX_PLACES <= ARENA_MAX_DEPTH, "a stack has room for them");
	_Static_assert((STACK_PYTHON | COLLECT_PLACE_CUT) == STACK_CUT, "no place has this number");
	if (!n || guest_mode() < GUEST_SHADOW || !guest.arena)
		return 0;
	if (n > COLLECT_MAX_PLACES)
		n = COLLECT_MAX_PLACES;
	for (uint32_t i = 0; i < n; i++)
		words[i] = STACK_PYTHON | places[i];
	uint32_t id = guest_intern_stack(words, n);
	if (!id)
		guest_lost_stack();
	return id;
}
