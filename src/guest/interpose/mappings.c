/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The job's calls that unmap, protect or replace memory, for the moments at which that memory is
 * ours (guest/runtime/mappings.c). All others are passed on at once.
 *
 *	munmap, mprotect, madvise	our ranges are left out; the call succeeds for the rest
 *	mmap, mremap with a fixed place	what is put there is the job's: our recording ends first
 *
 * The names have the version of the C library's own and are no default (mk/guest.mk): calls of
 * programs find them, dlsym() does not. MPI libraries patch the function that dlsym() gives them,
 * and would not see what the C library itself unmaps if that were ours.
 *
 * Not seen: munmap() by way of syscall(), or of an instruction in the job's own code; a process into which only the Python
 * package brought us.
 */
#include "guest/collect/collect.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__aarch64__)
#	define LIBC_VERSION "GLIBC_2.17"
#else
#	define LIBC_VERSION "GLIBC_2.2.5"
#endif
#define EXPORT __attribute__((visibility("default"), used))
/* Ours under a name that nobody else has; and under the C library's. */
#define OURS(name) __asm__("sonde_job_" name)
#define VERSIONED(name) __asm__(".symver sonde_job_" name "," name "@" LIBC_VERSION)
#define PAGE_MASK 4095ull

typedef long (*call_fn)(long a, long b, long c, long d, long e, long f);

enum { MUNMAP, MPROTECT, MADVISE, MMAP, MREMAP, CALLS };

static struct {
	const char *name;
	long number;
	_Atomic(call_fn) next;
} calls[CALLS] = {
	[MUNMAP] = {.name = "munmap", .number = SYS_munmap},
	[MPROTECT] = {.name = "mprotect", .number = SYS_mprotect},
	[MADVISE] = {.name = "madvise", .number = SYS_madvise},
	[MMAP] = {.name = "mmap", .number = SYS_mmap},
	[MREMAP] = {.name = "mremap", .number = SYS_mremap},
};

/* Before that the loader's lock may be held by who calls: the system call itself does, too. */
__attribute__((constructor)) static void find_next(void)
{
	for (int i = 0; i < CALLS; i++)
		atomic_store(&calls[i].next, (call_fn)dlsym(RTLD_NEXT, calls[i].name));
}

static long call_next(int which, long a, long b, long c, long d, long e, long f)
{
	call_fn next = atomic_load_explicit(&calls[which].next, memory_order_relaxed);

	if (__builtin_expect(next != NULL, 1))
		return next(a, b, c, d, e, f);
	return syscall(calls[which].number, a, b, c, d, e, f);
}

/* What lies between our ranges, piece by piece. */
static int around_ours(int which, uint64_t lo, uint64_t len, long c)
{
	uint64_t end = lo + ((len + PAGE_MASK) & ~PAGE_MASK), from, to;
	int r = 0;

	if (__builtin_expect(end <= lo || !collect_find_own(lo, end, &from, &to), 1))
		return (int)call_next(which, (long)lo, (long)len, c, 0, 0, 0);
	while (lo < end) {
		bool ours = collect_find_own(lo, end, &from, &to);
		uint64_t until = ours ? from : end;
		if (until > lo)
			r |= (int)call_next(which, (long)lo, (long)(until - lo), c, 0, 0, 0);
		lo = ours ? to : end;
	}
	return r;
}

EXPORT int job_munmap(void *at, size_t len) OURS("munmap");
EXPORT int job_munmap(void *at, size_t len)
{
	return around_ours(MUNMAP, (uint64_t)at, len, 0);
}

EXPORT int job_mprotect(void *at, size_t len, int prot) OURS("mprotect");
EXPORT int job_mprotect(void *at, size_t len, int prot)
{
	return around_ours(MPROTECT, (uint64_t)at, len, prot);
}

EXPORT int job_madvise(void *at, size_t len, int advice) OURS("madvise");
EXPORT int job_madvise(void *at, size_t len, int advice)
{
	return around_ours(MADVISE, (uint64_t)at, len, advice);
}

static void make_way(uint64_t at, uint64_t len)
{
	uint64_t from, to;

	if (collect_find_own(at, at + len, &from, &to))
		collect_detach();
}

EXPORT void *job_mmap(void *at, size_t len, int prot, int flags, int fd, off_t off) OURS("mmap");
EXPORT void *job_mmap(void *at, size_t len, int prot, int flags, int fd, off_t off)
{
	if (__builtin_expect(flags & MAP_FIXED, 0))
		make_way((uint64_t)at, len);
	return (void *)call_next(MMAP, (long)at, (long)len, prot, flags, fd, off);
}

EXPORT void *job_mmap64(void *at, size_t len, int prot, int flags, int fd, off_t off)
	OURS("mmap64");
EXPORT void *job_mmap64(void *at, size_t len, int prot, int flags, int fd, off_t off)
{
	return job_mmap(at, len, prot, flags, fd, off);
}

EXPORT void *job_mremap(void *at, size_t len, size_t new_len, int flags, void *to) OURS("mremap");
EXPORT void *job_mremap(void *at, size_t len, size_t new_len, int flags, void *to)
{
	make_way((uint64_t)at, len);
	if (flags & MREMAP_FIXED)
		make_way((uint64_t)to, new_len);
	return (void *)call_next(MREMAP, (long)at, (long)len, (long)new_len, flags, (long)to, 0);
}

VERSIONED("munmap");
VERSIONED("mprotect");
VERSIONED("madvise");
VERSIONED("mmap");
VERSIONED("mmap64");
VERSIONED("mremap");
