/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Amends a CSV dump. The dump reader says where the rows lie; the bytes themselves are copied from
 * the old file to the new one, and only an Attr cell that changes is written by us:
 *
 *	old:  header row row row row …          copied: up to here, the next byte to copy
 *	new:  header row row ROW
 *
 * The new file is made when the first change is met: without one there is nothing to write.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "memory/dump/amend_impl.h"
#include "memory/dump/csv_lex.h"
#include "memory/input/reader.h"
#include "memory/input/reader_impl.h"

#define PIECE (256u << 10)

struct csv_copy {
	struct amend *amend;
	int in;
	int out; /* -1 until there is a change */
	char *out_path;
	uint64_t copied;
	struct buf bytes; /* of the old file, from `bytes_at` on */
	uint64_t bytes_at;
	struct buf pending; /* bytes for the new file */
	struct buf attr; /* the old cell without doubled quotes */
};

/* --- the old file --- */

/* The n bytes of the old file that begin at c->copied. */
static int peek(struct csv_copy *c, size_t n, const char **out, struct err *err)
{
	if (c->copied < c->bytes_at || c->copied + n > c->bytes_at + c->bytes.len) {
		size_t want = n > PIECE ? n : PIECE;

		buf_clear(&c->bytes);
		c->bytes_at = c->copied;
		buf_room(&c->bytes, want);
		while (c->bytes.len < n) {
			ssize_t got =
				pread(c->in, c->bytes.data + c->bytes.len, want - c->bytes.len,
				      (off_t)(c->bytes_at + c->bytes.len));

			if (got < 0 && errno == EINTR)
				continue;
			if (got < 0)
				return err_sys(err, -errno, "cannot read \"%s\"", c->amend->path);
			if (got == 0)
				return err_set(err, -EIO, "\"%s\" has changed while it was read",
					       c->amend->path);
			c->bytes.len += (size_t)got;
		}
	}
	*out = c->bytes.data + (c->copied - c->bytes_at);
	return 0;
}

/* --- the new file --- */

/* Beside the old one, with its owner as far as we may, and its permissions. */
static int make_out(struct csv_copy *c, struct err *err)
{
	struct stat st;

	c->out_path = xasprintf("%s.XXXXXX", c->amend->path);
	c->out = mkostemp(c->out_path, O_CLOEXEC);
	if (c->out < 0) {
		int r = err_sys(err, -errno, "cannot write beside \"%s\"", c->amend->path);

		free(c->out_path);
		c->out_path = NULL;
		return r;
	}
	if (fstat(c->in, &st) < 0)
		return err_sys(err, -errno, "cannot stat \"%s\"", c->amend->path);
	if (fchown(c->out, st.st_uid, st.st_gid) < 0)
		(void)!fchown(c->out, (uid_t)-1, st.st_gid);
	if (fchmod(c->out, st.st_mode & 0777) < 0)
		return err_sys(err, -errno, "cannot write beside \"%s\"", c->amend->path);
	return 0;
}

