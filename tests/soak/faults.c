/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Disk and memory that fail when the kill matrix says so. This file is linked into a second sonde,
 * build/soak/bin/sonde, and stands in front of the C library for it and for SQLite: a recorder takes
 * LD_PRELOAD out of its environment, so a library would not reach it. The job has nothing of this.
 *
 * SOAK_FAULTS names a file of words that the matrix writes while we run (tests/soak/faults.py).
 */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum fault { NONE, FAIL_WRITES, SHORTEN_WRITES, FAIL_SYNCS, FAIL_MALLOCS };

struct words {
	_Atomic uint32_t fault;
	_Atomic uint32_t error; /* errno of the calls that fail */
	_Atomic uint32_t every; /* 1: each call fails, 2: each second one, ... */
	_Atomic uint32_t calls; /* of that kind so far */
	_Atomic uint32_t failed;
};

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *old, size_t size);
void *__libc_memalign(size_t align, size_t size);

static struct words off, *words = &off;

__attribute__((constructor)) static void map_words(void)
{
	const char *path = getenv("SOAK_FAULTS");
	int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;

	if (fd < 0)
		return;
	void *at = mmap(NULL, sizeof(*words), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (at != MAP_FAILED)
		words = at;
	close(fd);
}

/* Whether this call is one that fails. */
static bool hits(enum fault fault)
{
	if (atomic_load_explicit(&words->fault, memory_order_relaxed) != (uint32_t)fault)
		return false;
	uint32_t every = atomic_load(&words->every);
	if (!every || (atomic_fetch_add(&words->calls, 1) + 1) % every)
		return false;
	atomic_fetch_add(&words->failed, 1);
	errno = (int)atomic_load(&words->error);
	return true;
}

/* Sockets and pipes have no disk behind them; on stderr we say what is wrong. */
static bool is_file(int fd)
{
	struct stat st;
	int before = errno;
	bool file = atomic_load_explicit(&words->fault, memory_order_relaxed) != NONE && fd > 2 &&
		    fstat(fd, &st) == 0 && S_ISREG(st.st_mode);

	errno = before;
	return file;
}

/* How much of a write is done; 0: it fails. */
static size_t allowed(int fd, size_t n)
{
	if (!is_file(fd))
		return n;
	if (hits(FAIL_WRITES))
		return 0;
	return n > 1 && hits(SHORTEN_WRITES) ? n / 2 : n;
}

ssize_t write(int fd, const void *data, size_t n)
{
	size_t part = allowed(fd, n);

	return n && !part ? -1 : syscall(SYS_write, fd, data, part);
}

ssize_t pwrite(int fd, const void *data, size_t n, off_t at)
{
	size_t part = allowed(fd, n);

	return n && !part ? -1 : syscall(SYS_pwrite64, fd, data, part, at);
}

ssize_t pwrite64(int fd, const void *data, size_t n, off64_t at)
{
	return pwrite(fd, data, n, at);
}

ssize_t writev(int fd, const struct iovec *iov, int n)
{
	if (n > 0 && !allowed(fd, 2))
		return -1;
	return syscall(SYS_writev, fd, iov, n);
}

int fsync(int fd)
{
	return hits(FAIL_SYNCS) ? -1 : (int)syscall(SYS_fsync, fd);
}

int fdatasync(int fd)
{
	return hits(FAIL_SYNCS) ? -1 : (int)syscall(SYS_fdatasync, fd);
}

int fallocate(int fd, int mode, off_t at, off_t n)
{
	return is_file(fd) && hits(FAIL_WRITES) ? -1 : (int)syscall(SYS_fallocate, fd, mode, at, n);
}

int ftruncate(int fd, off_t n)
{
	return is_file(fd) && hits(FAIL_WRITES) ? -1 : (int)syscall(SYS_ftruncate, fd, n);
}

int ftruncate64(int fd, off64_t n)
{
	return ftruncate(fd, n);
}

void *malloc(size_t size)
{
	return hits(FAIL_MALLOCS) ? NULL : __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
	return hits(FAIL_MALLOCS) ? NULL : __libc_calloc(n, size);
}

void *realloc(void *old, size_t size)
{
	return hits(FAIL_MALLOCS) ? NULL : __libc_realloc(old, size);
}

void *aligned_alloc(size_t align, size_t size)
{
	return hits(FAIL_MALLOCS) ? NULL : __libc_memalign(align, size);
}
