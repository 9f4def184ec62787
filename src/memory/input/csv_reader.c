/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Cells out of a CSV dump. The text holds the record at hand and what was read behind it:
 *
 *	file:           src.next
 *	text: data ---- at ---------- at + lex.at --------- len
 *	                the record    where it ends         read ahead, then CELL_SLACK
 *
 * A record that makes no sense (text behind a closing quote, a wrong number of fields) is one line
 * long: reading goes on at the first line end behind its start, so that one stray quote does not
 * swallow the rows behind it.
 */
#include "memory/input/reader_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/mem.h"
#include "memory/dump/csv_lex.h"

#define BLOCK (32u << 10)
#define OVERLAP (8u << 10) /* of the next block, for what lies across the border */
#define READ_PIECE (128u << 10) /* small enough to stay in the cache until it is parsed */
#define TWIN_PIECE (8u << 10) /* that is added for the end of a twin's last row … */
#define TWIN_ROOM (128u << 10) /* … at most that much */
#define GUESS_BYTES (64u << 10) /* that are looked at for the start of a row */

struct csv_source {
	struct dump_source src;
	int fd;
	bool is_twin; /* has the fd of another one, and … */
	struct buf own;
	struct buf *text; /* … a text that must stay where it is, else this is own */
	size_t at;
	struct csv_lex lex;
	bool eof;
	bool in_bad_line; /* at its start, or behind what was thrown away of it */
	struct block_cache *blocks; /* of again() */
	size_t nfields; /* of the header */
};

/* --- rows once more, in another order --- */

/*
 * Reads records of a file in an order that is not the file's, but near it: some places go on from
 * where they were, and the reader jumps between them. Blocks of the file are kept in a table, one
 * place for every so many. A block comes in when it is asked for a second time in a row at its
 * place; a record that is alone where it lies costs one read of its own size.
 *
 * Not a mapping of the file: whoever makes the file shorter meanwhile must not kill us.
 */
#define BLOCK_CACHE_SLOTS 256

struct block_slot {
	uint64_t asked; /* number of the block that was asked for last, counted from 1 */
	uint64_t number; /* of the block in `bytes`, 0 for none */
	struct buf bytes; /* with what begins in the block and ends behind it */
};

struct block_cache {
	int fd; /* borrowed */
	struct buf single;
	struct block_slot slots[BLOCK_CACHE_SLOTS];
};

/* Fills the buffer with up to n bytes at the offset, fewer at the end of the file. */
static int load_block(struct block_cache *c, struct buf *b, size_t n, uint64_t offset)
{
	buf_clear(b);
	buf_room(b, n + CELL_SLACK);
	ssize_t got = fs_read_at(c->fd, b->data, n, offset);
	if (got < 0)
		return (int)got;
	b->len = (size_t)got;
	memset(b->data + b->len, 0, CELL_SLACK);
	return 0;
}

/* 1: the block is in its slot. 0: it is not worth it yet. */
static int want_block(struct block_cache *c, struct block_slot *slot, uint64_t number)
{
	if (slot->number == number)
		return 1;
	if (slot->asked != number) {
		slot->asked = number;
		return 0;
	}
	slot->number = 0;
	int r = load_block(c, &slot->bytes, BLOCK + OVERLAP, (number - 1) * BLOCK);
	if (r < 0)
		return r;
	slot->number = number;
	return 1;
}

/*
 * The n bytes at the offset, good until the next call; the caller may change them, but then must
 * not ask again. 0, a negative errno, or -ENODATA where the file is shorter.
 */
static int block_cache_get(struct block_cache *c, uint64_t offset, size_t n, char **out)
{
	uint64_t number = offset / BLOCK + 1;
	size_t at = offset % BLOCK;
	struct block_slot *slot = &c->slots[number % BLOCK_CACHE_SLOTS];
	int r = at + n <= BLOCK + OVERLAP ? want_block(c, slot, number) : 0;

	if (r > 0 && at + n <= slot->bytes.len) {
		*out = slot->bytes.data + at;
		return 0;
	}
	if (r >= 0)
		r = load_block(c, &c->single, n, offset);
	if (r < 0)
		return r;
	*out = c->single.data;
	return c->single.len == n ? 0 : -ENODATA;
}

