/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Joining the recording: control page, arena, epoch. Once per process image, at its first event;
 * a process that never has one opens nothing.
 *
 * Who does it is settled by one compare-and-swap on `joining`, which holds the pid of the process
 * that is at it: a forked child whose parent was joining at that moment finds another pid there and
 * takes over. Other threads that have their first event meanwhile wait for the outcome (bounded);
 * the joining thread's own signal handlers wait until it is done, since signals are blocked.
 *
 *	join_and_publish():
 *	  1. the parent's arenas are unmapped (a forked child would keep their file space alive)
 *	  2. the control page is mapped, or made together with a recorder     session.c
 *	  3. the recorder is LIVE, or given two seconds to become it
 *	  4. an arena is made                                                 arena.c
 *	  5. the recorder is still there: it may have left between 3 and 4
 *	  6. mode and wants are set, then the epoch: from here on threads take rings
 *
 * A failure is an outcome too: mode GUEST_OFF under a valid epoch, so that the next event does not
 * try again.
 *
 * Moving: from the monitor's own session into another one (guest_move()), while threads run.
 *
 *	mover                                    any other thread
 *	-----                                    ----------------
 *	new page, new arena, both ready          writes into the old arena
 *	formers[] = old arena and page              "
 *	guest.page, guest.arena = new               "  (its epoch is still the old one)
 *	*guest_epoch: old -> next (CAS)          next event: epochs differ -> thread_ready():
 *	wait for hooks in it, at most 1 s           ends its hold in the old arena, takes a ring of
 *	old->left = 1, wake its recorder            the new one, carries the hold over
 *
 * The CAS fails if exit() has closed the gate meanwhile, and then nobody moves. The old arena stays
 * mapped: a thread may sleep inside a hook with a pointer into it. It is unmapped when no ring of
 * it has been held for ten seconds in which this process ran; more than MAX_FORMERS are not kept,
 * so a process that would move more often stays where it is.
 */
#include "guest/runtime/guest.h"

#include "guest/runtime/env.h"
#include "unwind/native/native.h"

#include <errno.h>
#include <linux/futex.h>
#include <linux/kcmp.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define POLL_NS 500000 /* between two looks at a word that another thread changes */
#define JOIN_WAIT_NS 1000000000ull
#define FORMER_NS 10000000000ull
#define CHECK_MOST_NS (FORMER_NS / 2) /* the most that one look at a former arena counts for */
#define MAX_FORMERS 8
#define GATE_CLOSE_NS 100000000ull
#define LEAVE_NS 1000000000ull
#define GATE_OPEN_NS 50000000ull
#define NOT_BLOCKED UINT64_MAX /* no mask of signals: SIGKILL cannot be in one */

struct guest_state guest;

/* Until a process has joined, the epoch is a value that no thread carries. */
static _Atomic uint32_t never = UINT32_MAX;
_Atomic uint32_t *_Atomic guest_epoch = &never;

static _Atomic uint32_t joining; /* 0, or the pid that is at it */
static uint32_t epochs; /* counts on in forked children */

/*
 * The synchronous signals stay open: a fault with its signal blocked kills the process. The system
 * call, because the C library's function leaves out the two signals that it uses itself, and
 * pthread_cancel() unwinds the stack by one of them.
 */
void guest_block_signals(uint64_t *out_old)
{
	uint64_t all = ~(1ull << (SIGSEGV - 1) | 1ull << (SIGBUS - 1) | 1ull << (SIGILL - 1) |
			 1ull << (SIGFPE - 1) | 1ull << (SIGTRAP - 1));

	*out_old = NOT_BLOCKED;
	/* Not by the C library, which leaves its own out: cancelling a thread is a jump too. */
	guest_syscall(SYS_rt_sigprocmask, SIG_BLOCK, &all, out_old, sizeof(all));
}

void guest_restore_signals(const uint64_t *old)
{
	if (*old != NOT_BLOCKED)
		syscall(SYS_rt_sigprocmask, SIG_SETMASK, old, NULL, sizeof(*old));
}

