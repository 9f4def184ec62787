/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Why not /proc/self/maps: a training job has thousands of mappings, and reading them costs a
 * millisecond per thread; the walk needs two or three pages.
 *
 * Why ask at all: the walk follows addresses that it has read from the stack, with rules that may
 * be wrong (hand-written assembly, a damaged stack). A load from an unmapped page would be a
 * SIGSEGV in the job. A system call that copies from user memory answers EFAULT instead.
 *
 *	thread's own stack	[lo, hi) is kept in the thread: a stack that is in use stays mapped
 *				as long as the thread lives, so a proof stays true
 *	any other		fibers, alternate signal stacks: may be unmapped between two
 *				captures, so they are proved in each one
 *
 * `home` is read by signal handlers of the same thread in the middle of set_home(): hi is 0 while
 * lo changes, and an empty range covers nothing.
 */
#include "unwind/native/span.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/syscall.h>

#include "unwind/native/arch.h"

#define PAGE_BYTES 4096ull /* a divisor of every page size */
#define GROW_MAX_BYTES (16ull << 20)
#define DEEPER_BYTES (64ull << 10) /* that calls may go deeper once nobody may ask any more */
#define HOME_BYTES (8ull << 20) /* this much below its end a stack is surely the thread's own */

/* Near the upper end of the main thread's stack. */
extern void *__libc_stack_end __attribute__((weak));

/* The thread's own stack, as far as proved. A signal may come between any two stores. */
static __thread struct span home __attribute__((tls_model("initial-exec")));

/*
 * rt_sigprocmask copies the new mask from user memory before it looks at `how`: with an invalid
 * `how` it changes nothing and tells EFAULT from EINVAL.
 */
static bool probe_address(uint64_t addr)
{
	return arch_syscall4(SYS_rt_sigprocmask, -1, (long)addr, 0, 8) == -EINVAL;
}

static _Atomic bool sealed;

bool span_is_sealed(void)
{
	return atomic_load_explicit(&sealed, memory_order_relaxed);
}

bool span_readable(uint64_t addr)
{
	static _Atomic int usable; /* does the kernel (or its emulation) answer as expected? */
	int u = atomic_load_explicit(&usable, memory_order_relaxed);

	if (span_is_sealed())
		return false;
	if (!u) {
		u = probe_address(16) ? -1 : 1;
		atomic_store_explicit(&usable, u, memory_order_relaxed);
	}
	return u > 0 && addr && probe_address(addr);
}

static uint64_t page_of(uint64_t addr)
{
	return addr & ~(PAGE_BYTES - 1);
}

struct span span_enter(uint64_t sp)
{
	if (sp >= home.lo && sp < home.hi)
		return home;
	return (struct span){page_of(sp), page_of(sp) + PAGE_BYTES};
}

/* Page by page from the last proved one: a stack has no holes, and one that seems to ends there. */
bool span_grow(struct span *s, uint64_t end)
{
	if (end < s->hi)
		return true;
	if (end - s->hi > GROW_MAX_BYTES)
		return false;
	while (s->hi < end) {
		if (!span_readable(s->hi))
			return false;
		s->hi += PAGE_BYTES;
	}
	return true;
}

/*
 * glibc puts the TLS of a thread on top of its stack. That of the main thread is among the libraries,
 * and what is mapped below it may be anything: a thread that was seen on the main stack has no other.
 */
uint64_t span_home_end(uint64_t sp)
{
	static __thread bool is_main __attribute__((tls_model("initial-exec")));
	uint64_t main_end = &__libc_stack_end ? (uint64_t)(uintptr_t)__libc_stack_end : 0;
	uint64_t tp = arch_thread_pointer();

	if (main_end - sp < HOME_BYTES) {
		is_main = true;
		return page_of(main_end) + PAGE_BYTES;
	}
	if (!is_main && tp - sp < HOME_BYTES)
		return page_of(tp) + PAGE_BYTES;
	return 0;
}

static void set_home(uint64_t lo, uint64_t hi)
{
	volatile struct span *h = &home;

	h->hi = 0;
	h->lo = lo;
	h->hi = hi;
}

/* Calls of different depths prove different parts. The gap between them is proved as well, so
 * that one range is enough. */
void span_keep(const struct span *s, uint64_t sp)
{
	uint64_t end = span_home_end(sp), lo = s->lo, hi = s->hi;

	if (!end)
		return;
	if (hi > end)
		hi = end;
	/* One range for calls at all depths: prove what lies between the old one and this. */
	struct span gap = {0, 0};
	if (hi < home.lo)
		gap = (struct span){hi, home.lo};
	else if (home.hi && home.hi < lo)
		gap = (struct span){home.hi, lo};
	struct span reach = {gap.lo, gap.lo};
	if (home.hi && span_grow(&reach, gap.hi)) {
		lo = lo < home.lo ? lo : home.lo;
		hi = hi > home.hi ? hi : home.hi;
	}
	if (lo != home.lo || hi != home.hi)
		set_home(lo, hi);
}

/* Of the calling thread: from here to the end of its stack, and what calls from here will use. */
static void prove_home(void)
{
	uint64_t sp = (uint64_t)(uintptr_t)__builtin_frame_address(0), end = span_home_end(sp);
	struct span s = {page_of(sp), page_of(sp) + PAGE_BYTES};

	if (!end || !span_grow(&s, end))
		return;
	while (sp - s.lo < DEEPER_BYTES && span_readable(s.lo - PAGE_BYTES))
		s.lo -= PAGE_BYTES;
	if (home.lo < s.lo && home.hi >= s.lo)
		s.lo = home.lo;
	set_home(s.lo, s.hi);
}

void span_seal(bool on)
{
	if (on)
		prove_home();
	atomic_store(&sealed, on);
}
