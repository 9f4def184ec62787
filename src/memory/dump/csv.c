/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The CSV dump. A row is put together in a buffer from ready-made words. A full buffer is written
 * by another thread while the next one is filled.
 *
 *	file:    header row row … row | what a failed write left, cut off at once
 *	                              ^ size: end of the last whole row, where the next write goes
 *	flying:                         rows that are being written
 *	buffer:                         rows after them; both are kept when a write fails
 *
 * Findings often come after their row. Where they may, the last rows are kept back, and amended when
 * they leave the buffer (held.h): a file that needs no change later is not written a second time.
 */
#include "memory/dump/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/containers/buf.h"
#include "base/fs.h"
#include "base/mem.h"
#include "base/text/csv.h"
#include "base/text/text.h"
#include "memory/dump/amend.h"
#include "memory/dump/cell.h"
#include "memory/dump/csv_lex.h"
#include "memory/dump/held.h"
#include "memory/dump/write_behind.h"
#include "wire/record.h"

#define FLUSH_AT (256u << 10)
#define SCAN_PIECE (256u << 10)
/* Everything of a row but its texts: five numbers, two words, 16 attributes of key and number. */
#define ROW_FIXED_MAX (512 + ROW_MAX_ATTRS * (WORD_LEN + PUT_U64_MAX + 2))
#define WORD_LEN 24

static const char header[] = CELL_COLUMNS "\n";
#define HEADER_LEN (sizeof(header) - 1)

/* A word with its separator, copied with one move of a fixed size. */
struct word {
	char text[WORD_LEN];
	size_t len;
};

struct writer {
	int fd;
	int failed; /* the negative errno that rows are dropped for, 0 when all is well */
	uint64_t size;
	uint64_t rows; /* in the buffer */
	uint64_t lost_rows;
	struct buf buf;
	struct buf flying;
	uint64_t flying_rows;
	struct write_behind behind; /* of `flying`, unless that is empty */
	struct held held;
	enum row_compat compat;
	struct buf scratch; /* of text_clean() */
	char *path;
	struct word events[ROW_EVENT_END + 1];
	struct word types[TYPE_END + 1];
	struct word keys[ATTR_KEY_END];
};

static void word_set(struct word *w, const char *text, char separator)
{
	w->len = strlen(text);
	BUG_ON(w->len >= WORD_LEN);
	memcpy(w->text, text, w->len);
	w->text[w->len++] = separator;
}

static void words_init(struct writer *w, enum row_compat compat)
{
	for (unsigned i = 0; i <= ROW_EVENT_END; i++)
		word_set(&w->events[i], row_event_text((enum row_event)i), ',');
	for (unsigned i = 0; i <= TYPE_END; i++)
		word_set(&w->types[i], row_type_text((enum row_type)i, compat), ',');
	for (unsigned i = 0; i < ATTR_KEY_END; i++)
		word_set(&w->keys[i], attr_key_text((enum attr_key)i, compat), ':');
}

static inline char *put_word(char *p, const struct word *w)
{
	memcpy(p, w->text, WORD_LEN);
	return p + w->len;
}

static char *put_quoted(struct writer *w, char *p, const char *s, size_t n)
{
	s = text_clean(s, &n, &w->scratch);
	*p++ = '"';
	p = csv_put_doubled(p, s, n);
	*p++ = '"';
	return p;
}

static char *put_name(struct writer *w, char *p, const struct row *row)
{
	size_t n;
	const char *s = cell_name(row, &n);

	if (row->event == ROW_MSTX || csv_needs_quotes(s, n))
		return put_quoted(w, p, s, n);
	s = text_clean(s, &n, &w->scratch);
	return n ? put_bytes(p, s, n) : p;
}

static char *put_id(char *p, uint32_t id)
{
	return id == UINT32_MAX ? put_bytes(p, "N/A", 3) : put_u64(p, id);
}

static char *put_device(char *p, uint32_t device)
{
	if (device == DEV_NONE)
		return put_bytes(p, "N/A", 3);
	if (device == DEV_HOST)
		return put_bytes(p, "cpu", 3);
	return put_u64(p, device);
}