/* The epoch lives in a page that the kernel empties in a forked child. Word 0 is the epoch, word 1
 * the pid of the process whose memory this is: both are 0 in a child until it asks. */
static _Atomic uint32_t *epoch_page(void)
{
	static _Atomic uint32_t *page;

	if (page)
		return page;
	void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return NULL;
	if (madvise(p, 4096, MADV_WIPEONFORK) < 0) {
		munmap(p, 4096);
		return NULL;
	}
	page = p;
	guest_own_range(p, 4096);
	return page;
}

/*
 * Whose memory this is. A child of vfork() or clone(CLONE_VM) that has the first event of all is
 * its parent to us: the arena must not end with it.
 *
 * kcmp(KCMP_VM) compares the address spaces of us and our parent: equal means that we are a vfork
 * child. Once known, the answer is kept beside the epoch, in the page that fork() wipes.
 */
uint32_t guest_owner_pid(void)
{
	_Atomic uint32_t *page = epoch_page();
	uint32_t pid = (uint32_t)getpid(), parent = (uint32_t)getppid();

	/* Noted when the library was loaded, and wiped by fork: then the kernel is asked. */
	if (page && atomic_load(&page[1]))
		return atomic_load(&page[1]);
	if (parent && syscall(SYS_kcmp, pid, parent, KCMP_VM, 0, 0) == 0)
		pid = parent;
	if (page)
		atomic_store(&page[1], pid);
	return pid;
}

uint32_t guest_noted_owner(void)
{
	_Atomic uint32_t *page = epoch_page();

	return page ? atomic_load(&page[1]) : 0;
}

void guest_note_owner(void)
{
	(void)guest_owner_pid();
}

/*
 * What was left by guest_move(). Threads may still be inside a hook with it: it goes when none has
 * been for long. That is time in which this process ran; one that was stopped meanwhile has threads
 * that are where they were.
 */
static struct former {
	struct arena_head *_Atomic arena;
	struct control_page *page;
	_Atomic uint64_t left_ns;
	uint64_t checked_ns, age_ns;
} formers[MAX_FORMERS];

static void unmap_own(void *at, uint64_t bytes)
{
	guest_disown_range(at);
	munmap(at, bytes);
}

static void drop_former(struct former *f)
{
	struct arena_head *a = f->arena;

	f->arena = NULL;
	unmap_own(a, a->file_bytes);
	unmap_own(f->page, SESSION_BYTES);
}

/*
 * A forked child must not keep its parent's arenas mapped: it would hold the files' space.
 *
 * After fork() the child has its parent's shared mappings. It unmaps them, so that the file's
 * blocks are freed when the parent and the recorder are done with them. A hook of the parent that
 * was interrupted by the signal handler that forked still returns in the child and writes to its
 * record: then the mapping stays.
 */
static void drop_parent_arena(void)
{
	/* Unless the fork happened in a signal handler inside a hook, which is still to write. */
	bool may_drop = !guest_self.level;

	for (struct former *f = formers; may_drop && f < formers + MAX_FORMERS; f++) {
		if (f->arena == guest.arena)
			f->arena = NULL; /* its parent was about to leave it */
		if (f->arena)
			drop_former(f);
	}
	if (guest.arena && may_drop)
		unmap_own(guest.arena, guest.arena->file_bytes);
	guest.arena = NULL;
	native_forget(); /* the new arena must get every object again */
	guest_python_forget();
}

/* What is to be reported before the first event. */
static struct {
	bool settings, tracing;
} owed;

/* The mode in the session that was joined; `before` is what it was in another one, or in a parent.
 * What the recorder cannot know by itself (settings that the program chose, a mode that is not the
 * session's) is owed: written as records before this process' first event. */
