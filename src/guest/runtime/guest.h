/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The runtime inside somebody else's process: gets a hook's record into the ring of its thread.
 *
 *	rec = guest_reserve(size);	the fast path: two compares, no system call
 *	if (rec) {
 *		fill *rec in place
 *		guest_publish(size);
 *	}
 *
 * Rules of this folder: no heap, no locks, no stdio, no exit. What fails is counted and dropped.
 * Any thread at any time, signal handlers included; errno is preserved.
 *
 * The files: process.c joins the recording and leaves it; ring.c gives threads their rings and
 * segments; stacks.c interns call stacks, python.c adds Python's frames; arena.c and session.c make
 * the two shared files; spawn.c starts a recorder; env.c reads the environment, once; exit.c is the
 * library's beginning and the process' end; import_package.c brings our Python package in;
 * sealed.c does without system calls where the job has limited its own; mappings.c knows what memory
 * is ours.
 *
 * The epoch
 * ---------
 * One word decides whether what a thread has cached (its ring, its segment) is still true. Every
 * fast path compares it with the thread's own copy, and goes the slow way when they differ:
 *
 *	*guest_epoch      meaning                                  who sets it
 *	UINT32_MAX        nobody has joined yet (`never`)          initial value, no thread has it
 *	0                 this is a forked child                   the kernel: the page is marked
 *	                                                           MADV_WIPEONFORK
 *	1, 2, 3 …         joined; an arena has the same number     join, or a move to another arena
 *	GUEST_EPOCH_EXIT  exit() is under way: stay at the gate    guest_close_gate()
 *
 *	fork      the child's word is 0: its first event joins the recording under its own pid with
 *	          an arena of its own. No atfork handler is needed, and raw clone() works too.
 *	vfork     the memory is shared, wiped nowhere: the child writes as its parent. The arena
 *	          must not be named after it (guest_owner_pid()).
 *	exec      a new image: the library is loaded anew, knows nothing, and makes another arena.
 *	          The old file stays until the recorder has read it; names are never used twice.
 *	move      guest_move(): page and arena are replaced while threads run, see process.c.
 *
 * Orders: guest_epoch is loaded with acquire (it is set once, after the page behind it is ready);
 * the word itself relaxed, on every event. A thread that still sees the old number writes once more
 * into the old arena, which stays mapped and is read to its end. In the slow path an acquire fence
 * stands between the new number and the arena that goes with it.
 *
 * Levels
 * ------
 * A signal handler may hit a hook while its thread is inside one, between reserve and publish. It
 * must not touch the same cursor: `level` counts the reservations that are open, and each level has
 * a ring of its own. The handler's stores need no fence that a processor would execute: it runs in
 * the same thread, so atomic_signal_fence() (for the compiler) is enough.
 */
#ifndef SONDE_GUEST_RUNTIME_GUEST_H
#define SONDE_GUEST_RUNTIME_GUEST_H

#include "wire/control_page.h"
#include "wire/record.h"
#include "wire/ring.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

#define GUEST_EPOCH_EXIT (UINT32_MAX - 1) /* exit() is under way: no thread carries it either */

/* Signal handlers that hit a hook inside a hook write to a ring of their own: two levels. */
#define GUEST_LEVELS 2

/* Where a thread writes. Valid while the thread's epoch is the current one. Written by the thread
 * alone, with the signal handlers that interrupt it in mind: `ring` is read once and checked again
 * where a handler may have taken the thread to another arena (guest_hold()). */
struct guest_cursor {
	char *pos; /* next free byte of the segment */
	char *end;
	struct seg *seg;
	struct ring *ring;
};

/*
 * What a thread keeps, in thread-local storage that the loader reserves at start (initial-exec): no
 * call, no allocation, usable in a signal handler. A thread that never has an event costs these
 * zero bytes. Written by its thread alone; nobody else reads it.
 */
struct guest_thread {
	uint32_t epoch; /* the cursors are valid while this equals *guest_epoch */
	uint32_t level; /* reservations open right now */
	uint32_t busy; /* in the slow path: a nested event (of a fault's handler) is dropped */
	uint32_t tid;
	uint64_t sp[GUEST_LEVELS]; /* stack pointer of each open reservation */
	uint64_t own_lo, own_bytes; /* a part of the thread's own stack: there is room below */
	uint64_t launch_ns; /* when the kernel launch in progress was entered, else 0 */
	uint64_t launch_sp; /* of its hook: a later one that is not deeper was jumped to */
	struct guest_cursor cur[GUEST_LEVELS];
};