static void block_cache_release(struct block_cache *c)
{
	for (size_t i = 0; i < BLOCK_CACHE_SLOTS; i++)
		buf_release(&c->slots[i].bytes);
	buf_release(&c->single);
}

/* --- rows in the order of the file --- */

/* Adds what the file has next to the text; 0 or negative errno. Sets eof. */
static int fill_text(struct csv_source *s, size_t n, struct err *err)
{
	struct buf *text = s->text;

	if (s->is_twin && text->cap - text->len < n + CELL_SLACK)
		return err_set(err, -EAGAIN, "no room");
	if (s->at && !s->is_twin) {
		text->len -= s->at;
		memmove(text->data, text->data + s->at, text->len);
		s->at = 0;
	}
	char *to = buf_room(text, n + CELL_SLACK);
	ssize_t got = fs_read_at(s->fd, to, n, s->src.next.offset + text->len - s->at);
	if (got < 0)
		return err_sys(err, (int)got, "cannot read \"%s\"", s->src.path);
	memset(to + got, 0, CELL_SLACK);
	text->len += (size_t)got;
	s->eof = !got;
	return 0;
}

/* Moves behind the `n` bytes at hand, which hold `lines` line ends. */
static void advance_source(struct csv_source *s, size_t n, uint64_t lines)
{
	s->at += n;
	s->src.next.offset += n;
	s->src.next.line += lines;
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
		const char *p = s->text->data + s->at;
		const char *lf = memchr(p, '\n', s->text->len - s->at);

		advance_source(s, lf ? (size_t)(lf - p) + 1 : s->text->len - s->at, lf ? 1 : 0);
		s->in_bad_line = !lf && !s->eof;
		if (s->in_bad_line)
			r = fill_text(s, s->is_twin ? TWIN_PIECE : READ_PIECE, err);
	}
	return r;
}

/* Finds the record at s->at: 1 and its length, 0 at the end. */
static int next_record(struct csv_source *s, size_t *out_len, struct err *err)
{
	int r = s->in_bad_line ? leave_bad_line(s, err) : 0;

	while (r == 0) {
		const char *p = s->text->data + s->at;
		size_t left = s->text->len - s->at;

		s->src.line = s->src.next.line;
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
		r = fill_text(s,
			      s->is_twin	  ? TWIN_PIECE
			      : left > READ_PIECE ? left
						  : READ_PIECE,
			      err);
		advance_source(s, 0, 0); /* begins the record again: its fields have moved */
	}
	return r;
}

static bool is_blank(const struct csv_source *s)
{
	const struct cell *first = &s->lex.fields[0];

	/* a quoted one begins behind its quote */
	return s->lex.nfields == 1 && !first->len && first->text == s->text->data + s->at;
}

static void unquote_fields(struct csv_lex *lex)
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
		advance_source(s, len, s->lex.lines);
	if (r <= 0)
		return r;
	if (s->lex.nfields != s->nfields) {
		if (!src->torn)
			return bad_record(s, "wrong number of fields", err);
		advance_source(s, len, 0);
		return 0;
	}
	src->place = (struct dump_place){s->src.next.offset, src->line, len};
	unquote_fields(&s->lex);
	advance_source(s, len, s->lex.lines);
	return 1;
}

static int csv_again(struct dump_source *src, struct dump_place place, struct err *err)
{
	struct csv_source *s = (struct csv_source *)src;
	struct csv_lex *lex = &s->lex;
	char *p;

	if (!s->blocks) {
		s->blocks = xcalloc(1, sizeof(*s->blocks));
		s->blocks->fd = s->fd;
	}
	src->line = place.line;
	advance_source(s, 0, 0);
	int r = block_cache_get(s->blocks, place.offset, place.len, &p);
	if (r < 0 && r != -ENODATA)
		return err_sys(err, r, "cannot read \"%s\"", src->path);
	if (r == 0 && (csv_lex_next(lex, p, place.len) == 1 || csv_lex_end(lex, p, place.len)) &&
	    lex->nfields == s->nfields) {
		unquote_fields(lex);
		return 1;
	}
	return err_set(err, -EIO, "\"%s\" has changed while it was read", src->path);
}