static uint32_t choose_mode(uint32_t before)
{
	uint32_t want = atomic_load(&guest.page->want);
	bool tracing = !(want & WANT_DEFERRED);

	atomic_fetch_add(&guest.page->joined, 1);
	atomic_fetch_add(&guest.arena->lost_events, atomic_exchange(&guest_lost_early, 0));
	if (!guest.configured) {
		guest.c_depth = guest.page->c_depth;
		guest.py_depth = guest.page->py_depth;
		atomic_store(&guest.want, want);
	}
	/* A forked child does what its parent did, and says so if that is not what it began with.
	 */
	bool traced = before < GUEST_SHADOW ? tracing : before == GUEST_RECORD;
	owed.settings = guest.configured;
	owed.tracing = traced != tracing;
	atomic_store(&guest.arena->tracing, traced);
	return traced ? GUEST_RECORD : GUEST_SHADOW;
}

/* A launcher's directory that is gone was removed on purpose, so it is not made again; one that
 * this tree named itself is. */
static uint32_t join_recording(void)
{
	const char *dir = guest_session_dir();
	_Atomic uint32_t *epoch = epoch_page();

	drop_parent_arena();
	if (!dir[0] || !epoch)
		return GUEST_OFF;
	/* The directory of a launcher is not made again: somebody removed it. */
	if (!guest.page)
		guest.page = guest_session_map(dir, !guest_is_launched());
	if (!guest.page)
		return GUEST_OFF;
	if (guest_session_wait(guest.page, dir))
		guest.arena = guest_make_arena(guest.page, dir);
	/* Again: the recorder may have left just now. */
	if (!guest.arena || !guest_session_wait(guest.page, dir)) {
		atomic_fetch_add(&guest.page->unrecorded, 1);
		return GUEST_OFF;
	}
	return choose_mode(atomic_load(&guest.mode));
}

/* --- the gate of exit(): see guest.h --- */

static struct {
	_Atomic uint32_t tid; /* the thread that exits; 0: nobody does */
	_Atomic uint64_t open_ns; /* from here on nobody is kept */
} gate;

/*
 * The end of the launched process: its files are to hold every event of every thread, and exit()
 * must not hang. So the epoch becomes GUEST_EPOCH_EXIT, which no thread has:
 *
 *	threads inside a hook	have a hold; they are waited for, 100 ms at most
 *	threads that come	find another epoch, go the slow way and wait at the gate
 *	the exiting thread	asks the recorder for the files (exit.c), then opens the gate; 50 ms
 *				later everybody goes on, unrecorded: exit() has stdio to flush and
 *				may need a lock that one of them holds
 */
/*
 * Threads inside a hook hold pending_ns (guest_hold); who comes later meets the gate.
 *
 * A thread stores its hold relaxed: half a millisecond is longer than any store buffer keeps it.
 * After that each ring is polled until its hold is gone or the time is up.
 */
void guest_wait_for_hooks(struct arena_head *a, uint64_t most_ns)
{
	uint64_t until = guest_now() + most_ns;
	uint32_t n = atomic_load(&a->nrings);

	if (n > 1)
		guest_sleep(POLL_NS); /* longer than a store that was under way needs to become
					 visible */
	for (uint32_t i = 0; i < n && i < a->max_rings; i++)
		while (atomic_load(&arena_ring(a, i)->pending_ns) && guest_now() < until)
			guest_sleep(POLL_NS);
}

void guest_close_gate(void)
{
	_Atomic uint32_t *epoch = atomic_load(&guest_epoch);

	if (!guest.arena || guest_epoch_now() == 0 || epoch == &never)
		return;
	atomic_store(&gate.open_ns, UINT64_MAX);
	atomic_store(&gate.tid, (uint32_t)syscall(SYS_gettid));
	atomic_store(epoch, GUEST_EPOCH_EXIT);
	guest_wait_for_hooks(guest.arena, GATE_CLOSE_NS);
	atomic_store(&guest.arena->left, 1);
}

void guest_open_gate(void)
{
	if (atomic_load(&gate.tid))
		atomic_store(&gate.open_ns, guest_now() + GATE_OPEN_NS);
}

static void wait_at_gate(void)
{
	if ((uint32_t)syscall(SYS_gettid) == atomic_load(&gate.tid))
		return;
	while (guest_now() < atomic_load(&gate.open_ns))
		guest_sleep(POLL_NS);
}

