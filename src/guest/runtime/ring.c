/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The slow half of the ring producer: a thread's first event, the next segment, a full budget.
 * Everything here may make system calls; nothing here may wait longer than the session allows.
 *
 *	guest_reserve_slow()            guest_hold_slow()
 *	   |  signals blocked, `busy` set (slow_enter)
 *	   |  reservations that longjmp() left are dropped (forget_abandoned)
 *	   v
 *	thread_ready()      process joined? this thread's cursors of this epoch?
 *	   v
 *	cursor_open()       a ring: inherited from a thread that ended, else a new one
 *	   v
 *	seg_next()          a segment: a free one, else new file space, else a bounded wait
 *
 * Invariants:
 *   - a cursor is published to the fast path by setting t->epoch, last;
 *   - a ring has one owner at a time: `owner` changes by compare-and-swap only;
 *   - a segment is written by the owner of its ring alone, and not any more once `next` is set;
 *   - no job's signal handler runs here, so none can enter twice or leave by longjmp(). The handler
 *     of a fault of our own (busy is set) finds that out and drops its event.
 */
#include "guest/runtime/guest.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SEGS_PER_COMMIT 16 /* 1 MiB of file space at a time */
#define RECORDER_DEAD_NS 3000000000ull
#define WAIT_STEP_NS 200000
/* No handler runs closer to what it interrupted: the kernel saves the registers between them. */
#define SIGNAL_FRAME_BYTES 512

__thread struct guest_thread guest_self __attribute__((tls_model("initial-exec")));

_Atomic uint64_t guest_lost_early;

void guest_lost(uint64_t n)
{
	if (guest.arena)
		atomic_fetch_add_explicit(&guest.arena->lost_events, n, memory_order_relaxed);
}

/* tgkill() with signal 0: is there such a thread in our process? A number that the kernel has
 * given to another thread of ours counts as alive, and its ring is left alone until that one
 * ends, too. */
static bool thread_is_gone(uint32_t pid, uint32_t tid)
{
	/* UINT32_MAX: given up by a thread that got no segment for it */
	return tid == UINT32_MAX || (guest_syscall(SYS_tgkill, pid, tid, 0) < 0 && errno == ESRCH);
}

/*
 * A ring of a thread that ended, or one that the kernel gave the same number as ours: its owner
 * is gone either way. A few are looked at per call, from a moving start, so that ten thousand
 * short threads share a handful of rings and ten thousand living ones do not cost a scan each.
 */
static struct ring *ring_inherit(struct arena_head *a, uint32_t tid, uint32_t level)
{
	static _Atomic uint32_t start;
	uint32_t n = atomic_load_explicit(&a->nrings, memory_order_acquire);

	if (!n)
		return NULL;
	uint32_t at = atomic_fetch_add_explicit(&start, 1, memory_order_relaxed);
	for (uint32_t i = 0; i < 8 && i < n; i++) {
		struct ring *r = arena_ring(a, (at + i) % n);
		uint32_t owner = atomic_load_explicit(&r->owner, memory_order_acquire);
		if (!owner || r->level != level)
			continue;
		if (owner != tid && !thread_is_gone(a->pid, owner))
			continue;
		if (atomic_compare_exchange_strong(&r->owner, &owner, tid))
			return r;
	}
	return NULL;
}

/* The number is claimed by compare-and-swap; the ring behind it is visible to the recorder from
 * then on, with owner 0, which it passes over until the release store. */
static struct ring *ring_make(struct arena_head *a, uint32_t tid, uint32_t level)
{
	uint32_t i = atomic_load_explicit(&a->nrings, memory_order_relaxed);

	do {
		if (i >= a->max_rings)
			return NULL;
	} while (!atomic_compare_exchange_weak(&a->nrings, &i, i + 1));
	struct ring *r = arena_ring(a, i);
	r->level = level;
	atomic_store_explicit(&r->owner, tid, memory_order_release);
	return r;
}

/*
 * A free segment with file space behind it; -1: none. From the lowest number on: segments that were
 * used a moment ago are still in the cache, and a job with few events stays within its first MiB.
 * The compare-and-swap pairs with the recorder's store of 0, which comes after it has written all
 * that was in there.
 */