static char *put_attr(struct writer *w, char *p, const struct attr *a)
{
	if (a->key != ATTR_RAW)
		p = put_word(p, &w->keys[a->key]);
	if (a->key != ATTR_RAW && a->kind == ATTR_NUMBER)
		return put_u64(p, a->number);
	if (a->key != ATTR_RAW && a->kind == ATTR_HEX)
		return put_addr(p, a->number);
	size_t n = a->text_len;
	const char *s = text_clean(a->text, &n, &w->scratch);
	return csv_put_doubled(p, s, n);
}

/* `"{key:value,…}"`, nothing where there is no attribute. */
static char *put_attrs(struct writer *w, char *p, const struct row *row)
{
	char *start = p;

	for (unsigned i = 0; i < row->nattrs; i++) {
		if (row->attrs[i].key == ATTR_RAW && !row->attrs[i].text_len)
			continue;
		p = p == start ? put_bytes(p, "\"{", 2) : put_bytes(p, ",", 1);
		p = put_attr(w, p, &row->attrs[i]);
	}
	return p == start ? p : put_bytes(p, "}\"", 2);
}

static size_t row_room(const struct row *row)
{
	size_t text = row->name_len + row->py_stack_len + row->c_stack_len;

	for (unsigned i = 0; i < row->nattrs; i++)
		text += row->attrs[i].text_len;
	return ROW_FIXED_MAX + TEXT_CLEAN_GROWTH * text;
}

static void put_row(struct writer *w, const struct row *row)
{
	char *p = buf_room(&w->buf, row_room(row));

	p = put_u64(p, row->id);
	*p++ = ',';
	p = put_word(p,
		     &w->events[(unsigned)row->event < ROW_EVENT_END ? row->event : ROW_EVENT_END]);
	p = put_word(p, &w->types[(unsigned)row->type < TYPE_END ? row->type : TYPE_END]);
	p = put_name(w, p, row);
	*p++ = ',';
	p = put_u64(p, row->time_ns);
	*p++ = ',';
	p = put_id(p, row->pid);
	*p++ = ',';
	p = put_id(p, row->tid);
	*p++ = ',';
	p = put_device(p, row->device);
	*p++ = ',';
	p = row->has_ptr ? put_addr(p, row->ptr) : put_bytes(p, "N/A", 3);
	*p++ = ',';
	p = put_attrs(w, p, row);
	*p++ = ',';
	if (row->py_stack && row->py_stack_len)
		p = put_quoted(w, p, row->py_stack, row->py_stack_len);
	*p++ = ',';
	if (row->c_stack && row->c_stack_len)
		p = put_quoted(w, p, row->c_stack, row->c_stack_len);
	*p++ = '\n';
	w->buf.len = (size_t)(p - w->buf.data);
	w->rows++;
}

/* Takes the rows that lie wholly in the first `n` bytes out of the buffer: they are in the file. */
static void drop_written(struct writer *w, size_t n)
{
	struct csv_lex lex = {0};
	size_t whole = 0;
	uint64_t rows = 0;

	if (!n)
		return;
	if (n == w->buf.len) {
		whole = n;
		rows = w->rows;
	}
	while (whole < n && csv_lex_next(&lex, w->buf.data, n) == 1) {
		whole = lex.at;
		rows++;
	}
	memmove(w->buf.data, w->buf.data + whole, w->buf.len - whole);
	w->buf.len -= whole;
	w->rows -= rows;
	w->size += whole;
}

/*
 * The buffer after a write of its first `done` bytes. If that failed, the whole rows that fitted
 * stay in the file, a half one is cut off, and the rest waits in the buffer for the next flush.
 */
static void note_written(struct writer *w, int result, size_t done)
{
	drop_written(w, done);
	/* If this fails too, the next try writes over the torn bytes: they are still in the buffer.
	 */
	if (result < 0)
		(void)!ftruncate(w->fd, (off_t)w->size);
}

static void swap_buffers(struct writer *w)
{
	struct buf buf = w->buf;
	uint64_t rows = w->rows;

	w->buf = w->flying;
	w->rows = w->flying_rows;
	w->flying = buf;
	w->flying_rows = rows;
}