/*
 * A monitor's session is of one process. A child that was forked is none of it: it would call its
 * parent's recorder back to a directory that is gone. Nor does it last if it could not be joined,
 * where there may be room next time.
 */
bool guest_leave_monitor(void)
{
	uint32_t of = guest_monitor_pid();
	_Atomic uint32_t *epoch = epoch_page();

	if (!of || !epoch || (of == guest_owner_pid() && atomic_load(&guest.mode) != GUEST_OFF) ||
	    !guest_unname_monitor_session(of))
		return false;
	drop_parent_arena();
	guest.page = NULL;
	atomic_store(&guest.mode, GUEST_NEW);
	atomic_store(epoch, 0);
	return true;
}

void guest_leave_epoch(void)
{
	atomic_store(&guest.mode, GUEST_OFF);
	atomic_store(&guest_epoch, &never);
}

/* Never 0, never one of the special values. The arena has its number before the epoch word does. */
static uint32_t count_epoch(struct arena_head *a)
{
	if (++epochs == 0 || epochs >= GUEST_EPOCH_EXIT)
		epochs = 1;
	if (a)
		atomic_store(&a->epoch, epochs);
	return epochs;
}

/* The outcome is published as an epoch: threads compare it with the one they joined under. */
static uint32_t join_and_publish(void)
{
	uint32_t mode = join_recording();
	_Atomic uint32_t *page = epoch_page();

	atomic_store(&guest.mode, mode);
	(void)count_epoch(guest.arena);
	atomic_store(&gate.tid, 0);
	if (page) {
		atomic_store(page, epochs);
		atomic_store(&guest_epoch, page);
	}
	return mode;
}

static bool has_outcome(void)
{
	uint32_t epoch = guest_epoch_now();

	return epoch && (epoch != UINT32_MAX || atomic_load(&guest.mode) == GUEST_OFF);
}

/*
 * In a sealed process nobody joins any more. What has an outcome keeps it; a forked child, and who
 * had none, is not recorded and is counted. By stores alone.
 */
static uint32_t attach_sealed(void)
{
	_Atomic uint32_t *epoch = atomic_load(&guest_epoch);
	uint32_t forked = 0;

	if (guest_epoch_now() == GUEST_EPOCH_EXIT)
		return GUEST_OFF;
	if (has_outcome())
		return atomic_load(&guest.mode);
	atomic_store(&guest.mode, GUEST_OFF);
	if (epoch == &never || atomic_compare_exchange_strong(epoch, &forked, count_epoch(NULL))) {
		guest.arena = NULL;
		if (guest.page)
			atomic_fetch_add(&guest.page->sealed_out, 1);
	}
	return GUEST_OFF;
}

/* Only one thread joins. The others poll: a futex would need a word that survives fork() and
 * vfork(), and this happens once. */
uint32_t guest_attach(void)
{
	if (guest_is_sealed())
		return attach_sealed();
	uint32_t pid = (uint32_t)getpid();
	uint64_t until = guest_now() + JOIN_WAIT_NS;

	if (guest_epoch_now() == GUEST_EPOCH_EXIT) {
		wait_at_gate();
		return GUEST_OFF;
	}
	while (!has_outcome()) {
		uint32_t who = atomic_load(&joining);
		if (who != pid && atomic_compare_exchange_strong(&joining, &who, pid)) {
			if (!has_outcome())
				join_and_publish();
			atomic_store(&joining, 0);
			break;
		}
		if (guest_now() > until)
			return GUEST_OFF;
		guest_sleep(POLL_NS);
	}
	return atomic_load(&guest.mode);
}

/* A record like any other, so that everything before it was recorded under the old settings and
 * everything behind it under the new ones. */
static void emit_settings(void)
{
	size_t len = strnlen(guest.output_dir, sizeof(guest.output_dir) - 1);
	uint16_t size = rec_size(sizeof(struct rec_config), len);
	bool held = guest_hold(RING_PENDING_NOW);
	uint64_t ns = guest_now();
	struct rec_config *r = guest_reserve(size);

	if (r) {
		memset(r, 0, size);
		r->head = (struct rec){REC_CONFIG, 0, size, 0, ns};
		r->settings = guest.settings;
		r->len = (uint16_t)len;
		memcpy(r->text, guest.output_dir, len);
		guest_publish(size);
	}
	guest_unhold(held);
}

