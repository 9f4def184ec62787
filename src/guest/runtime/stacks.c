/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Interns call stacks in the arena: equal stacks get one id, stored by the thread that meets them
 * first. The layout of the tables is in wire/ring.h.
 *
 *	words -> 64-bit hash -> window of FIRST_PROBES slots in the small index
 *	    a slot with our tag, whose entry has our words      its id
 *	    a free slot                                         store, compare-and-swap, new id
 *	    neither: the same in MORE_PROBES slots of the second index, then of the third
 *	    neither: counted as lost, the event goes without a stack
 *
 * Deep stacks are interned in pieces of STACK_CHUNK words from the outermost frame on, so that those of
 * a program that allocates at a million places (import torch) take a few words each.
 *
 * Lock-free: a slot goes from 0 to its final value by one compare-and-swap, after the data behind
 * it is complete. The CAS is sequentially consistent and the loads acquire: who sees an id sees the
 * words behind it, in this process and in the recorder. A thread that loses the race for a slot
 * compares with what the winner put there, and goes on to the next slot if that is another stack.
 *
 * `fresh` runs between storing and the CAS, for words that need an explanation of their own (a call
 * site in Python code): its record is in a ring before any thread can use the id.
 */
#include "guest/runtime/guest.h"

#include "unwind/native/modules.h"
#include "unwind/native/native.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/auxv.h>

#define FIRST_PROBES 16
#define MORE_PROBES 64
#define STACK_COMMIT (256u << 10)

static void report_module(const struct native_module *m, void *arg)
{
	size_t len = strnlen(m->path, REC_MAX_TEXT);
	uint16_t size = rec_size(sizeof(struct rec_module), len);
	struct rec_module *r = guest_reserve(size);

	(void)arg;
	if (!r)
		return;
	*r = (struct rec_module){
		.head = {.type = REC_MODULE, .size = size, .time_ns = guest_now()},
		.start = m->start,
		.end = m->end,
		.bias = m->bias,
		.len = (uint16_t)len,
	};
	memset((char *)r + size - 8, 0, 8 * (size > sizeof(*r)));
	memcpy(r->text, m->path, len);
	guest_publish(size);
}

static uint64_t hash_pcs(const uint64_t *pc, uint32_t n)
{
	uint64_t h = 0x9e3779b97f4a7c15ull ^ n;

	for (uint32_t i = 0; i < n; i++) {
		h ^= pc[i];
		h *= 0xff51afd7ed558ccdull;
		h ^= h >> 32;
	}
	return h;
}

/*
 * Room for a stack of n addresses; 0 when the budget or the disk is full. A bump allocator: nothing
 * is ever given back. File space follows in steps of STACK_COMMIT; two threads may commit the same
 * step, which does no harm, and the winner of the CAS says that it is there.
 */
static uint32_t stack_room(struct arena_head *a, uint32_t n)
{
	uint64_t bytes = sizeof(struct stack_entry) + (uint64_t)n * 8;
	uint64_t off = atomic_fetch_add_explicit(&a->stack_used, bytes, memory_order_relaxed);

	if (off + bytes > a->stack_bytes)
		return 0;
	uint64_t have = atomic_load(&a->stack_committed);
	while (off + bytes > have) {
		uint64_t want = (off + bytes + STACK_COMMIT - 1) & ~(uint64_t)(STACK_COMMIT - 1);
		if (want > a->stack_bytes)
			want = a->stack_bytes;
		if (guest_commit(a, arena_off_stacks(a->max_segs) + have, want - have) < 0)
			return 0;
		if (atomic_compare_exchange_strong(&a->stack_committed, &have, want))
			break;
	}
	return (uint32_t)(off / 8);
}

static uint32_t stack_store(struct arena_head *a, const uint64_t *pc, uint32_t n, uint32_t hash)
{
	uint32_t id = stack_room(a, n);

	if (!id)
		return 0;
	struct stack_entry *e = arena_stack(a, id);
	e->hash = hash;
	e->depth = n;
	memcpy(e->pc, pc, (size_t)n * 8);
	return id;
}

/* Mostly six words: less than what a call of memcmp() costs. */
static bool is_same(const uint64_t *a, const uint64_t *b, uint32_t n)
{
	uint32_t i = 0;

	while (i < n && a[i] == b[i])
		i++;
	return i == n;
}

struct interning {
	const uint64_t *pc;
	uint32_t n, tag, id; /* id: it has been stored, but has no slot yet */
	bool no_room; /* to store it */
	void (*fresh)(uint32_t id, void *arg);
	void *arg;
};

/*
 * The id of what is in the window of an index or could be put there; 0: neither.
 *
 * A free slot ends the search: entries are never removed, so what we look for cannot be behind it.
 * But another thread may take the slot first; then its contents are compared like any other's.
 */