static int write_pending(struct csv_copy *c, struct err *err)
{
	size_t done = 0;

	while (done < c->pending.len) {
		ssize_t n = write(c->out, c->pending.data + done, c->pending.len - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return err_sys(err, n < 0 ? -errno : -EIO, "cannot write beside \"%s\"",
				       c->amend->path);
		done += (size_t)n;
	}
	buf_clear(&c->pending);
	return 0;
}

/* Copies up to the offset in the old file. */
static int copy_to(struct csv_copy *c, uint64_t offset, struct err *err)
{
	int r = 0;

	while (c->copied < offset && r == 0) {
		uint64_t left = offset - c->copied;
		size_t n = left < PIECE ? (size_t)left : PIECE;
		const char *from;

		r = peek(c, n, &from, err);
		if (r < 0)
			return r;
		buf_add(&c->pending, from, n);
		c->copied += n;
		if (c->pending.len >= PIECE)
			r = write_pending(c, err);
	}
	return r;
}

static void add_quoted(struct buf *out, const char *s, size_t n)
{
	buf_add_char(out, '"');
	for (const char *quote; (quote = n ? memchr(s, '"', n) : NULL);) {
		size_t part = (size_t)(quote - s) + 1;

		buf_add(out, s, part);
		buf_add_char(out, '"');
		s += part;
		n -= part;
	}
	buf_add(out, s, n);
	buf_add_char(out, '"');
}

/* --- rows --- */

/* The Attr cell as it stands in the record at p: from and to with its quotes, its text in c->attr.
 */
static bool find_attr(struct csv_copy *c, const char *p, size_t len, size_t field, size_t *from,
		      size_t *to)
{
	struct csv_lex lex = {0};

	if (csv_lex_next(&lex, p, len) != 1 && !csv_lex_end(&lex, p, len))
		return false;
	if (field >= lex.nfields)
		return false;
	struct cell cell = lex.fields[field];
	*from = (size_t)(cell.text - p);
	*to = *from + cell.len;
	if (*from && p[*from - 1] == '"') {
		--*from;
		++*to;
	}
	buf_clear(&c->attr);
	buf_add(&c->attr, cell.text, cell.len);
	if (lex.doubled >> field & 1)
		c->attr.len = csv_unquote(c->attr.data, c->attr.len);
	return c->attr.len >= 2;
}

static int amend_row(struct csv_copy *c, const struct dump_source *src,
		     const struct amendment *finding, struct err *err)
{
	uint64_t copied = c->copied;
	const char *p;
	size_t from, to;

	c->copied = src->place.offset;
	int r = peek(c, src->place.len, &p, err);
	if (r < 0)
		return r;
	if (!find_attr(c, p, src->place.len, src->attr_field, &from, &to))
		return err_set(err, -EIO, "\"%s\" has changed while it was read", c->amend->path);
	c->copied = copied;
	if (!amend_attrs(c->amend, &amend_csv, c->attr.data, c->attr.len, finding))
		return 0;
	if (c->out < 0)
		r = make_out(c, err);
	if (r == 0)
		r = copy_to(c, src->place.offset + from, err);
	add_quoted(&c->pending, c->amend->cell.data, c->amend->cell.len);
	c->copied = src->place.offset + to;
	c->amend->rows++;
	return r;
}

static int amend_rows(struct csv_copy *c, struct err *err)
{
	struct dump *d;
	struct row row;
	int fd = fcntl(c->in, F_DUPFD_CLOEXEC, 0);

	if (fd < 0)
		return err_sys(err, -errno, "cannot open \"%s\"", c->amend->path);
	int r = dump_open_csv(fd, c->amend->path, DUMP_SKIP_BAD, &d, err);
	if (r < 0)
		return r;
	while ((r = dump_next(d, &row, err)) > 0) {
		const struct amendment *finding = amend_find(c->amend, &row);

		r = finding ? amend_row(c, dump_source(d), finding, err) : 0;
		if (r < 0)
			break;
	}
	dump_close(d);
	return r;
}

/* The rest of the old file, then the new one takes its place. */
static int finish(struct csv_copy *c, struct err *err)
{
	struct stat st;

	if (fstat(c->in, &st) < 0)
		return err_sys(err, -errno, "cannot stat \"%s\"", c->amend->path);
	int r = copy_to(c, (uint64_t)st.st_size, err);
	if (r == 0)
		r = write_pending(c, err);
	if (r < 0)
		return r;
	if (fsync(c->out) < 0 || rename(c->out_path, c->amend->path) < 0)
		return err_sys(err, -errno, "cannot replace \"%s\"", c->amend->path);
	free(c->out_path);
	c->out_path = NULL;
	return 0;
}

int amend_csv_file(struct amend *a, int fd, struct err *err)
{
	struct csv_copy c = {.amend = a, .in = fd, .out = -1};
	int r = 0;

	/* Writers hold it; where locks do not work (some network file systems) we do without. */
	if (flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK)
		r = err_set(err, -EBUSY, "\"%s\" is being written by another process", a->path);
	if (r == 0)
		r = amend_rows(&c, err);
	if (r == 0 && c.out >= 0)
		r = finish(&c, err);
	if (c.out_path)
		unlink(c.out_path);
	free(c.out_path);
	if (c.out >= 0)
		close(c.out);
	close(fd);
	buf_release(&c.bytes);
	buf_release(&c.pending);
	buf_release(&c.attr);
	return r;
}