static void csv_free(struct dump_source *src)
{
	struct csv_source *s = (struct csv_source *)src;

	if (s->fd >= 0 && !s->is_twin)
		close(s->fd);
	if (s->blocks)
		block_cache_release(s->blocks);
	free(s->blocks);
	buf_release(&s->own);
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
	int r = fill_text(s, READ_PIECE, err);

	if (r < 0)
		return r;
	if (s->text->len >= 3 && !memcmp(s->text->data, "\xef\xbb\xbf", 3))
		advance_source(s, 3, 0);
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

		if (dump_time_is_us(f->text, f->len)) {
			col = COL_TIME;
			s->src.in_us = true;
		}
		if (col != COL_END)
			s->src.columns[col] = f;
		if (col == COL_ATTR)
			s->src.attr_field = i;
	}
	advance_source(s, len, s->lex.lines);
	return dump_check_columns(&s->src, err);
}

int dump_csv_open(int fd, const char *path, struct dump_source **out, struct err *err)
{
	struct csv_source *s = xcalloc_apart(sizeof(*s));

	s->src.ops = &csv_ops;
	s->src.path = path;
	s->text = &s->own;
	s->fd = fd;
	s->src.next.line = 1;
	int r = read_header(s, err);
	if (r < 0)
		csv_free(&s->src);
	else
		*out = &s->src;
	return r;
}

/* --- shared reading --- */

struct dump_source *dump_csv_twin(const struct dump_source *src)
{
	const struct csv_source *like = (const struct csv_source *)src;
	struct csv_source *s = xcalloc_apart(sizeof(*s));

	s->src = *src;
	s->fd = like->fd;
	s->nfields = like->nfields;
	s->is_twin = true;
	for (unsigned i = 0; i < COL_END; i++)
		for (size_t k = 0; k < s->nfields; k++)
			if (src->columns[i] == &like->lex.fields[k])
				s->src.columns[i] = &s->lex.fields[k];
	return &s->src;
}

int dump_csv_begin(struct dump_source *src, struct buf *text, size_t n, uint64_t offset,
		   struct err *err)
{
	struct csv_source *s = (struct csv_source *)src;

	buf_clear(text);
	buf_room(text, n + TWIN_ROOM);
	s->text = text;
	s->at = 0;
	s->src.next.offset = offset;
	s->src.next.line = 0;
	s->in_bad_line = false;
	src->torn = false;
	advance_source(s, 0, 0);
	return fill_text(s, n, err);
}

bool dump_csv_guess(struct dump_source *src)
{
	struct csv_source *s = (struct csv_source *)src;
	size_t looked = 0;

	while (looked < GUESS_BYTES) {
		const char *p = s->text->data + s->at;
		size_t left = s->text->len - s->at;
		const char *lf = memchr(p, '\n', left);

		if (!lf)
			return false;
		advance_source(s, (size_t)(lf - p) + 1, 0);
		looked += (size_t)(lf - p) + 1;
		left -= (size_t)(lf - p) + 1;
		bool is_row =
			csv_lex_next(&s->lex, lf + 1, left) > 0 && s->lex.nfields == s->nfields;
		looked += s->lex.at;
		advance_source(s, 0, 0);
		if (is_row)
			return true;
	}
	return false;
}

void dump_csv_skip(struct dump_source *src, uint64_t offset, uint64_t lines)
{
	struct csv_source *s = (struct csv_source *)src;

	s->text->len = s->at = 0;
	s->src.next.offset = offset;
	s->eof = false;
	advance_source(s, 0, lines);
}
