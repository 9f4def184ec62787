/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Reading a block back from the device: in pieces, into memory that we map ourselves, and on demand
 * into a file. Files go to the recording's own directory under a number; the recorder moves them to
 * where users look for them once it has read the number.
 *
 * What cannot be written is told by its errno and removed: a full disk is not the job's problem.
 * Raw system calls: those of the C library are places where threads may be cancelled.
 */
#include "guest/watch/watch.h"

#include "guest/collect/checksum.h"
#include "guest/runtime/env.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define PIECE (1u << 20)
#define SPARES 8
#define PATH_BYTES 1300

static _Atomic(void *) spares[SPARES];

static void *buffer_take(void)
{
	for (int i = 0; i < SPARES; i++) {
		void *p = atomic_exchange(&spares[i], NULL);
		if (p)
			return p;
	}
	void *p = mmap(NULL, PIECE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return p == MAP_FAILED ? NULL : p;
}

static void buffer_give(void *p)
{
	for (int i = 0; i < SPARES; i++) {
		void *none = NULL;
		if (atomic_compare_exchange_strong(&spares[i], &none, p))
			return;
	}
	munmap(p, PIECE);
}

/* --- the file --- */

struct file {
	long fd; /* negative errno: there is none */
	uint64_t number;
	char path[PATH_BYTES];
};

static char *put_number(char *end, uint64_t n)
{
	do
		*--end = (char)('0' + n % 10);
	while (n /= 10);
	return end;
}

static int file_path(struct file *f)
{
	char name[64], *at = name + sizeof(name) - 1;
	char dir[PATH_BYTES];

	*at = '\0';
	at = put_number(at, f->number);
	*--at = '-';
	at = put_number(at, guest_noted_owner());
	if (guest_join_path(dir, sizeof(dir), guest_session_dir(), SESSION_WATCH_DIR) < 0)
		return -ENAMETOOLONG;
	syscall(SYS_mkdirat, AT_FDCWD, dir, 0700);
	return guest_join_path(f->path, sizeof(f->path), dir, at) < 0 ? -ENAMETOOLONG : 0;
}

/* A file above the job's limit would earn it a SIGXFSZ. */
static bool is_allowed(uint64_t bytes)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
	       bytes <= limit.rlim_cur;
}

static void file_open(struct file *f, uint64_t bytes)
{
	f->number = guest_now();
	f->fd = is_allowed(bytes) ? file_path(f) : -EFBIG;
	if (f->fd < 0)
		return;
	f->fd = syscall(SYS_openat, AT_FDCWD, f->path,
			O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (f->fd < 0)
		f->fd = -errno;
}

static void file_drop(struct file *f, int why)
{
	syscall(SYS_close, (int)f->fd);
	syscall(SYS_unlinkat, AT_FDCWD, f->path, 0);
	f->fd = -why;
}

static void file_write(struct file *f, const char *data, size_t n)
{
	while (n && f->fd >= 0) {
		long r = syscall(SYS_write, (int)f->fd, data, n);
		if (r < 0 && errno == EINTR)
			continue;
		if (r <= 0) {
			file_drop(f, r < 0 ? errno : ENOSPC);
			return;
		}
		data += r;
		n -= (size_t)r;
	}
}

/* --- the look --- */

/* What is not mapped any more, or never was, is an error. */
static int host_read(void *out, uint64_t addr, size_t bytes)
{
	struct iovec to = {out, bytes}, from = {(void *)(uintptr_t)addr, bytes};
	long n = syscall(SYS_process_vm_readv, syscall(SYS_getpid), &to, 1ul, &from, 1ul, 0ul);

	if (n == (long)bytes)
		return 0;
	return n < 0 ? errno : EFAULT;
}

static int block_read(const struct watch_block *b, void *out, uint64_t offset, size_t bytes)
{
	if (atomic_load(b->id) != b->was)
		return ECANCELED;
	return b->host ? host_read(out, b->addr + offset, bytes)
		       : watch_device->read(out, b->addr + offset, bytes);
}

static void look_with(char *buffer, const struct watch_block *b, struct file *f,
		      struct watch_look *out)
{
	uint64_t c = CHECKSUM_BEGIN;

	for (uint64_t done = 0; done < b->bytes;) {
		size_t n = b->bytes - done < PIECE ? (size_t)(b->bytes - done) : PIECE;
		int r = block_read(b, buffer, done, n);
		if (r) {
			out->error = (uint32_t)r;
			return;
		}
		c = checksum_add(c, buffer, n);
		if (f)
			file_write(f, buffer, n);
		done += n;
	}
	out->checksum = checksum_end(c);
}

void watch_look_drop(const struct watch_look *look)
{
	struct file f = {.number = look->content};

	if (f.number && file_path(&f) == 0)
		syscall(SYS_unlinkat, AT_FDCWD, f.path, 0);
}

void watch_look(const struct watch_block *b, bool content, struct watch_look *out)
{
	char *buffer = buffer_take();
	struct file f;

	*out = (struct watch_look){0};
	if (!buffer) {
		out->error = ENOMEM;
		return;
	}
	if (content)
		file_open(&f, b->bytes);
	look_with(buffer, b, content ? &f : NULL, out);
	buffer_give(buffer);
	if (!content)
		return;
	if (out->error && f.fd >= 0)
		file_drop(&f, EIO);
	if (f.fd >= 0) {
		syscall(SYS_close, (int)f.fd);
		out->content = f.number;
	} else {
		out->content_errno = (uint8_t)(-f.fd < 256 ? -f.fd : EIO);
	}
}