static uint32_t find_or_put(struct arena_head *a, struct interning *w, _Atomic uint64_t *index,
			    uint32_t mask, uint32_t at, uint32_t probes)
{
	for (uint32_t i = 0; i < probes; i++) {
		_Atomic uint64_t *slot = &index[(at + i) & mask];
		uint64_t v = atomic_load_explicit(slot, memory_order_acquire);
		if (!v) {
			if (!w->id) {
				w->id = stack_store(a, w->pc, w->n, w->tag);
				if (w->id && w->fresh)
					w->fresh(w->id, w->arg);
			}
			w->no_room = !w->id;
			if (w->no_room)
				return 0;
			if (atomic_compare_exchange_strong(slot, &v,
							   (uint64_t)w->tag << 32 | w->id))
				return w->id;
		}
		struct stack_entry *e = arena_stack(a, (uint32_t)v);
		if (v >> 32 == w->tag && e->depth == w->n && is_same(e->pc, w->pc, w->n))
			return (uint32_t)v;
	}
	return 0;
}

/*
 * The further indexes are for programs with more stacks than most: they get their space when needed.
 *
 * Threads may commit the same space twice; it is theirs either way.
 */
static bool has_index(struct arena_head *a, _Atomic uint32_t *is_there, _Atomic uint64_t *index,
		      uint32_t slots)
{
	if (likely(atomic_load_explicit(is_there, memory_order_relaxed)))
		return true;
	if (guest_commit(a, (uint64_t)((char *)index - (char *)a), slots * sizeof(uint64_t)) < 0)
		return false;
	atomic_store(is_there, 1);
	return true;
}

/* The tag is the upper half of the hash with bit 0 set, so that a slot in use is never 0; the
 * indexes are addressed by different bits of it. */
uint32_t guest_intern(const uint64_t *pc, uint32_t n, void (*fresh)(uint32_t id, void *arg),
		      void *arg)
{
	struct arena_head *a = guest.arena;
	uint64_t h = hash_pcs(pc, n);
	struct interning w = {pc, n, (uint32_t)(h >> 32) | 1, 0, false, fresh, arg};
	_Atomic uint64_t *more = arena_more_index(a), *third = arena_third_index(a);
	uint32_t id = find_or_put(a, &w, arena_stack_index(a), ARENA_STACK_SLOTS - 1, (uint32_t)h,
				  FIRST_PROBES);

	if (likely(id) || w.no_room || !has_index(a, &a->has_more, more, ARENA_MORE_SLOTS))
		return id;
	id = find_or_put(a, &w, more, ARENA_MORE_SLOTS - 1, (uint32_t)(h >> 16), MORE_PROBES);
	if (likely(id) || w.no_room || a->stack_bytes != ARENA_LARGE_STACKS ||
	    !has_index(a, &a->has_third, third, ARENA_THIRD_SLOTS))
		return id;
	return find_or_put(a, &w, third, ARENA_THIRD_SLOTS - 1, (uint32_t)(h >> 24), MORE_PROBES);
}

uint32_t guest_intern_stack(const uint64_t *words, uint32_t n)
{
	uint64_t part[STACK_CHUNK + 1];
	uint32_t id = 0;

	if (n <= STACK_CHUNK)
		return guest_intern(words, n, NULL, NULL);
	while (n) {
		uint32_t some = n > STACK_CHUNK ? STACK_CHUNK : n;
		n -= some;
		memcpy(part, words + n, some * sizeof(part[0]));
		part[some] = STACK_REST | id;
		id = guest_intern(part, some + (id != 0), NULL, NULL);
		if (!id)
			return 0;
	}
	return id;
}

bool guest_is_interned(uint32_t id, const uint64_t *words, uint32_t n)
{
	struct arena_head *a = guest.arena;
	uint64_t end = (uint64_t)id * 8 + sizeof(struct stack_entry) + (uint64_t)n * 8;

	if (!id || end > atomic_load_explicit(&a->stack_committed, memory_order_relaxed))
		return false;
	const struct stack_entry *e = arena_stack(a, id);
	return e->depth == n && is_same(e->pc, words, n);
}

#define SMALL_DEPTH 64
#define MIDDLE_DEPTH 256
#define WALK_STACK 6144u /* beside the addresses: rules, paths, Python names (gcc -fstack-usage) */

/* Where the program's own code is; a thread that has found it says so by the end. */
static _Atomic uint64_t program_start, program_end;

