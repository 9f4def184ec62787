/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Cells out of a CSV dump. The buffer holds the record at hand and what was read behind it:
 *
 *	data ---- at ---------- at + lex.at --------- len
 *	          the record    where it ends         read ahead
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
#include "export/csv_lex.h"

#define READ_PIECE (256u << 10)
#define MAX_FIELDS 32

struct csv_source {
	struct dump_source src;
	int fd;
	const char *memory; /* instead of fd */
	size_t memory_len;
	struct buf buf;
	size_t at;
	struct csv_lex lex;
	bool eof;
	uint64_t next_line; /* number of the line at `at` */
	size_t nfields; /* of the header */
	enum cell_column columns[MAX_FIELDS];
};

/* Reads on; 0 or negative errno. Sets eof. */
static int fill(struct csv_source *s, struct err *err)
{
	ssize_t n;

	if (s->at) {
		memmove(s->buf.data, s->buf.data + s->at, s->buf.len - s->at);
		s->buf.len -= s->at;
		s->at = 0;
	}
	if (s->fd < 0) {
		n = (ssize_t)(s->memory_len < READ_PIECE ? s->memory_len : READ_PIECE);
		char *to = buf_room(&s->buf, (size_t)n + 1);
		if (n) {
			memcpy(to, s->memory, (size_t)n);
			s->memory += n;
			s->memory_len -= (size_t)n;
		}
	} else {
		char *to = buf_room(&s->buf, READ_PIECE);

		do
			n = read(s->fd, to, READ_PIECE);
		while (n < 0 && errno == EINTR);
	}
	if (n < 0)
		return err_sys(err, -errno, "cannot read \"%s\"", s->src.path);
	s->buf.len += (size_t)n;
	s->eof = !n;
	return 0;
}

/* Moves behind the `n` bytes at hand, which hold `lines` line ends. */
static void advance(struct csv_source *s, size_t n, uint64_t lines)
{
	s->at += n;
	s->next_line += lines;
	s->lex = (struct csv_lex){0};
}

/* Leaves the first line of the record at hand; there may be none when a huge one has no end. */
static int bad_record(struct csv_source *s, const char *what, struct err *err)
{
	char *p = s->buf.data + s->at;
	char *lf = memchr(p, '\n', s->buf.len - s->at);

	advance(s, lf ? (size_t)(lf - p) + 1 : s->buf.len - s->at, lf ? 1 : 0);
	return err_set(err, -EBADMSG, "\"%s\" line %llu: %s", s->src.path,
		       (unsigned long long)s->src.line, what);
}

/* Finds the record at s->at: 1 and its length, 0 at the end. */
static int next_record(struct csv_source *s, size_t *out_len, struct err *err)
{
	for (;;) {
		s->src.line = s->next_line;
		int r = csv_lex_next(&s->lex, s->buf.data + s->at, s->buf.len - s->at);
		if (r < 0)
			return bad_record(s, "text behind a closing quote", err);
		if (r > 0) {
			*out_len = s->lex.at;
			return 1;
		}
		if (s->eof) {
			*out_len = s->buf.len - s->at;
			s->src.torn |= *out_len > 0;
			return *out_len && s->lex.state != CSV_QUOTED;
		}
		if (s->buf.len - s->at > CSV_MAX_RECORD)
			return bad_record(s, "row without an end", err);
		r = fill(s, err);
		if (r < 0)
			return r;
	}
}

static bool is_blank(const char *p, size_t n)
{
	return !n || *p == '\n' || (*p == '\r' && (n == 1 || p[1] == '\n'));
}

static int csv_next(struct dump_source *src, struct cell *cells, struct err *err)
{
	struct csv_source *s = (struct csv_source *)src;
	struct csv_field fields[MAX_FIELDS];
	size_t len;
	int r;

	for (;;) {
		r = next_record(s, &len, err);
		if (r <= 0)
			return r;
		if (!is_blank(s->buf.data + s->at, len))
			break;
		advance(s, len, s->lex.lines);
	}
	size_t n = csv_split(s->buf.data + s->at, len, fields, MAX_FIELDS);
	if (n != s->nfields) {
		if (!src->torn)
			return bad_record(s, "wrong number of fields", err);
		advance(s, len, 0);
		return 0;
	}
	for (size_t i = 0; i < n; i++) {
		if (s->columns[i] == COL_END)
			continue;
		csv_unquote(&fields[i]);
		cells[s->columns[i]] = (struct cell){fields[i].text, fields[i].len};
	}
	advance(s, len, s->lex.lines);
	return 1;
}

static void csv_free(struct dump_source *src)
{
	struct csv_source *s = (struct csv_source *)src;

	if (s->fd >= 0)
		close(s->fd);
	buf_release(&s->buf);
	free(s);
}

static const struct dump_source_ops csv_ops = {
	.is_db = false,
	.next = csv_next,
	.free = csv_free,
};

static int read_header(struct csv_source *s, struct err *err)
{
	struct csv_field fields[MAX_FIELDS];
	unsigned have = 0;
	size_t len = 0;
	int r = fill(s, err);

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
	s->nfields = csv_split(s->buf.data + s->at, len, fields, MAX_FIELDS);
	if (s->nfields > MAX_FIELDS)
		return err_set(err, -EINVAL, "\"%s\" has more than %d columns", s->src.path,
			       MAX_FIELDS);
	for (size_t i = 0; i < s->nfields; i++) {
		csv_unquote(&fields[i]);
		s->columns[i] = cell_column_find(fields[i].text, fields[i].len);
		have |= 1u << s->columns[i];
	}
	advance(s, len, s->lex.lines);
	return dump_check_columns(s->src.path, have, err);
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