/* Puts what was found into the rows of the buffer; none of them is marked afterwards. */
static void settle_held(struct writer *w)
{
	struct buf settled = {0};

	if (w->held.found) {
		held_copy(&w->held, &w->buf, w->buf.len, w->compat, &settled);
		buf_release(&w->buf);
		w->buf = settled;
	}
	held_forget(&w->held);
}

/* Lets a thread write the first rows of the buffer; no others are being written. */
static void start_writing(struct writer *w, struct front f)
{
	if (f.bytes == w->buf.len) {
		settle_held(w);
		swap_buffers(w);
	} else {
		held_copy(&w->held, &w->buf, f.bytes, w->compat, &w->flying);
		w->flying_rows = f.rows;
		w->buf.len -= f.bytes;
		w->rows -= f.rows;
		memmove(w->buf.data, w->buf.data + f.bytes, w->buf.len);
		held_cut(&w->held, f);
	}
	w->behind = (struct write_behind){
		.fd = w->fd, .data = w->flying.data, .len = w->flying.len, .at = w->size};
	write_behind_start(&w->behind);
}

/* Waits for the rows that are being written. Those that the file did not take come first again. */
static int await_flying(struct writer *w)
{
	if (!w->flying.len)
		return 0;
	write_behind_wait(&w->behind);
	if (w->behind.result < 0)
		settle_held(w);
	swap_buffers(w);
	note_written(w, w->behind.result, w->behind.done);
	if (w->buf.len) {
		buf_add(&w->buf, w->flying.data, w->flying.len);
		w->rows += w->flying_rows;
	} else {
		swap_buffers(w);
	}
	buf_clear(&w->flying);
	w->flying_rows = 0;
	return w->behind.result;
}

/* Brings all rows to the file. */
static int write_out(struct writer *w)
{
	size_t done;

	(void)await_flying(w); /* what it failed to write is tried again */
	settle_held(w);
	int r = fs_write_all(w->fd, w->buf.data, w->buf.len, (int64_t)w->size, &done);
	note_written(w, r, done);
	return r;
}

static int csv_flush(struct writer *w, struct err *err)
{
	int before = w->failed;

	w->failed = write_out(w);
	if (!w->failed || before)
		return 0;
	return err_sys(err, w->failed, "cannot write \"%s\", rows are dropped until it works again",
		       w->path);
}

static int csv_add(struct writer *w, const struct row *row, struct err *err)
{
	BUG_ON(row->nattrs > ROW_MAX_ATTRS);
	if (w->failed) {
		w->lost_rows++;
		return 0;
	}
	if (w->held.wants)
		held_mark(&w->held, (struct front){w->buf.len, w->rows}, row);
	put_row(w, row);
	if (w->buf.len < (w->held.wants ? 2 * HELD_BYTES : FLUSH_AT))
		return 0;
	if (await_flying(w) < 0)
		return csv_flush(w, err);
	start_writing(w, w->held.half.bytes ? w->held.half : (struct front){w->buf.len, w->rows});
	return 0;
}

static void csv_hold(struct writer *w, enum writer_hold what)
{
	w->held.wants = what;
}

static int csv_flush_old(struct writer *w, struct err *err)
{
	struct held *h = &w->held;

	if (!h->wants || w->failed)
		return csv_flush(w, err);
	if (h->old.bytes) {
		if (await_flying(w) == 0 && h->old.bytes)
			start_writing(w, h->old);
		if (await_flying(w) < 0)
			return csv_flush(w, err);
	}
	h->old = (struct front){w->buf.len, w->rows};
	return 0;
}

static bool csv_amend(struct writer *w, const struct amendment *finding)
{
	return held_find(&w->held, finding);
}

static uint64_t csv_lost_rows(const struct writer *w)
{
	return w->lost_rows;
}

static int csv_close(struct writer *w, struct err *err)
{
	if (!w)
		return 0;
	int r = w->fd < 0 ? 0 : write_out(w);
	if (r < 0)
		err_sys(err, r, "cannot write \"%s\", %llu rows are lost", w->path,
			(unsigned long long)(w->lost_rows + w->rows));
	if (w->fd >= 0 && close(w->fd) < 0 && errno != EINTR && !r)
		r = err_sys(err, -errno, "cannot close \"%s\"", w->path);
	buf_release(&w->buf);
	buf_release(&w->flying);
	held_release(&w->held);
	buf_release(&w->scratch);
	free(w->path);
	free(w);
	return r;
}

