/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The process limits its own system calls (seccomp). What is allowed from then on is what the job
 * needs; a call of ours may kill it. So a sealed process makes none: not for a thread's first
 * event, not for the next segment, not at exit.
 *
 * The preload libraries see prctl() and syscall() of the job (src/guest/interpose) and say so
 * before the filter is there:
 *
 *	job: prctl(PR_SET_SECCOMP, …)
 *	  guest_seal()    joins, if it has not; gives this thread its ring; makes room that
 *	                  needs no system call later; threads of ours end if the filter is for
 *	                  all threads; guest_sealed = 1; hooks that are under way are waited for
 *	  the real call
 *	  guest_unseal()  if it failed
 *
 * From then on:
 *
 *	segments	those that were made, again and again as the recorder gives them back
 *	more is needed	the event is lost, and counted
 *	a new thread	takes a ring as ever; its number is what the C library knows
 *	call stacks	what is known to be readable, by rules that are known; otherwise none
 *	a forked child	is not recorded: an arena takes system calls. It is counted
 *	exit()		does not wait for the files; the recorder finishes them a moment later
 *
 * In strict mode the kernel also takes the clock away (rdtsc faults): events are followed with the
 * coarse clock, as when nothing is traced.
 */
#include "guest/runtime/guest.h"

#include "guest/runtime/env.h"
#include "unwind/native/native.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#define MORE_SEGS 128u /* 8 MiB: what the recorder is behind a busy thread, and more */
#define MORE_STACKS (1u << 20)
#define WAIT_NS 200000000ull
#define POLL_NS 500000
#define NEEDS_CALLS (WANT_WATCH | WANT_TRACE | WANT_OWNERS | WANT_ACCESS)
#define CLOCK_FILE "/sys/devices/system/clocksource/clocksource0/current_clocksource"

_Atomic uint32_t guest_sealed;
static _Atomic uint32_t inside; /* threads that are in a slow path, with system calls */
static uint32_t wanted; /* before it was sealed */
static bool counted, slowed;

uint32_t guest_tid(void)
{
	clockid_t clock;

	/* The number of a thread is part of its clock's: bits 3 and up, inverted. */
	if (guest_is_sealed())
		return pthread_getcpuclockid(pthread_self(), &clock) == 0
			       ? ~(uint32_t)(clock >> 3) & 0x1fffffff
			       : 0;
	return (uint32_t)syscall(SYS_gettid);
}

void guest_enter_calls(void)
{
	atomic_fetch_add(&inside, 1);
}

void guest_leave_calls(void)
{
	atomic_fetch_sub(&inside, 1);
}

/* Whether the clock is read without a system call, as far as is known. */
static bool has_fast_clock(void)
{
	static const char *const fast[] = {"tsc", "kvm-clock", "hyperv", "arch_sys_counter"};
	char name[64];

	guest_read_file(CLOCK_FILE, name, sizeof(name) - 1);
	for (size_t i = 0; i < sizeof(fast) / sizeof(fast[0]); i++)
		if (!strncmp(name, fast[i], strlen(fast[i])))
			return true;
	return false;
}

/* Room for events and stacks; what of it fails is missing later, and is counted then. */
static void make_room(struct arena_head *a)
{
	uint32_t n = atomic_load(&a->nsegs);
	uint32_t more = n + MORE_SEGS < a->max_segs ? n + MORE_SEGS : a->max_segs;
	uint64_t have = atomic_load(&a->stack_committed), used = atomic_load(&a->stack_used);
	uint64_t want = used + MORE_STACKS < a->stack_bytes ? used + MORE_STACKS : a->stack_bytes;

	if (more > n && guest_commit(a, ARENA_OFF_SEGS + (uint64_t)n * ARENA_SEG_SIZE,
				     (uint64_t)(more - n) * ARENA_SEG_SIZE) == 0)
		atomic_compare_exchange_strong(&a->nsegs, &n, more);
	want = (want + 4095) & ~4095ull;
	if ((guest.c_depth | guest.py_depth) && want > have &&
	    guest_commit(a, arena_off_stacks(a->max_segs) + have, want - have) == 0)
		atomic_compare_exchange_strong(&a->stack_committed, &have, want);
}

/* What other threads do in hooks at this moment ends while they still may. */
static void wait_for_calls(void)
{
	uint64_t until = guest_now() + WAIT_NS;
	struct timespec step = {0, POLL_NS};

	do
		syscall(SYS_nanosleep, &step, NULL);
	while (atomic_load(&inside) && guest_now() < until);
	if (guest_has_joined())
		guest_wait_for_hooks(guest.arena, WAIT_NS);
}

/* Until now there was the clock: from here on there is the coarse one. */
static void leave_clock(void)
{
	if (atomic_load(&guest.mode) != GUEST_RECORD)
		return;
	atomic_store(&guest.mode, GUEST_SHADOW);
	slowed = true;
}

bool guest_seal(bool all_threads, bool no_clock)
{
	int saved = errno;

	if (guest_is_sealed()) {
		if (no_clock)
			leave_clock();
		return false;
	}
	if (guest_mode() >= GUEST_SHADOW) {
		guest_unhold(guest_hold(RING_PENDING_NOW));
		if (guest_wants_stacks())
			(void)guest_stack(0); /* so that the objects that are on it are known */
		make_room(guest.arena);
		atomic_fetch_add(&guest.page->sealed, 1);
		counted = true;
	}
	no_clock = no_clock || !has_fast_clock();
	wanted = atomic_fetch_and(&guest.want, ~(uint32_t)NEEDS_CALLS);
	native_seal(true);
	atomic_store(&guest_sealed, 1);
	if (no_clock)
		leave_clock();
	if (all_threads)
		wait_for_calls();
	errno = saved;
	return true;
}

void guest_unseal(void)
{
	atomic_store(&guest_sealed, 0);
	native_seal(false);
	atomic_store(&guest.want, wanted);
	if (slowed)
		atomic_store(&guest.mode, GUEST_RECORD);
	if (counted)
		atomic_fetch_sub(&guest.page->sealed, 1);
	slowed = counted = false;
}