static int seg_take(struct arena_head *a)
{
	for (;;) {
		uint32_t n = atomic_load_explicit(&a->nsegs, memory_order_acquire);
		for (uint32_t i = 0; i < n; i++) {
			uint32_t idle = 0;
			if (atomic_load_explicit(arena_seg_state(a, i), memory_order_relaxed))
				continue;
			if (atomic_compare_exchange_strong(arena_seg_state(a, i), &idle, 1))
				return (int)i;
		}
		if (n >= a->max_segs)
			return -1;
		uint32_t more = n + SEGS_PER_COMMIT;
		if (more > a->max_segs)
			more = a->max_segs;
		if (guest_commit(a, ARENA_OFF_SEGS + (uint64_t)n * ARENA_SEG_SIZE,
				 (uint64_t)(more - n) * ARENA_SEG_SIZE) < 0)
			return -1;
		/* Another thread may have grown it meanwhile; then its segments are tried next. */
		atomic_compare_exchange_strong(&a->nsegs, &n, more);
	}
}

/*
 * Waits for the recorder to give a segment back, as long as the session allows and it lives.
 *
 * The budget of the session is spent. A recorder that has not beaten for three seconds is dead or
 * stopped: then nobody waits for it, and events are counted as lost.
 */
static int seg_wait(struct arena_head *a)
{
	uint64_t until;

	if (guest_is_sealed())
		return -1;
	until = guest_now() + (uint64_t)guest.page->wait_ms * 1000000u;
	for (uint64_t now = guest_now(); now < until; now = guest_now()) {
		if (now > atomic_load(&guest.page->heartbeat_ns) + RECORDER_DEAD_NS)
			return -1;
		guest_sleep(WAIT_STEP_NS);
		int i = seg_take(a);
		if (i >= 0)
			return i;
	}
	return -1;
}

/*
 * A segment from the free ones, or after a wait. While the budget is spent, one look per tick of
 * the coarse clock is enough: everything else of that tick is dropped at once.
 */
static _Atomic uint64_t full_tick;

static bool budget_is_spent(void)
{
	return atomic_load_explicit(&full_tick, memory_order_relaxed) == guest_now_coarse();
}

/*
 * `full_tick` is the tick of the coarse clock (4 ms) in which a look was in vain. All other events
 * of that tick, of all threads, are dropped without a system call: a job that is faster than its
 * recorder must not spend its time on finding that out.
 */
static int seg_get(struct arena_head *a)
{
	if (budget_is_spent())
		return -1;
	int i = seg_take(a);
	if (i < 0)
		i = seg_wait(a);
	if (i < 0)
		atomic_store_explicit(&full_tick, guest_now_coarse(), memory_order_relaxed);
	return i;
}

/* In this order: a signal handler in between, where signals cannot be blocked, finds no room. */
static void point_cursor(struct guest_cursor *c, struct seg *s, char *pos)
{
	c->end = NULL;
	atomic_signal_fence(memory_order_seq_cst);
	c->seg = s;
	c->pos = pos;
	atomic_signal_fence(memory_order_seq_cst);
	c->end = (char *)s + ARENA_SEG_SIZE;
}

/*
 * Chains a fresh segment to the ring and points the cursor at it. In this order, each with release:
 * the segment's own header (an empty segment of this ring, with its number in the chain); then the
 * link from its predecessor, or from the ring, by which the recorder gets there; then last_seg,
 * which a thread that inherits the ring needs.
 */
static bool seg_next(struct guest_cursor *c)
{
	struct arena_head *a = guest.arena;
	struct ring *r = c->ring;

	/* The process may have moved to another arena just now: the ring is of the former one. */
	if (r < arena_ring(a, 0) || r >= arena_ring(a, a->max_rings))
		return false;
	int i = seg_get(a);
	if (i < 0)
		return false;
	struct seg *s = arena_seg(a, (uint32_t)i);
	/*
	 * All that its last user wrote lies before what that one published. The recorder, which
	 * gave it back, knows; a thread sanitizer does not see another process.
	 */
	(void)atomic_load_explicit(&s->used, memory_order_acquire);
	s->ring = (uint32_t)(r - arena_ring(a, 0));
	s->seq = r->next_seq++;
	atomic_store_explicit(&s->next, 0, memory_order_relaxed);
	atomic_store_explicit(&s->used, sizeof(*s), memory_order_release);
	if (c->seg)
		atomic_store_explicit(&c->seg->next, (uint32_t)i + 1, memory_order_release);
	else
		atomic_store_explicit(&r->first_seg, (uint32_t)i + 1, memory_order_release);
	atomic_store_explicit(&r->last_seg, (uint32_t)i + 1, memory_order_release);
	point_cursor(c, s, (char *)(s + 1));
	return true;
}

/*
 * Says whose records follow; the room for it was made by the caller.
 *
 * A reader that comes to a ring in the middle of its life has the thread from the last such record,
 * or from the recording.
 */