enum guest_mode {
	GUEST_NEW = 0, /* no event seen yet */
	GUEST_OFF = 1, /* not recorded: no session, or it could not be joined */
	GUEST_SHADOW = 2, /* not tracing: allocations are followed, nothing else */
	GUEST_RECORD = 3,
};

/* Process-wide state; written in the slow path only. Hooks read the atomic words relaxed: a change
 * of what is wanted takes effect with the next event, and no two words have to agree. */
struct guest_state {
	_Atomic uint32_t mode; /* enum guest_mode */
	_Atomic uint32_t want; /* enum session_want */
	_Atomic uint32_t c_depth, py_depth;
	bool configured; /* by the program itself: */
	struct rec_settings settings;
	char output_dir[REC_MAX_TEXT]; /* empty: as the recording has it */
	struct control_page *_Atomic page; /* these two change when the process moves */
	struct arena_head *_Atomic arena;
};

extern struct guest_state guest;
/* Points to a word that no thread's epoch equals, until the process has joined. */
extern _Atomic uint32_t *_Atomic guest_epoch;
extern __thread struct guest_thread guest_self __attribute__((tls_model("initial-exec")));

static inline uint32_t guest_epoch_now(void)
{
	return atomic_load_explicit(atomic_load_explicit(&guest_epoch, memory_order_acquire),
				    memory_order_relaxed);
}

