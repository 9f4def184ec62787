/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * One trace on disk.
 *
 *	growing		blanks [ event , event … \n]		the closing is written over
 *	1		{"traceEvents":[ … \n]			lacks its }
 *	2		{"traceEvents":[ … \n],"displayTimeUnit":"ms",…}
 *
 * A write may hold many pages: a kernel that is reported to end the writer stops between two of
 * them, and every page ends behind an event.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/mem.h"
#include "formats/chrome_trace/chrome_trace_impl.h"

#define OBJECT_HEAD "{\"traceEvents\":"
#define BLANK_HEAD "               "
#define UNIT "\"displayTimeUnit\":\"ms\""
#define GZIP_HEAD "{" UNIT ",\"traceEvents\":["
#define CLOSING "\n]"
#define PACKED_CLOSING CLOSING "}\n"
#define CLOSING_LEN (sizeof(CLOSING) - 1)
_Static_assert(sizeof(OBJECT_HEAD) == sizeof(BLANK_HEAD), "one takes the place of the other");

static int write_at(int fd, const char *data, size_t n, uint64_t at)
{
	while (n) {
		ssize_t r = pwrite(fd, data, n, (off_t)at);

		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			return -errno;
		if (r == 0)
			return -EIO;
		data += r;
		n -= (size_t)r;
		at += (uint64_t)r;
	}
	return 0;
}

static int fail_file(const struct chrome_file *f, int code, struct err *err)
{
	return err_sys(err, code, "cannot write '%s'", f->path);
}

/* Adds one member with the text to f->packed. */
static void compress_bytes(struct chrome_file *f, const char *text, size_t n)
{
	size_t bound = deflateBound(f->z, n);

	f->z->next_in = (Bytef *)(uintptr_t)text;
	f->z->avail_in = (uInt)n;
	f->z->next_out = (Bytef *)buf_room(&f->packed, bound);
	f->z->avail_out = (uInt)bound;
	BUG_ON(deflate(f->z, Z_FINISH) != Z_STREAM_END);
	f->packed.len += bound - f->z->avail_out;
	deflateReset(f->z);
}

/* After a write that failed: nothing behind `end` but the closing, which was there before. */
static void restore_file(struct chrome_file *f, const char *closing, size_t n)
{
	if (ftruncate(f->fd, (off_t)f->end) == 0)
		(void)write_at(f->fd, closing, n, f->end);
}

static int write_packed(struct chrome_file *f, const char *text, size_t n, struct err *err)
{
	buf_clear(&f->packed);
	if (n)
		compress_bytes(f, text, n);
	size_t written = f->packed.len;
	compress_bytes(f, PACKED_CLOSING, sizeof(PACKED_CLOSING) - 1);
	int r = write_at(f->fd, f->packed.data, f->packed.len, f->end);
	if (r < 0) {
		restore_file(f, f->packed.data + written, f->packed.len - written);
		return fail_file(f, r, err);
	}
	f->end += written;
	return 0;
}

int chrome_file_write(struct chrome_file *f, struct buf *events, struct err *err)
{
	size_t n = events->len;

	if (f->gzip)
		return write_packed(f, events->data, n, err);
	memcpy(buf_room(events, CLOSING_LEN), CLOSING, CLOSING_LEN);
	int r = write_at(f->fd, events->data, n + CLOSING_LEN, f->end);
	if (r < 0) {
		restore_file(f, CLOSING, CLOSING_LEN);
		return fail_file(f, r, err);
	}
	f->end += n;
	return 0;
}

static int write_head(struct chrome_file *f, struct err *err)
{
	static const char head[] = BLANK_HEAD "[" CLOSING;

	if (f->gzip)
		return write_packed(f, GZIP_HEAD, sizeof(GZIP_HEAD) - 1, err);
	int r = write_at(f->fd, head, sizeof(head) - 1, 0);
	f->end = sizeof(head) - 1 - CLOSING_LEN;
	return r < 0 ? fail_file(f, r, err) : 0;
}

/* A file that is there and no plain one, such as /dev/null, is written as it is. Whoever comes to
 * the same path sees by the lock that the file is in use: chrome_file_in_use(). */
static int open_where(struct chrome_file *f, mode_t mode, struct err *err)
{
	static atomic_uint serial;
	struct stat st;

	if (stat(f->path, &st) == 0 && !S_ISREG(st.st_mode)) {
		if (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode))
			return err_set(err, -ESPIPE,
				       "cannot write '%s': a timeline needs a file, not a pipe",
				       f->path);
		if (S_ISDIR(st.st_mode))
			return err_sys(err, -EISDIR, "cannot write '%s'", f->path);
		return fs_open_output(f->path, 0, mode, err);
	}
	f->temporary = xasprintf("%s.%ld-%u.tmp", f->path, (long)getpid(),
				 atomic_fetch_add_explicit(&serial, 1, memory_order_relaxed));
	/* left behind by an earlier process of this number, or put there for us to write to */
	(void)fs_unlink(f->temporary, NULL);
	int fd = fs_open(f->temporary, O_RDWR | O_CREAT | O_EXCL, mode, err);
	if (fd >= 0)
		(void)flock(fd, LOCK_EX | LOCK_NB); /* where there are no locks we go without */
	return fd;
}