static void find_program(struct native_program *out)
{
	struct native_object o;

	out->end = atomic_load_explicit(&program_end, memory_order_acquire);
	out->start = atomic_load_explicit(&program_start, memory_order_relaxed);
	if (likely(out->end) || !native_object_find(getauxval(AT_ENTRY), &o))
		return;
	out->start = o.code;
	out->end = o.code_end;
	atomic_store_explicit(&program_start, o.code, memory_order_relaxed);
	atomic_store_explicit(&program_end, o.code_end, memory_order_release);
}

/*
 * Behind the frames that were asked for, if none of them is of the program itself: those of it that
 * are. Where Python runs, the program is its interpreter.
 */
static uint32_t capture_native(uint64_t *out, uint32_t depth, uint64_t caller)
{
	struct native_program p = {0};

	if (!guest_has_python())
		find_program(&p);
	uint32_t n = native_capture_program(out, depth, &p, caller, report_module, NULL);
	if (!p.n)
		return n;
	if (p.left_out)
		out[n++] = STACK_CUT;
	memcpy(out + n, p.pc, p.n * sizeof(*p.pc));
	return n + p.n;
}

/* Three sizes of buffer: threads and fibers with small stacks must not overflow in a hook. */
#define CAPTURE(name, size)                                                                        \
	static __attribute__((noinline)) uint32_t name(uint64_t caller, uint32_t depth,            \
						       uint32_t py_depth)                          \
	{                                                                                          \
		uint64_t pc[size + STACK_CUT_WORDS];                                               \
		uint32_t n = depth ? capture_native(pc, depth, caller) : 0;                        \
		n += guest_python(pc + n, py_depth);                                               \
		n = n < ARENA_MAX_DEPTH ? n : ARENA_MAX_DEPTH;                                     \
		return n ? guest_intern_stack(pc, n) : NOTHING;                                    \
	}

#define NOTHING UINT32_MAX /* there is no stack, which is no loss */

CAPTURE(capture_small, SMALL_DEPTH)
CAPTURE(capture_middle, MIDDLE_DEPTH)
CAPTURE(capture_deep, ARENA_MAX_DEPTH)

uint32_t guest_frames(uint64_t *out, uint32_t max, uint64_t caller)
{
	return native_capture(out, max, caller, report_module, NULL);
}

void guest_lost_stack(void)
{
	atomic_fetch_add_explicit(&guest.arena->lost_stacks, 1, memory_order_relaxed);
}

#define OWN_STEP 4096u /* two stacks do not share this much */
#define OWN_MOST 65536u

/* A signal may come between any two stores: an empty part has no address. */
static void keep_own_stack(uint64_t sp, uint64_t end)
{
	volatile struct guest_thread *t = &guest_self;
	uint64_t lo = sp - sp % OWN_STEP;

	t->own_bytes = 0;
	t->own_lo = lo;
	t->own_bytes = end - lo < OWN_MOST ? end - lo : OWN_MOST;
}

/*
 * An address near the thread's own stack may be of an alternate one beside it: the kernel knows. Fibers
 * are believed to have room: nobody can say how much. In a sealed process nobody can ask.
 */
bool guest_has_stack_slow(uint64_t sp, uint32_t bytes)
{
	uint64_t end = native_own_stack_end(sp);
	stack_t alt;

	if (guest_is_sealed() || syscall(SYS_sigaltstack, NULL, &alt) < 0)
		return end;
	if (alt.ss_flags & SS_ONSTACK)
		return sp - (uint64_t)alt.ss_sp >= bytes;
	if (end)
		keep_own_stack(sp, end);
	return true;
}

uint32_t guest_stack(uint64_t caller)
{
	return guest_stack_depth(caller, guest.c_depth, guest.py_depth);
}

/* A thread pool of the job may have stacks of 64 KiB, a fiber 16: the buffer for the addresses
 * is as small as the depth allows, in a frame of its own that is there only meanwhile. */
uint32_t guest_stack_depth(uint64_t caller, uint32_t depth, uint32_t py_depth)
{
	if (!(depth | py_depth) || !guest.arena)
		return 0;
	int saved = errno;
	uint32_t id;
	if (depth > ARENA_MAX_DEPTH)
		depth = ARENA_MAX_DEPTH;
	if (py_depth > ARENA_MAX_DEPTH - depth)
		py_depth = ARENA_MAX_DEPTH - depth;
	if (!guest_has_stack((depth + py_depth + STACK_CUT_WORDS) * 8 + WALK_STACK))
		id = 0;
	else if (depth + py_depth <= SMALL_DEPTH)
		id = capture_small(caller, depth, py_depth);
	else if (depth + py_depth <= MIDDLE_DEPTH)
		id = capture_middle(caller, depth, py_depth);
	else
		id = capture_deep(caller, depth, py_depth);
	errno = saved;
	if (id == NOTHING && !depth)
		return 0;
	if (!id || id == NOTHING) {
		guest_lost_stack();
		return 0;
	}
	return id;
}
