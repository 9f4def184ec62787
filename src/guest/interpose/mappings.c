/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The job's calls that map, unmap, protect or replace memory.
 *
 * They are reported where host memory is recorded (guest/collect/mappings.c), and they are kept from
 * memory that is ours (guest/runtime/mappings.c). All others are passed on at once.
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
#include "guest/interpose/next.h"

#include <errno.h>
#include <linux/magic.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#if defined(__aarch64__)
#	define LIBC_VERSION "GLIBC_2.17"
#else
#	define LIBC_VERSION "GLIBC_2.2.5"
#endif
#define EXPORT __attribute__((visibility("default"), used))
#define CALLER __builtin_return_address(0)
/* Ours under a name that nobody else has; and under the C library's. */
#define OURS(name) __asm__("sonde_job_" name)
#define VERSIONED(name) __asm__(".symver sonde_job_" name "," name "@" LIBC_VERSION)
#define PAGE_MASK 4095ull

typedef long (*call_fn)(long a, long b, long c, long d, long e, long f);

enum { MUNMAP, MPROTECT, MADVISE, MMAP, MREMAP, SHMAT, SHMDT, BRK, SBRK, CALLS };

static struct {
	const char *name;
	long number; /* of the system call that it is */
	_Atomic(call_fn) next;
} calls[CALLS] = {
	[MUNMAP] = {.name = "munmap", .number = SYS_munmap},
	[MPROTECT] = {.name = "mprotect", .number = SYS_mprotect},
	[MADVISE] = {.name = "madvise", .number = SYS_madvise},
	[MMAP] = {.name = "mmap", .number = SYS_mmap},
	[MREMAP] = {.name = "mremap", .number = SYS_mremap},
	[SHMAT] = {.name = "shmat", .number = SYS_shmat},
	[SHMDT] = {.name = "shmdt", .number = SYS_shmdt},
	[BRK] = {.name = "brk"}, /* the C library keeps the break: */
	[SBRK] = {.name = "sbrk"}, /* these have no system call in their place */
};

/* Before that the loader's lock may be held by who calls: the system call itself does, too. */
__attribute__((constructor)) static void find_next(void)
{
	for (int i = 0; i < CALLS; i++)
		atomic_store(&calls[i].next, (call_fn)next_function(calls[i].name));
}

static long call_next(int which, long a, long b, long c, long d, long e, long f)
{
	call_fn next = atomic_load_explicit(&calls[which].next, memory_order_relaxed);

	if (__builtin_expect(next != NULL, 1))
		return next(a, b, c, d, e, f);
	return syscall(calls[which].number, a, b, c, d, e, f);
}