static void emit_tracing(bool on)
{
	bool held = guest_hold(RING_PENDING_NOW);
	uint64_t ns = guest_now();
	struct rec_system *r = guest_reserve(sizeof(*r));

	if (r) {
		*r = (struct rec_system){
			.head = {REC_SYSTEM, 0, sizeof(*r), 0, ns},
			.device = DEV_NONE,
			.kind = on ? SYSTEM_START_TRACE : SYSTEM_STOP_TRACE,
		};
		guest_publish(sizeof(*r));
	}
	guest_unhold(held);
}

static void emit_owed(void)
{
	bool settings = owed.settings, tracing = owed.tracing;

	owed.settings = owed.tracing = false;
	if (settings)
		emit_settings();
	if (tracing)
		emit_tracing(atomic_load(&guest.mode) == GUEST_RECORD);
}

/* The mapping behind r may be gone: only the address is compared until it is known that it is
 * one of the last moments' arenas. */
bool guest_has_just_left(const struct ring *r)
{
	for (struct former *f = formers; f < formers + MAX_FORMERS; f++) {
		struct arena_head *a = f->arena;
		if (!a || r < arena_ring(a, 0) || r >= arena_ring(a, ARENA_MAX_RINGS))
			continue;
		/* Unless its place has been given to a younger one meanwhile. */
		uint64_t left_ns = f->left_ns;
		return f->arena == a && guest_now() < left_ns + FORMER_NS / 2;
	}
	return false;
}

static bool is_in_use(struct arena_head *a)
{
	for (uint32_t i = 0; i < atomic_load(&a->nrings) && i < a->max_rings; i++)
		if (atomic_load(&arena_ring(a, i)->pending_ns))
			return true;
	return false;
}

/* Time counts while this process runs: a look after a long pause (SIGSTOP, a suspended machine)
 * adds at most CHECK_MOST_NS, since threads have not moved meanwhile. */
static void release_formers(void)
{
	uint64_t now = guest_now();

	for (struct former *f = formers; f < formers + MAX_FORMERS; f++) {
		if (!f->arena)
			continue;
		uint64_t since = now - f->checked_ns;
		f->age_ns += since < CHECK_MOST_NS ? since : CHECK_MOST_NS;
		f->checked_ns = now;
		if (f->age_ns >= FORMER_NS + f->page->wait_ms * 1000000ull && !is_in_use(f->arena))
			drop_former(f);
	}
}

void guest_release_formers(void)
{
	uint32_t nobody = 0;

	if (!atomic_compare_exchange_strong(&joining, &nobody, (uint32_t)getpid()))
		return;
	release_formers();
	atomic_store(&joining, 0);
}

static struct former *free_former(void)
{
	for (struct former *f = formers; f < formers + MAX_FORMERS; f++)
		if (!f->arena)
			return f;
	return NULL;
}

bool guest_moved_too_often(void)
{
	return !free_former();
}

/*
 * Its recorder, if it lives, reads to the end and goes. What a hook is about to write there would
 * come too late, and no loss of it would be known: hooks are waited for, though not for ever.
 */
