/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Cells out of a CSV dump. The buffer holds the record at hand and what was read behind it:
 *
 *	file:   base ---- base + at
 *	buffer: data ---- at ---------- at + lex.at --------- len
 *	                  the record    where it ends         read ahead, then CELL_SLACK
 *
 * A record that makes no sense (text behind a closing quote, a wrong number of fields) is one line
 * long: reading goes on at the first line end behind its start, so that one stray quote does not
 * swallow the rows behind it.
 */
#include "export/dump_source.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "export/block_cache.h"
#include "export/csv_lex.h"

#define READ_PIECE (128u << 10) /* small enough to stay in the cache until it is parsed */

struct csv_source {
	struct dump_source src;
	int fd;
	const char *memory; /* instead of fd */
	size_t memory_len;
	struct buf buf;
	uint64_t base;
	size_t at;
	struct csv_lex lex;
	bool eof;
	bool in_bad_line; /* at its start, or behind what was thrown away of it */
	uint64_t next_line; /* number of the line at `at` */
	struct block_cache *blocks; /* of again() */
	size_t nfields; /* of the header */
};

/* Bytes of the file at the offset, fewer at its end, or a negative errno. */
static ssize_t read_at(void *arg, char *to, size_t n, uint64_t offset)
{
	struct csv_source *s = arg;
	ssize_t got;

	if (s->fd < 0) {
		size_t left = offset < s->memory_len ? s->memory_len - offset : 0;

		n = n < left ? n : left;
		if (n)
			memcpy(to, s->memory + offset, n);
		return (ssize_t)n;
	}
	do
		got = pread(s->fd, to, n, (off_t)offset);
	while (got < 0 && errno == EINTR);
	return got < 0 ? -errno : got;
}

/* Adds what the file has next to the buffer; 0 or negative errno. Sets eof. */
static int fill(struct csv_source *s, size_t n, struct err *err)
{
	if (s->at) {
		memmove(s->buf.data, s->buf.data + s->at, s->buf.len - s->at);
		s->buf.len -= s->at;
		s->base += s->at;
		s->at = 0;
	}
	char *to = buf_room(&s->buf, n + CELL_SLACK);
	ssize_t got = read_at(s, to, n, s->base + s->buf.len);
	if (got < 0)
		return err_sys(err, (int)got, "cannot read \"%s\"", s->src.path);
	memset(to + got, 0, CELL_SLACK);
	s->buf.len += (size_t)got;
	s->eof = !got;
	return 0;
}

/* Moves behind the `n` bytes at hand, which hold `lines` line ends. */
static void advance(struct csv_source *s, size_t n, uint64_t lines)
{
	s->at += n;
	s->next_line += lines;
	s->lex.state = CSV_RECORD_START;
	s->lex.at = 0;
	s->lex.lines = 0;
}

static int bad_record(struct csv_source *s, const char *what, struct err *err)
{
	s->in_bad_line = true;
	return err_set(err, -EBADMSG, "\"%s\" line %llu: %s", s->src.path,
		       (unsigned long long)s->src.line, what);
}

/* Leaves the first line of a bad record, however long it is. */
static int leave_bad_line(struct csv_source *s, struct err *err)
{
	int r = 0;

	while (s->in_bad_line && r == 0) {
		const char *p = s->buf.data + s->at;
		const char *lf = memchr(p, '\n', s->buf.len - s->at);

		advance(s, lf ? (size_t)(lf - p) + 1 : s->buf.len - s->at, lf ? 1 : 0);
		s->in_bad_line = !lf && !s->eof;
		if (s->in_bad_line)
			r = fill(s, READ_PIECE, err);
	}
	return r;
}

/* Finds the record at s->at: 1 and its length, 0 at the end. */
static int next_record(struct csv_source *s, size_t *out_len, struct err *err)
{
	int r = s->in_bad_line ? leave_bad_line(s, err) : 0;

	while (r == 0) {
		const char *p = s->buf.data + s->at;
		size_t left = s->buf.len - s->at;

		s->src.line = s->next_line;
		r = csv_lex_next(&s->lex, p, left);
		*out_len = s->lex.at;
		if (r < 0)
			return bad_record(s, "text behind a closing quote", err);
		if (r == 0 && s->eof) {
			s->src.torn |= left > 0;
			return left && csv_lex_end(&s->lex, p, left);
		}
		if (s->lex.at >= CSV_MAX_RECORD)
			return bad_record(s, "row without an end", err);
		if (r > 0)
			return 1;
		r = fill(s, left > READ_PIECE ? left : READ_PIECE, err);
		advance(s, 0, 0); /* begins the record again: its fields have moved */
	}
	return r;
}