static long call_break(int which, long arg)
{
	if (!atomic_load(&calls[which].next))
		find_next();
	call_fn next = atomic_load(&calls[which].next);
	if (next)
		return next(arg, 0, 0, 0, 0, 0);
	errno = ENOMEM;
	return -1;
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

/* --- what is reported --- */

/* A file that exists in memory alone, as shm_open() and memfd_create() make them. */
static bool is_in_memory(int fd)
{
	struct statfs st;

	return !collect_is_sealed() && syscall(SYS_fstatfs, fd, &st) == 0 &&
	       (st.f_type == TMPFS_MAGIC || st.f_type == HUGETLBFS_MAGIC);
}

static uint8_t kind_of(int prot, int flags, int fd)
{
	bool shared = (flags & MAP_TYPE) != MAP_PRIVATE;

	if (!(flags & MAP_ANONYMOUS))
		return shared && is_in_memory(fd) ? ALLOC_SHARED : ALLOC_FILE;
	if (!(prot & PROT_WRITE) || (!shared && flags & MAP_NORESERVE))
		return ALLOC_RESERVED;
	return shared ? ALLOC_SHARED : ALLOC_MAPPED;
}

static void report_mmap(void *at, size_t len, int prot, int flags, int fd, const void *caller)
{
	int saved = errno;

	if (at != MAP_FAILED)
		collect_map(MAP_ADD, (uint64_t)at, len, kind_of(prot, flags, fd), caller);
	else if (saved == ENOMEM && flags & MAP_ANONYMOUS &&
		 kind_of(prot, flags, fd) != ALLOC_RESERVED)
		collect_host_refusal(len, caller);
	errno = saved;
}

/* --- the calls --- */

EXPORT int job_munmap(void *at, size_t len) OURS("munmap");
EXPORT int job_munmap(void *at, size_t len)
{
	if (!collect_sees_mappings(CALLER))
		return around_ours(MUNMAP, (uint64_t)at, len, 0);
	struct collect_pending p = collect_unmap_begin();
	int r = around_ours(MUNMAP, (uint64_t)at, len, 0);
	collect_unmap_end(p, MAP_DROP, (uint64_t)at, len, r == 0, CALLER);
	return r;
}

EXPORT int job_mprotect(void *at, size_t len, int prot) OURS("mprotect");
EXPORT int job_mprotect(void *at, size_t len, int prot)
{
	int r = around_ours(MPROTECT, (uint64_t)at, len, prot);

	if (prot & PROT_WRITE && collect_sees_mappings(CALLER) && r == 0)
		collect_map(MAP_COMMIT, (uint64_t)at, len, 0, CALLER);
	return r;
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
EXPORT void *job_mmap64(void *at, size_t len, int prot, int flags, int fd, off_t off)
	OURS("mmap64");

static inline void *map_for(void *at, size_t len, int prot, int flags, int fd, off_t off,
			    const void *caller)
{
	if (__builtin_expect(flags & MAP_FIXED, 0))
		make_way((uint64_t)at, len);
	at = (void *)call_next(MMAP, (long)at, (long)len, prot, flags, fd, off);
	if (__builtin_expect(collect_sees_mappings(caller), 0))
		report_mmap(at, len, prot, flags, fd, caller);
	return at;
}

EXPORT void *job_mmap(void *at, size_t len, int prot, int flags, int fd, off_t off)
{
	return map_for(at, len, prot, flags, fd, off, CALLER);
}

EXPORT void *job_mmap64(void *at, size_t len, int prot, int flags, int fd, off_t off)
{
	return map_for(at, len, prot, flags, fd, off, CALLER);
}

EXPORT void *job_mremap(void *at, size_t len, size_t new_len, int flags, void *to) OURS("mremap");
EXPORT void *job_mremap(void *at, size_t len, size_t new_len, int flags, void *to)
{
	bool sees = collect_sees_mappings(CALLER);

	make_way((uint64_t)at, len);
	if (flags & MREMAP_FIXED)
		make_way((uint64_t)to, new_len);
	struct collect_pending p = {0, false};
	if (sees)
		p = collect_unmap_begin();
	void *now =
		(void *)call_next(MREMAP, (long)at, (long)len, (long)new_len, flags, (long)to, 0);
	if (!sees)
		return now;
	/* An old length of 0 makes a second mapping of the same memory. */
	collect_unmap_end(p, MAP_LEAVE, (uint64_t)at, len, now != MAP_FAILED && len, CALLER);
	if (now != MAP_FAILED)
		collect_map(MAP_ARRIVE, (uint64_t)now, new_len, 0, CALLER);
	return now;
}

EXPORT void *job_shmat(int id, const void *at, int flags) OURS("shmat");
EXPORT void *job_shmat(int id, const void *at, int flags)
{
	struct shmid_ds st;
	void *p = (void *)call_next(SHMAT, id, (long)at, flags, 0, 0, 0);
	int saved = errno;

	if (p != (void *)-1 && collect_sees_mappings(CALLER) && !collect_is_sealed() &&
	    syscall(SYS_shmctl, id, IPC_STAT, &st) == 0)
		collect_map(MAP_ADD, (uint64_t)p, st.shm_segsz, ALLOC_SHARED, CALLER);
	errno = saved;
	return p;
}

EXPORT int job_shmdt(const void *at) OURS("shmdt");
EXPORT int job_shmdt(const void *at)
{
	if (!collect_sees_mappings(CALLER))
		return (int)call_next(SHMDT, (long)at, 0, 0, 0, 0, 0);
	struct collect_pending p = collect_unmap_begin();
	int r = (int)call_next(SHMDT, (long)at, 0, 0, 0, 0, 0);
	collect_unmap_end(p, MAP_DROP, (uint64_t)at, 0, r == 0, CALLER);
	return r;
}

static void report_break(long from, long to, const void *caller)
{
	long old = (long)(((uint64_t)from + PAGE_MASK) & ~PAGE_MASK);
	long now = (long)(((uint64_t)to + PAGE_MASK) & ~PAGE_MASK);

	if (now > old)
		collect_map(MAP_ADD, (uint64_t)old, (uint64_t)(now - old), ALLOC_MAPPED, caller);
	else if (now < old)
		collect_map(MAP_DROP, (uint64_t)now, (uint64_t)(old - now), 0, caller);
}

EXPORT int job_brk(void *to) OURS("brk");
EXPORT int job_brk(void *to)
{
	bool sees = collect_sees_mappings(CALLER);
	long from = sees ? call_break(SBRK, 0) : -1;
	int r = (int)call_break(BRK, (long)to);

	if (r == 0 && from != -1)
		report_break(from, (long)to, CALLER);
	return r;
}

EXPORT void *job_sbrk(intptr_t more) OURS("sbrk");
EXPORT void *job_sbrk(intptr_t more)
{
	long from = call_break(SBRK, more);

	if (more && from != -1 && collect_sees_mappings(CALLER))
		report_break(from, from + more, CALLER);
	return (void *)from;
}

VERSIONED("munmap");
VERSIONED("mprotect");
VERSIONED("madvise");
VERSIONED("mmap");
VERSIONED("mmap64");
VERSIONED("mremap");
VERSIONED("shmat");
VERSIONED("shmdt");
VERSIONED("brk");
VERSIONED("sbrk");