/* The end of the last whole record in [HEADER_LEN, total). */
static int find_whole_end(struct writer *w, uint64_t total, uint64_t *out_end)
{
	char *piece = buf_room(&w->buf, SCAN_PIECE);
	struct csv_lex lex = {0};
	uint64_t end = HEADER_LEN;
	int r = 0;

	for (uint64_t at = HEADER_LEN; at < total && r >= 0;) {
		ssize_t n = fs_read_at(w->fd, piece, SCAN_PIECE, at);

		if (n <= 0)
			return n < 0 ? (int)n : -EIO;
		lex.at = 0;
		while ((r = csv_lex_next(&lex, piece, (size_t)n)) == 1)
			end = at + lex.at;
		at += (size_t)n;
	}
	*out_end = end;
	return r;
}

/*
 * Makes an existing file ready for appending. One that is not ours, or whose quotes do not fit, is
 * left alone: what looks torn there may be somebody's data.
 */
static int take_over(struct writer *w, uint64_t total, struct err *err)
{
	char start[HEADER_LEN];
	uint64_t end = 0;
	ssize_t n = fs_read_at(w->fd, start, HEADER_LEN, 0);

	if (n < 0)
		return err_sys(err, (int)n, "cannot read \"%s\"", w->path);
	if (memcmp(start, header, (size_t)n))
		return err_set(err, -EEXIST, "\"%s\" exists and is not a memory dump", w->path);
	if ((size_t)n == HEADER_LEN) {
		int r = find_whole_end(w, total, &end);

		if (r < 0 && r != -EBADMSG)
			return err_sys(err, r, "cannot read \"%s\"", w->path);
		/* No row of ours is that long: its quotes fooled us. */
		if (r < 0 || total - end > CSV_MAX_RECORD)
			return err_set(err, -EEXIST, "\"%s\" exists and is damaged", w->path);
	}
	if (end < total && ftruncate(w->fd, (off_t)end) < 0)
		return err_sys(err, -errno, "cannot cut the torn last row off \"%s\"", w->path);
	w->size = end;
	return 0;
}

static int open_file(struct writer *w, struct err *err)
{
	struct stat st;
	int r = 0;

	if (fstat(w->fd, &st) < 0)
		return err_sys(err, -errno, "cannot stat \"%s\"", w->path);
	/* Where locks do not work (some network file systems) we do without. */
	if (flock(w->fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK)
		return err_set(err, -EBUSY, "\"%s\" is being written by another process", w->path);
	if (st.st_size > 0)
		r = take_over(w, (uint64_t)st.st_size, err);
	if (r < 0 || w->size)
		return r;
	buf_add(&w->buf, header, HEADER_LEN);
	w->rows = 1; /* a record like any other until it is written, see drop_written() */
	r = write_out(w);
	if (r < 0)
		return err_sys(err, r, "cannot write \"%s\"", w->path);
	return 0;
}

static int csv_open(const char *path, enum row_compat compat, struct writer **out, struct err *err)
{
	int fd = fs_open(path, O_RDWR | O_CREAT, 0600, err);
	int r;

	if (fd < 0)
		return fd;
	struct writer *w = xcalloc(1, sizeof(*w));
	w->fd = fd;
	w->path = xstrdup(path);
	w->compat = compat;
	words_init(w, compat);
	r = open_file(w, err);
	if (r < 0) {
		buf_clear(&w->buf);
		csv_close(w, NULL);
		return r;
	}
	*out = w;
	return 0;
}

const struct writer_ops csv_writer = {
	.name = "csv",
	.suffix = "csv",
	.open = csv_open,
	.add = csv_add,
	.flush = csv_flush,
	.close = csv_close,
	.lost_rows = csv_lost_rows,
	.hold = csv_hold,
	.flush_old = csv_flush_old,
	.amend = csv_amend,
};