static bool is_blank(const struct csv_source *s)
{
	const struct cell *first = &s->lex.fields[0];

	/* a quoted one begins behind its quote */
	return s->lex.nfields == 1 && !first->len && first->text == s->buf.data + s->at;
}

static void unquote(struct csv_lex *lex)
{
	for (uint32_t bits = lex->doubled; bits; bits &= bits - 1) {
		struct cell *f = &lex->fields[__builtin_ctz(bits)];

		f->len = csv_unquote((char *)(uintptr_t)f->text, f->len);
	}
}

static int csv_next(struct dump_source *src, struct err *err)
{
	struct csv_source *s = (struct csv_source *)src;
	size_t len;
	int r;

	while ((r = next_record(s, &len, err)) > 0 && is_blank(s))
		advance(s, len, s->lex.lines);
	if (r <= 0)
		return r;
	if (s->lex.nfields != s->nfields) {
		if (!src->torn)
			return bad_record(s, "wrong number of fields", err);
		advance(s, len, 0);
		return 0;
	}
	src->place = (struct dump_place){s->base + s->at, src->line, len};
	unquote(&s->lex);
	advance(s, len, s->lex.lines);
	return 1;
}

static int csv_again(struct dump_source *src, struct dump_place place, struct err *err)
{
	struct csv_source *s = (struct csv_source *)src;
	struct csv_lex *lex = &s->lex;
	char *p;

	if (!s->blocks) {
		s->blocks = xcalloc(1, sizeof(*s->blocks));
		*s->blocks = (struct block_cache){.read = read_at, .arg = s, .slack = CELL_SLACK};
	}
	src->line = place.line;
	advance(s, 0, 0);
	int r = block_cache_get(s->blocks, place.offset, place.len, &p);
	if (r < 0 && r != -ENODATA)
		return err_sys(err, r, "cannot read \"%s\"", src->path);
	if (r == 0 && (csv_lex_next(lex, p, place.len) == 1 || csv_lex_end(lex, p, place.len)) &&
	    lex->nfields == s->nfields) {
		unquote(lex);
		return 1;
	}
	return err_set(err, -EIO, "\"%s\" has changed while it was read", src->path);
}

static void csv_free(struct dump_source *src)
{
	struct csv_source *s = (struct csv_source *)src;

	if (s->fd >= 0)
		close(s->fd);
	if (s->blocks)
		block_cache_release(s->blocks);
	free(s->blocks);
	buf_release(&s->buf);
	free(s);
}

static const struct dump_source_ops csv_ops = {
	.is_db = false,
	.next = csv_next,
	.again = csv_again,
	.free = csv_free,
};

static int read_header(struct csv_source *s, struct err *err)
{
	size_t len = 0;
	int r = fill(s, READ_PIECE, err);

	if (r < 0)
		return r;
	if (s->buf.len >= 3 && !memcmp(s->buf.data, "\xef\xbb\xbf", 3))
		s->at = 3;
	r = next_record(s, &len, err);
	if (r < 0 && r != -EBADMSG)
		return r;
	if (r <= 0)
		return err_set(err, -EINVAL, "\"%s\" is not a memory dump: no header", s->src.path);
	s->src.torn = false;
	s->nfields = s->lex.nfields;
	if (s->nfields > CSV_MAX_FIELDS)
		return err_set(err, -EINVAL, "\"%s\" has more than %d columns", s->src.path,
			       CSV_MAX_FIELDS);
	for (size_t i = 0; i < s->nfields; i++) {
		const struct cell *f = &s->lex.fields[i];
		enum cell_column col = cell_column_find(f->text, f->len);

		if (col != COL_END)
			s->src.columns[col] = f;
		if (col == COL_ATTR)
			s->src.attr_field = i;
	}
	advance(s, len, s->lex.lines);
	return dump_check_columns(&s->src, err);
}

int dump_csv_open(int fd, const void *data, size_t len, const char *path, struct dump_source **out,
		  struct err *err)
{
	struct csv_source *s = xcalloc(1, sizeof(*s));

	s->src.ops = &csv_ops;
	s->src.path = path;
	s->fd = fd;
	s->memory = data;
	s->memory_len = len;
	s->next_line = 1;
	int r = read_header(s, err);
	if (r < 0)
		csv_free(&s->src);
	else
		*out = &s->src;
	return r;
}