static void write_thread_record(struct guest_thread *t, struct guest_cursor *c, uint32_t level)
{
	struct rec_thread *r = (struct rec_thread *)c->pos;

	*r = (struct rec_thread){
		.head = {.type = REC_THREAD, .size = sizeof(*r)},
		.tid = t->tid,
		.level = level,
	};
	r->head.time_ns = guest_is_sealed() ? guest_now_coarse() : guest_now();
	c->pos += sizeof(*r);
	atomic_store_explicit(&c->seg->used, (uint32_t)(c->pos - (char *)c->seg),
			      memory_order_release);
}

/* A ring for this thread and level, with room for the record that says whose it is. A thread that
 * gets a ring and no segment marks the ring as given up, so that the next one may have it. */
static bool cursor_open(struct guest_thread *t, struct arena_head *a, uint32_t level)
{
	struct guest_cursor *c = &t->cur[level];
	struct ring *r = ring_inherit(a, t->tid, level);

	*c = (struct guest_cursor){0};
	if (!r)
		r = ring_make(a, t->tid, level);
	if (!r)
		return false;
	c->ring = r;
	atomic_store_explicit(&r->pending_ns, 0, memory_order_relaxed);
	uint32_t last = atomic_load_explicit(&r->last_seg, memory_order_acquire);
	if (last) {
		/* The dead owner's last segment: what it did not publish is not there. */
		struct seg *s = arena_seg(a, last - 1);
		uint32_t used = atomic_load_explicit(&s->used, memory_order_acquire);
		point_cursor(c, s, (char *)s + used);
	}
	if (c->end - c->pos < (ptrdiff_t)sizeof(struct rec_thread) && !seg_next(c)) {
		atomic_store_explicit(&r->owner, UINT32_MAX, memory_order_release);
		*c = (struct guest_cursor){0};
		return false;
	}
	write_thread_record(t, c, level);
	return true;
}

/*
 * The process has moved (guest_move()), and this thread finds that out at its next event. Its ring
 * in the former arena may still hold back that arena's recorder, and only this thread can end that.
 *
 *	the thread is                      what happens to its hold there
 *	between two hooks                  there is none
 *	inside a hook, before reserve      ends there, begins in the new arena (out_held): otherwise
 *	                                   it would publish something that nobody waits for
 *	inside a hook, after reserve       stays: this is a signal handler inside that hook. False:
 *	                                   the handler's event is dropped, the hook publishes first
 */
static bool leave_former(struct guest_thread *t, uint64_t *out_held)
{
	for (int i = 0; i < GUEST_LEVELS; i++) {
		struct ring *r = t->cur[i].ring;
		/* Where that was may be another arena by now, and the ring another thread's. */
		if (!r || !guest_has_just_left(r) || atomic_load(&r->owner) != t->tid)
			continue;
		if (t->level)
			return false;
		if (i == 0)
			*out_held = atomic_load_explicit(&r->pending_ns, memory_order_relaxed);
		atomic_store_explicit(&r->pending_ns, 0, memory_order_release);
	}
	return true;
}

/*
 * Attaches thread and process as needed; the epoch is set only when cursor 0 stands. It is that of
 * the arena (a->epoch), not the global one: while the process moves, the next arena can be seen
 * before the epoch that goes with it. After the hold has been carried over, the arena is checked
 * once more behind a full fence: either the mover's wait_for_hooks() sees our hold, or we see that
 * it has moved on again, and start over.
 */
static bool thread_ready(struct guest_thread *t)
{
	uint32_t epoch = guest_epoch_now();

	if (epoch && epoch != UINT32_MAX && t->epoch == epoch)
		return true;
	if (guest_attach() < GUEST_SHADOW || guest_epoch_now() == GUEST_EPOCH_EXIT)
		return false;
	atomic_thread_fence(memory_order_acquire); /* the arena is that of this epoch, or younger */
	struct arena_head *a = guest.arena;
	uint32_t tid = guest_tid();
	uint64_t held = 0;
	epoch = atomic_load(&a->epoch);
	/* A forked child has its parent's, which are not its own to end. */
	if (tid == t->tid && (t->epoch == epoch || !leave_former(t, &held)))
		return t->epoch == epoch;
	t->tid = tid;
	for (int i = 0; i < GUEST_LEVELS; i++)
		t->cur[i] = (struct guest_cursor){0};
	t->level = 0;
	if (!cursor_open(t, a, 0))
		return false;
	if (held)
		atomic_store_explicit(&t->cur[0].ring->pending_ns, held, memory_order_relaxed);
	t->epoch = epoch;
	/* Who leaves this one either sees the hold, or has left it by now. */
	atomic_thread_fence(memory_order_seq_cst);
	return guest.arena == a || thread_ready(t);
}