bool chrome_file_in_use(const char *path)
{
	int fd = fs_is_stream(path) ? -1 : fs_open(path, O_RDONLY, 0, NULL);

	if (fd < 0)
		return false;
	bool used = flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK;
	close(fd);
	return used;
}

enum chrome_taken chrome_file_taken(const struct chrome_file *f)
{
	struct stat st;
	char first;

	if (f->temporary || fstat(f->fd, &st) < 0 || !S_ISREG(st.st_mode))
		return CHROME_NOT_TAKEN;
	if ((uint64_t)st.st_size < f->end)
		return CHROME_CUT;
	/* cut just before our last write, which made it as long as it was */
	if (pread(f->fd, &first, 1, 0) == 1 && first == '\0')
		return CHROME_CUT;
	return stat(f->path, &st) < 0 && errno == ENOENT ? CHROME_MOVED : CHROME_NOT_TAKEN;
}

/* A link stays one, and a change of directory does not matter. Allocates in any case. */
static int find_path(const char *path, char **out, struct err *err)
{
	struct buf whole = {0};
	int r = fs_is_stream(path) ? fs_absolute(path, &whole, err) : fs_resolve(path, &whole, err);

	if (r < 0)
		buf_add_str(&whole, path);
	buf_str(&whole);
	*out = whole.data;
	return r;
}

int chrome_file_open(struct chrome_file *f, const char *path, const struct chrome_trace_options *o,
		     uint64_t end, struct err *err)
{
	*f = (struct chrome_file){.fd = -1, .gzip = o->gzip, .end = end};
	int r = find_path(path, &f->path, err);
	if (r == 0)
		r = f->fd = open_where(f, o->mode ? o->mode : 0644, err);
	if (r < 0) {
		free(f->temporary);
		f->temporary = NULL;
	} else {
		r = 0;
	}
	/* 16: a gzip header; the levels above 3 cost more than they save. */
	if (r == 0 && f->gzip) {
		f->z = xcalloc(1, sizeof(*f->z));
		BUG_ON(deflateInit2(f->z, 3, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK);
	}
	if (r == 0 && !end)
		r = write_head(f, err);
	if (r < 0)
		chrome_file_release(f);
	return r;
}

int chrome_file_publish(struct chrome_file *f, struct err *err)
{
	if (!f->temporary)
		return 0;
	int r = fs_rename(f->temporary, f->path, err);

	if (r < 0)
		return r;
	free(f->temporary);
	f->temporary = NULL;
	return 0;
}

static int complete_packed(struct chrome_file *f, const struct buf *rest, struct err *err)
{
	struct buf text = {0};

	buf_add(&text, CLOSING, CLOSING_LEN);
	buf_add(&text, rest->data, rest->len);
	buf_clear(&f->packed);
	compress_bytes(f, text.data, text.len);
	buf_release(&text);
	int r = write_at(f->fd, f->packed.data, f->packed.len, f->end);
	if (r < 0) {
		buf_clear(&f->packed);
		compress_bytes(f, PACKED_CLOSING, sizeof(PACKED_CLOSING) - 1);
		restore_file(f, f->packed.data, f->packed.len);
		return fail_file(f, r, err);
	}
	/* What was there before may have been longer. */
	if (ftruncate(f->fd, (off_t)(f->end + f->packed.len)) < 0 && errno != EINVAL)
		return fail_file(f, -errno, err);
	return 0;
}

static int complete_plain(struct chrome_file *f, struct buf *rest, struct err *err)
{
	uint64_t at = f->end + CLOSING_LEN;
	size_t room = CHROME_PAGE - at % CHROME_PAGE;
	int r = write_at(f->fd, OBJECT_HEAD, sizeof(OBJECT_HEAD) - 1, 0);

	if (r == 0 && rest->len > room) {
		char blanks[CHROME_PAGE];

		memset(blanks, ' ', room);
		r = write_at(f->fd, blanks, room, at);
		at += room;
	}
	if (r == 0)
		r = write_at(f->fd, rest->data, rest->len, at);
	if (r == 0)
		return 0;
	if (write_at(f->fd, BLANK_HEAD, sizeof(BLANK_HEAD) - 1, 0) == 0)
		restore_file(f, CLOSING, CLOSING_LEN);
	return fail_file(f, r, err);
}

int chrome_file_complete(struct chrome_file *f, const char *other_json, struct err *err)
{
	struct buf rest = {0};
	int r;

	if (!f->gzip)
		buf_add_str(&rest, "," UNIT);
	if (other_json && *other_json) {
		buf_add_char(&rest, ',');
		buf_add_str(&rest, other_json);
	}
	buf_add_str(&rest, "}\n");
	r = f->gzip ? complete_packed(f, &rest, err) : complete_plain(f, &rest, err);
	buf_release(&rest);
	return r;
}

int chrome_file_sync(struct chrome_file *f, struct err *err)
{
	/* What is no plain file cannot be synced. */
	if (fsync(f->fd) < 0 && errno != EINVAL && errno != EROFS)
		return fail_file(f, -errno, err);
	return 0;
}

void chrome_file_release(struct chrome_file *f)
{
	if (f->fd >= 0)
		close(f->fd);
	if (f->temporary)
		(void)fs_unlink(f->temporary, NULL);
	free(f->temporary);
	free(f->path);
	if (f->z)
		deflateEnd(f->z);
	free(f->z);
	buf_release(&f->packed);
	*f = (struct chrome_file){.fd = -1};
}