static inline uint64_t guest_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Four milliseconds behind at worst, and four times cheaper. */
static inline uint64_t guest_now_coarse(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Since 1970: the clock of activities. */
static inline uint64_t guest_wall_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* --- a process that has limited its own system calls: sealed.c --- */

extern _Atomic uint32_t guest_sealed __asm__("sonde_guest_sealed")
	__attribute__((visibility("default")));

static inline bool guest_is_sealed(void)
{
	return unlikely(atomic_load_explicit(&guest_sealed, memory_order_relaxed));
}

/* syscall(), which a sealed process is refused: what fails is counted, what is not made does not
 * kill. */
#define guest_syscall(...) (guest_is_sealed() ? (errno = EPERM, -1L) : syscall(__VA_ARGS__))

/* A raw system call: the C library's would be a point at which threads are cancelled. Does not
 * sleep in a sealed process: a loop around it needs another end. */
static inline void guest_sleep(long ns)
{
	struct timespec t = {0, ns};

	if (!guest_is_sealed())
		syscall(SYS_nanosleep, &t, NULL);
}

/*
 * Around the job's own system call: what needs system calls is done before it, and none is made
 * after it. all_threads: it counts for threads that run already, too. no_clock: nor may this thread
 * read the clock. True: this call has sealed it, and if the job's fails it is unsealed.
 */
bool guest_seal(bool all_threads, bool no_clock);
void guest_unseal(void);
/* Around slow paths, which guest_seal() waits for. */
void guest_enter_calls(void);
void guest_leave_calls(void);
/* Of this thread; in a sealed process as the C library knows it. */
uint32_t guest_tid(void);

/* The mode, after joining the recording if this is the first question of the process. */
uint32_t guest_mode_slow(void);

/* The relaxed load is the whole cost of a hook in a process that is not recorded. The second
 * condition catches a forked child: its copy of guest.mode is its parent's, but its epoch is 0. */
static inline uint32_t guest_mode(void)
{
	uint32_t mode = atomic_load_explicit(&guest.mode, memory_order_relaxed);

	if (unlikely(mode == GUEST_NEW || guest_epoch_now() == 0))
		return guest_mode_slow();
	return mode;
}

/* One word for everything that can be asked for: a hook tests a bit. */
static inline bool guest_wants(uint32_t bits)
{
	return guest_mode() == GUEST_RECORD &&
	       (atomic_load_explicit(&guest.want, memory_order_relaxed) & bits);
}

/* Of the function that this is inlined into. */
static inline uint64_t guest_sp(void)
{
	uint64_t sp;

#if defined(__x86_64__)
	__asm__("mov %%rsp, %0" : "=r"(sp));
#elif defined(__aarch64__)
	__asm__("mov %0, sp" : "=r"(sp));
#else
	sp = (uint64_t)__builtin_frame_address(0);
#endif
	return sp;
}

/*
 * Slow parts of guest_reserve(): attach, next segment, wait, drop. NULL: the event is lost. sp is
 * that of the hook: a reservation of a frame that is not above it any more was left by longjmp().
 */
char *guest_reserve_slow(struct guest_thread *t, uint32_t size, uint64_t sp);

/*
 * Room for one record of `size` bytes in this thread's ring, or NULL when it must be dropped (then
 * it has been counted). Every success is followed by guest_publish() of the same size.
 *
 * Two compares: the epoch (with the level in the same branch), and the room in the segment. The
 * record is filled in place, in memory that the recorder does not read before `used` covers it.
 * The stack pointer is noted so that a reservation that was left by longjmp() can be recognised.
 */
static inline void *guest_reserve(uint32_t size)
{
	struct guest_thread *t = &guest_self;
	uint32_t level = t->level;

	if (unlikely(level >= GUEST_LEVELS || t->epoch != guest_epoch_now()))
		return guest_reserve_slow(t, size, guest_sp());
	t->sp[level] = guest_sp();
	t->level = level + 1;
	/* A signal from here on sees the higher level and stays out of our cursor. */
	atomic_signal_fence(memory_order_seq_cst);
	struct guest_cursor *c = &t->cur[level];
	if (unlikely(c->end - c->pos < (ptrdiff_t)size)) {
		t->level = level;
		return guest_reserve_slow(t, size, t->sp[level]);
	}
	return c->pos;
}

/* Counts `n` events that could not be written; before there is an arena, for the one to come. */
void guest_lost(uint64_t n);
extern _Atomic uint64_t guest_lost_early;

/* The release store makes the record and everything before it visible to a reader that sees `used`.
 * After it the record survives anything that happens to the process. */
static inline void guest_publish(uint32_t size)
{
	struct guest_thread *t = &guest_self;

	if (unlikely(!t->level))
		return; /* a child forked inside this hook joined anew: the record is its parent's
			 */
	struct guest_cursor *c = &t->cur[t->level - 1];
	/* Fibers that switch inside a hook share a cursor: their records may be lost, never more.
	 */
	if (unlikely(c->end - c->pos < (ptrdiff_t)size)) {
		t->level--;
		guest_lost(1);
		return;
	}
	c->pos += size;
	atomic_store_explicit(&c->seg->used, (uint32_t)(c->pos - (char *)c->seg),
			      memory_order_release);
	atomic_signal_fence(memory_order_seq_cst);
	t->level--;
}

/*
 * Are there so many bytes below us on the stack? Signal handlers may run on one of 4 KiB, most of
 * which the kernel has taken; there is no page to fault on below it. Asks the kernel, unless this is
 * known to be the thread's own stack.
 */
bool guest_has_stack_slow(uint64_t sp, uint32_t bytes);
static inline bool guest_has_stack(uint32_t bytes)
{
	uint64_t sp = guest_sp();

	return likely(sp - guest_self.own_lo < guest_self.own_bytes) ||
	       guest_has_stack_slow(sp, bytes);
}
/* What the slow paths take of it, and joining (gcc -fstack-usage: 550 and 11 KiB). */
#define GUEST_SLOW_STACK 640u
#define GUEST_JOIN_STACK 16384u

/* Room that a hold makes sure of: for any record without text. */
#define GUEST_ROOM 96

/*
 * The thread's first event: it gets its ring before the clock is read, or others overtake it. And a
 * full segment: who waits for room while it holds back the recorder waits for itself.
 */
bool guest_hold_slow(struct guest_thread *t, uint64_t ns);
/* What was held is a ring of the former arena by now. */
bool guest_hold_again(struct guest_thread *t, struct ring *former, uint64_t ns);

/*
 * Between guest_hold() and guest_unhold() the recorder does not overtake the time that is about to
 * be written: `ns` if it is known already, RING_PENDING_NOW before reading the clock. Nests: the
 * outermost wins, being the earliest. Returns whether this call took the hold.
 *
 * The store is relaxed: no fence stands between it and the clock. The recorder instead lags a tenth
 * of a millisecond behind the clock, longer than a store needs to become visible. Giving the hold
 * back is a release: who sees 0 sees the record that was published before.
 *
 * It also makes sure of room for the record (GUEST_ROOM). A thread that had to wait for a segment
 * inside a hold would wait for the recorder, which waits for the hold.
 */
static inline bool guest_hold(uint64_t ns)
{
	struct guest_thread *t = &guest_self;
	struct guest_cursor *c = &t->cur[t->level < GUEST_LEVELS ? t->level : 0];

	if (unlikely(t->level >= GUEST_LEVELS || t->epoch != guest_epoch_now() ||
		     c->end - c->pos < GUEST_ROOM))
		return guest_hold_slow(t, ns);
	/* A signal handler may have taken this thread to another arena just now, or to none. */
	struct ring *ring = c->ring;
	if (unlikely(!ring || atomic_load_explicit(&ring->pending_ns, memory_order_relaxed)))
		return false;
	atomic_store_explicit(&ring->pending_ns, ns, memory_order_relaxed);
	atomic_signal_fence(memory_order_seq_cst);
	return likely(c->ring == ring) || guest_hold_again(t, ring, ns);
}

/*
 * The time of what is held is known by now.
 *
 * A free is held before the real call and its time is read then: the hold is narrowed from "now" to
 * that time, so that the recorder may go on up to it while the driver works.
 */
static inline void guest_hold_at(bool held, uint64_t ns)
{
	struct guest_thread *t = &guest_self;

	if (likely(held) && likely(t->level < GUEST_LEVELS) && likely(t->cur[t->level].ring))
		atomic_store_explicit(&t->cur[t->level].ring->pending_ns, ns, memory_order_relaxed);
}

/* Between hold and here the process may have moved: the hold has come along to the ring of the
 * new arena (leave_former()), so the ring is looked up again, not remembered. */
static inline void guest_unhold(bool held)
{
	struct guest_thread *t = &guest_self;

	if (likely(held) && likely(t->level < GUEST_LEVELS) && likely(t->cur[t->level].ring))
		atomic_store_explicit(&t->cur[t->level].ring->pending_ns, 0, memory_order_release);
}

/*
 * The id of the call stack of the hook that was called from `caller`, native frames and those of
 * Python as asked for, interned in the arena; 0 when stacks are off or there is no room (counted).
 */
uint32_t guest_stack(uint64_t caller);
/* The same with depths of its own, whatever was asked for. */
uint32_t guest_stack_depth(uint64_t caller, uint32_t depth, uint32_t py_depth);

/* Return addresses from `caller` on, at most max; not interned. */
uint32_t guest_frames(uint64_t *out, uint32_t max, uint64_t caller);

static inline bool guest_wants_stacks(void)
{
	return atomic_load_explicit(&guest.c_depth, memory_order_relaxed) |
	       atomic_load_explicit(&guest.py_depth, memory_order_relaxed);
}

/* Begins a recording below `output` (absolute; NULL: where it was named, or the current
 * directory's). */
void guest_begin_in(const char *output);
/* For the monitor: a session below `dir` (NULL: there is no such place) if there is none; the
 * environment stays as it is. */
void guest_begin_monitor(const char *dir);
/* That session is another process', or could not be joined: it is left. False: it stays. */
bool guest_leave_monitor(void);
/*
 * From the monitor's own session into another one, which is made below `output` (absolute; NULL:
 * the current directory's): of the monitor again, since its recorder was killed, or a recording.
 * Threads go on meanwhile; what they are about to write is in the old one. False: it stays. By
 * threads of ours and the Python package: it takes its time.
 */
bool guest_move(const char *output, bool monitor);
/* It stays because it has moved so often of late; half a minute later it can. */
bool guest_moved_too_often(void);
/* Now and then: what was left so is needed no more. */
void guest_release_formers(void);
/* The monitor, which is called when the Python package takes the process into a recording. */
struct guest_mover {
	void (*before)(void);
	void (*after)(bool moved);
};
void guest_on_move(const struct guest_mover *m);
/* A recorder that was killed is called again: for windows that begin now. False: there is none. */
bool guest_revive(void);
/* Was it killed, or has it left? */
bool guest_recorder_is_gone(void);
/* The same by its process alone. */
bool guest_recorder_has_ended(const struct control_page *page);
/* There is something that should not wait until it looks by itself. */
void guest_wake_recorder(void);
/* If the recorder was refused this process' memory: lets it in; and out again. By one thread of our
 * own. */
void guest_grant_ptrace_access(void);
void guest_revoke_ptrace_access(void);
/* At load, of a process with Python. */
void guest_let_sampler_in(const struct control_page *page);
/* What is found is reported on this process' stderr at its end, if nobody has said where. */
void guest_report_here(void);
/* Has this process joined its recording? */
bool guest_has_joined(void);
/*
 * What is recorded of this process and of those that it will fork; `want` (enum session_want) is
 * what follows from the settings. output_dir NULL: as before.
 */
void guest_configure(const struct rec_settings *s, uint32_t want, const char *output_dir);
/* Asks the recorder to bring everything to disk and waits, at most so long. */
bool guest_flush(uint32_t timeout_ms);

/* The page of the recording that the environment names, before this process has joined it; NULL. */
struct control_page *guest_page_of_session(void);
/* Counts this process as one whose heap is not seen (wire/control_page.h). At load. */
void guest_note_unseen_heap(void);

/* start/stop of tracing: switches the mode of this process. */
void guest_set_tracing(bool on);

/* --- inside this folder --- */

/*
 * The id of the words in the arena, equal ones have one; 0 if there is no room. Who meets them
 * first is called back (`fresh` may be NULL) before anybody else can see the id.
 */
uint32_t guest_intern(const uint64_t *words, uint32_t n, void (*fresh)(uint32_t id, void *arg),
		      void *arg);

/* The same of a call stack, innermost frame first: entries that go on in each other (wire/ring.h). */
uint32_t guest_intern_stack(const uint64_t *words, uint32_t n);

/* Are these the words behind an id of this arena? */
bool guest_is_interned(uint32_t id, const uint64_t *words, uint32_t n);

/* The Python stack of this thread, innermost first, as STACK_PYTHON words: at most `max`, and up to
 * STACK_CUT_WORDS more, by which a frame of the user's own code is in it. Takes no lock, and not the
 * GIL either. Returns how many, 0 where no Python runs. */
uint32_t guest_python(uint64_t *out, uint32_t max);
/* The place of the innermost frame of the user's own program; 0: there is none. With a hold. */
uint32_t guest_python_users(void);
void guest_python_forget(void); /* the ids of places: there is another arena */
/*
 * A good moment to see whether the Python package is needed in this process and is not there yet.
 * `device`: an accelerator is in use. Cheap where there is no Python; makes no system call.
 */
void guest_bring_package(bool device);
/* The process has initialised CUDA. */
void guest_bring_for_cuda(void);
/* At load, in a process of a launcher's tree: sees to it, if this is a Python interpreter. */
bool guest_has_python(void);
void guest_await_python(uint32_t want);
/* Into a Python program, what counts the steps of its training. */
void guest_bring_steps(void);
/* The id of a whole function by the address of its code object, as in STACK_PYTHON words; 0 where
 * there is no room. The object must not go away meanwhile. */
uint32_t guest_python_code(uint64_t code);
/* The name of the class of the first argument of the innermost function; NULL: not known. */
const char *guest_python_class(void);
/* Functions of this file are left out of Python stacks; the name is that of their code objects, and
 * stays where it is. */
void guest_hide_file(uint64_t name);
/* Counts a stack, or a part of one, for which there was no room. */
void guest_lost_stack(void);

/* Remembers whose memory this is; at load, when no vfork child can be asking. */
void guest_note_owner(void);
/* Its pid, without a system call; 0 in a forked child that has not joined. */
uint32_t guest_noted_owner(void);

/* Joins the recording; returns the resulting mode. Async-signal-safe; called by the slow paths. */
uint32_t guest_attach(void);

/*
 * No handler of the job runs between these two, so that none can enter the slow paths twice, or
 * leave them by longjmp(). Faults are not held back: they are answered at once or never.
 */
void guest_block_signals(uint64_t *out_old);
void guest_restore_signals(const uint64_t *old);

/* Memory of ours, which the job may unmap or protect; of those that touch [lo, hi) the lowest. */
void guest_own_range(const void *at, uint64_t bytes);
void guest_disown_range(const void *at);
bool guest_find_own(uint64_t lo, uint64_t hi, uint64_t *out_lo, uint64_t *out_hi);
/* The job replaces memory of ours: this process is not recorded any more. */
void guest_detach(void);
/* Nothing is recorded under the epoch that was, nor under another. */
void guest_leave_epoch(void);
/* Until no thread is inside a hook that has taken a hold, at most so long. */
void guest_wait_for_hooks(struct arena_head *a, uint64_t most_ns);
/* The process whose memory this is. */
uint32_t guest_owner_pid(void);
/* Is this a ring of an arena that guest_move() has left a moment ago: certainly mapped yet? */
bool guest_has_just_left(const struct ring *r);
/* An arena of this process, mapped; NULL: there is no room for one. */
struct arena_head *guest_make_arena(const struct control_page *page, const char *dir);

/* Makes file space of [off, off + len) of the arena real; 0 or negative errno. */
int guest_commit(struct arena_head *a, uint64_t off, uint64_t len);

/* The page of a session, which is made, with a recorder, if it is not there; NULL: there is none.
 */
struct control_page *guest_session_map(const char *dir, bool make);
/*
 * A recorder that left is called back; one that is starting is given a moment to configure. False:
 * there is none and there will be none.
 */
bool guest_session_wait(struct control_page *page, const char *dir);

/* Starts a recorder for the session directory, detached, invisible to the job's wait(). */
int guest_spawn_recorder(const char *dir);

/*
 * Around that wait no thread makes events: one that comes to a hook is kept there, and those that
 * are inside one are waited for. So the files hold what every thread has done, to the last event.
 * After guest_open_gate() a thread is kept a moment longer, because exit() has still to flush
 * stdio and may need a lock that it holds; then it goes on and its events are not recorded.
 */
void guest_close_gate(void);
void guest_open_gate(void);

#endif