static void leave_arena(struct former *f)
{
	struct arena_head *a = f->arena;

	guest_wait_for_hooks(a, LEAVE_NS);
	atomic_store(&a->left, 1);
	syscall(SYS_futex, &f->page->exit_asked, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

/*
 * Everything is ready before anything changes: other threads are between two events.
 *
 * The order of the stores: `former` first, since a thread that sees the next epoch looks its ring
 * up there; then page and arena, then the name of the session, so that a child forked in between
 * joins a session that exists; the mode; and the epoch last.
 */
static bool switch_to(const char *dir, bool monitor, struct former *f)
{
	struct control_page *page = guest_session_map(dir, true);
	struct arena_head *arena = NULL;

	if (page && guest_session_wait(page, dir))
		arena = guest_make_arena(page, dir);
	if (!arena && page) {
		page->root_pid = 0; /* its recorder need not wait for us */
		unmap_own(page, SESSION_BYTES);
	}
	if (!arena)
		return false;
	f->page = guest.page;
	f->left_ns = f->checked_ns = guest_now();
	f->age_ns = 0;
	f->arena = guest.arena; /* threads that see the next epoch find it here */
	uint32_t epoch = epochs, next = count_epoch(arena);
	/* In this order: a child that is forked in between is one of a monitored process. */
	guest.page = page;
	guest.arena = arena;
	guest_take_next_session(monitor);
	native_forget();
	guest_python_forget();
	atomic_store(&guest.mode, choose_mode(atomic_load(&guest.mode)));
	/* Unless exit() has closed the gate. */
	atomic_compare_exchange_strong(epoch_page(), &epoch, next);
	leave_arena(f);
	return true;
}

bool guest_move(const char *output, bool monitor)
{
	uint32_t pid = (uint32_t)getpid(), who = 0;
	uint64_t until = guest_now() + JOIN_WAIT_NS, signals;
	bool moved = false;

	if (guest_is_sealed())
		return false;
	while (!atomic_compare_exchange_strong(&joining, &who, pid)) {
		if (who != pid)
			continue; /* a parent's thread was at it */
		who = 0;
		if (guest_now() > until)
			return false;
		guest_sleep(POLL_NS);
	}
	guest_block_signals(&signals);
	release_formers();
	if (guest_has_joined() && guest_monitor_pid() == guest_owner_pid()) {
		struct former *f = free_former();
		const char *dir = f ? guest_name_next_session(output, monitor) : "";
		moved = dir[0] && switch_to(dir, monitor, f);
	}
	atomic_store(&joining, 0);
	guest_restore_signals(&signals);
	if (moved)
		emit_owed();
	return moved;
}

uint32_t guest_mode_slow(void)
{
	struct guest_thread *t = &guest_self;
	int saved = errno;
	uint32_t mode = GUEST_OFF;

	if (!guest_has_begun())
		return GUEST_OFF;
	if (!guest_has_stack(GUEST_JOIN_STACK)) {
		atomic_fetch_add(&guest_lost_early, 1); /* it may join at a later one */
		return GUEST_OFF;
	}
	/* The handler of a fault inside our own joining: its event is not recorded. */
	if (!t->busy) {
		uint64_t signals;
		guest_enter_calls();
		guest_block_signals(&signals);
		t->busy = 1;
		atomic_signal_fence(memory_order_seq_cst);
		if (guest_is_sealed() || guest_epoch_now() != 0 || !guest_leave_monitor())
			mode = guest_attach();
		atomic_signal_fence(memory_order_seq_cst);
		t->busy = 0;
		guest_restore_signals(&signals);
		guest_leave_calls();
	}
	if (mode >= GUEST_SHADOW && (owed.settings || owed.tracing))
		emit_owed();
	errno = saved;
	return mode;
}

bool guest_has_joined(void)
{
	uint32_t epoch = guest_epoch_now();

	return epoch && epoch < GUEST_EPOCH_EXIT && atomic_load(&guest.mode) >= GUEST_SHADOW;
}

void guest_configure(const struct rec_settings *s, uint32_t want, const char *output_dir)
{
	guest.settings = *s;
	guest.configured = true;
	if (output_dir) {
		size_t n = strnlen(output_dir, sizeof(guest.output_dir) - 1);
		memcpy(guest.output_dir, output_dir, n);
		guest.output_dir[n] = '\0';
	}
	guest.c_depth = s->c_stack ? s->c_depth : 0;
	guest.py_depth = s->py_stack ? s->py_depth : 0;
	atomic_store(&guest.want, want);
	emit_settings();
}

void guest_set_tracing(bool on)
{
	if (guest_mode() < GUEST_SHADOW || guest_is_sealed())
		return;
	atomic_store(&guest.arena->tracing, on);
	atomic_store(&guest.mode, on ? GUEST_RECORD : GUEST_SHADOW);
}