/* The cursor of this level; in the arena where the others are. */
static bool cursor_stands(struct guest_thread *t)
{
	struct arena_head *a = guest.arena;

	return t->cur[t->level].ring ||
	       (atomic_load(&a->epoch) == t->epoch && cursor_open(t, a, t->level));
}

/* Also counts the level up, as the fast path does: guest_publish() counts it down. */
static char *reserve_room(struct guest_thread *t, uint32_t size)
{
	if (!thread_ready(t) || t->level >= GUEST_LEVELS)
		return NULL;
	struct guest_cursor *c = &t->cur[t->level];
	if (!cursor_stands(t))
		return NULL;
	if (c->end - c->pos < (ptrdiff_t)size && !seg_next(c))
		return NULL;
	t->level++;
	return c->pos;
}

/*
 * Reservations whose hook is gone, because a signal handler left it by longjmp(): every frame that
 * is still there lies above the hook that calls now, by more than a signal frame. Two hooks that
 * are called by the same function do not. On an alternate signal stack addresses cannot be
 * compared, but nothing has left it yet.
 */
static void forget_abandoned(struct guest_thread *t, uint64_t sp)
{
	stack_t alt;

	if (!t->level || guest_is_sealed() || sigaltstack(NULL, &alt) < 0 ||
	    (alt.ss_flags & SS_ONSTACK))
		return;
	while (t->level) {
		uint32_t top = t->level < GUEST_LEVELS ? t->level - 1 : GUEST_LEVELS - 1;
		uint64_t at = t->sp[top], base = (uint64_t)alt.ss_sp;
		bool on_alt = !(alt.ss_flags & SS_DISABLE) && at >= base && at < base + alt.ss_size;
		if (at > sp + SIGNAL_FRAME_BYTES && !on_alt)
			break;
		t->level = top;
		if (t->cur[top].ring)
			atomic_store_explicit(&t->cur[top].ring->pending_ns, 0,
					      memory_order_relaxed);
	}
}

/* The slow paths: entered with signals blocked, left with errno as it was. */
struct slow {
	uint64_t signals;
	int saved_errno;
};

/* `busy` is for faults: a SIGSEGV handler of the job that runs because our own code faulted must
 * not come here again. Other signals are blocked. */
static bool slow_enter(struct guest_thread *t, struct slow *s)
{
	if (t->busy)
		return false;
	s->saved_errno = errno;
	guest_enter_calls();
	guest_block_signals(&s->signals);
	t->busy = 1;
	atomic_signal_fence(memory_order_seq_cst);
	return true;
}

static void slow_leave(struct guest_thread *t, const struct slow *s)
{
	atomic_signal_fence(memory_order_seq_cst);
	t->busy = 0;
	guest_restore_signals(&s->signals);
	guest_leave_calls();
	errno = s->saved_errno;
}

bool guest_hold_slow(struct guest_thread *t, uint64_t ns)
{
	struct slow slow;
	bool held = false;

	if (t->level >= GUEST_LEVELS || budget_is_spent() || !guest_has_stack(GUEST_SLOW_STACK) ||
	    !slow_enter(t, &slow))
		return false;
	if (thread_ready(t) && t->level < GUEST_LEVELS && cursor_stands(t)) {
		struct guest_cursor *c = &t->cur[t->level];
		held = !atomic_load_explicit(&c->ring->pending_ns, memory_order_relaxed);
		if (held && c->end - c->pos < GUEST_ROOM)
			seg_next(c); /* without one the event itself will be dropped */
		if (held)
			atomic_store_explicit(&c->ring->pending_ns, ns, memory_order_relaxed);
	}
	slow_leave(t, &slow);
	guest_bring_package(false);
	return held;
}

/* A hold that has come along is this one: nobody else was inside a hook. */
bool guest_hold_again(struct guest_thread *t, struct ring *former, uint64_t ns)
{
	atomic_store_explicit(&former->pending_ns, 0, memory_order_release);
	guest_unhold(true);
	return guest_hold_slow(t, ns);
}

char *guest_reserve_slow(struct guest_thread *t, uint32_t size, uint64_t sp)
{
	struct slow slow;
	char *p = NULL;

	if (!budget_is_spent() && guest_has_stack(GUEST_SLOW_STACK) && slow_enter(t, &slow)) {
		forget_abandoned(t, sp);
		p = reserve_room(t, size);
		if (p)
			t->sp[t->level - 1] = sp;
		slow_leave(t, &slow);
	}
	if (!p)
		guest_lost(1);
	return p;
}
