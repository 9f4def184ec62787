/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/dump/amend.h"
#include "memory/dump/amend_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/containers/buf.h"
#include "base/fs.h"
#include "base/mem.h"
#include "base/text/csv.h"
#include "formats/sqlite_use.h"
#include "memory/dump/cell.h"
#include "memory/dump/csv_lex.h"
#include "memory/input/reader.h"
#include "memory/input/reader_impl.h"

#define DB_MAGIC "SQLite format 3" /* and its NUL */
#define PIECE (256u << 10)

/* The finding about the row, NULL for none. */
static const struct amendment *amend_find(struct amend *a, const struct row *row)
{
	const struct attr *id = row_attr(row, ATTR_ALLOCATION_ID);
	const struct attr *old = row_attr(row, ATTR_INEFFICIENT);

	/* The key stands before its value. */
	if (old)
		a->inefficient_key = attr_key_text(
			ATTR_INEFFICIENT,
			strncasecmp(old->text - 6, "_type:", 6) ? ROW_SEED : ROW_26_0);
	if (row->event != ROW_MALLOC || !id || id->kind != ATTR_NUMBER)
		return NULL;
	return a->find(a->arg, row->pid, id->number);
}

/*
 * --- CSV ---
 *
 * The dump reader says where the rows lie; the bytes themselves are copied from the old file to the
 * new one, and only an Attr cell that changes is written by us:
 *
 *	old:  header row row row row …          copied: up to here, the next byte to copy
 *	new:  header row row ROW
 *
 * The new file is made when the first change is met: without one there is nothing to write. But as
 * long as rows have room, there is none, and they are written over.
 */

struct csv_copy {
	struct amend *amend;
	int in;
	int over; /* to write rows over; -1 until there is one */
	bool anew; /* some row has no room */
	int out; /* of the new file, -1 until there is a change */
	char *out_path;
	uint64_t copied;
	struct buf bytes; /* of the old file, from `bytes_at` on */
	uint64_t bytes_at;
	struct buf pending; /* bytes for the new file */
	struct buf attr; /* the old cell without doubled quotes */
	struct buf cell; /* the new one with them */
};

/* The n bytes of the old file that begin at c->copied. */
static int peek_bytes(struct csv_copy *c, size_t n, const char **out, struct err *err)
{
	if (c->copied < c->bytes_at || c->copied + n > c->bytes_at + c->bytes.len) {
		size_t want = n > PIECE ? n : PIECE;

		buf_clear(&c->bytes);
		c->bytes_at = c->copied;
		buf_room(&c->bytes, want);
		ssize_t got = fs_read_at(c->in, c->bytes.data, want, c->bytes_at);
		if (got < 0)
			return err_sys(err, (int)got, "cannot read \"%s\"", c->amend->path);
		c->bytes.len = (size_t)got;
		if (c->bytes.len < n)
			return err_set(err, -EIO, "\"%s\" has changed while it was read",
				       c->amend->path);
	}
	*out = c->bytes.data + (c->copied - c->bytes_at);
	return 0;
}

/* A killed one is known by the length of its name: memory/outputs/dumps.c. */
char *dump_amend_name(const char *path, pid_t pid)
{
	return xasprintf("%s.%06x", path, (unsigned)pid & 0xffffffu);
}

/* Beside the old one, with its owner as far as we may, and its permissions. */
static int make_out(struct csv_copy *c, struct err *err)
{
	struct stat st;

	c->out_path = dump_amend_name(c->amend->path, getpid());
	(void)fs_unlink(c->out_path, NULL);
	c->out = fs_open(c->out_path, O_RDWR | O_CREAT | O_EXCL, 0600, err);
	if (c->out < 0) {
		free(c->out_path);
		c->out_path = NULL;
		return c->out;
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
	int r = fs_write_all(c->out, c->pending.data, c->pending.len, FS_HERE, NULL);

	if (r < 0)
		return err_sys(err, r, "cannot write beside \"%s\"", c->amend->path);
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

		r = peek_bytes(c, n, &from, err);
		if (r < 0)
			return r;
		buf_add(&c->pending, from, n);
		c->copied += n;
		if (c->pending.len >= PIECE)
			r = write_pending(c, err);
	}
	return r;
}

/* The Attr cell as it stands in the record at p: from and to with its quotes, its text. */
static bool find_attr(struct buf *text, const char *p, size_t len, size_t field, size_t *from,
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
	buf_clear(text);
	buf_add(text, cell.text, cell.len);
	if (lex.doubled >> field & 1)
		text->len = csv_unquote(text->data, text->len);
	return text->len >= 2;
}

/* Puts the new text where the bytes [from, to) are. */
static void replace_bytes(struct buf *b, size_t from, size_t to, const struct buf *text)
{
	if (text->len > to - from)
		buf_room(b, text->len - (to - from));
	memmove(b->data + from + text->len, b->data + to, b->len - to);
	memcpy(b->data + from, text->data, text->len);
	b->len += text->len - (to - from);
}

void dump_amend_text(struct buf *rows, size_t at, const struct amendment *finding,
		     enum row_compat compat)
{
	struct amend a = {.inefficient_key = attr_key_text(ATTR_INEFFICIENT, compat)};
	struct buf old = {0}, cell = {0};
	size_t from, to;

	if (find_attr(&old, rows->data + at, rows->len - at, COL_ATTR, &from, &to) &&
	    amend_attrs(&a, &amend_csv_form, old.data, old.len, finding)) {
		csv_add_quoted(&cell, a.cell.data, a.cell.len);
		replace_bytes(rows, at + from, at + to, &cell);
	}
	buf_release(&a.cell);
	buf_release(&old);
	buf_release(&cell);
}

/* Writes the cell over the one of the same length. */
static int write_over(struct csv_copy *c, uint64_t at, struct err *err)
{
	if (c->over < 0)
		c->over = fs_open(c->amend->path, O_WRONLY, 0, err);
	if (c->over < 0)
		return c->over;
	int r = fs_write_all(c->over, c->cell.data, c->cell.len, (int64_t)at, NULL);
	if (r < 0)
		return err_sys(err, r, "cannot write \"%s\"", c->amend->path);
	c->amend->rows++;
	return 0;
}

static int amend_csv_row(struct csv_copy *c, const struct dump_source *src,
			 const struct amendment *finding, struct err *err)
{
	uint64_t copied = c->copied;
	const char *p;
	size_t from, to;

	c->copied = src->place.offset;
	int r = peek_bytes(c, src->place.len, &p, err);
	if (r < 0)
		return r;
	if (!find_attr(&c->attr, p, src->place.len, src->attr_field, &from, &to))
		return err_set(err, -EIO, "\"%s\" has changed while it was read", c->amend->path);
	c->copied = copied;
	if (!amend_attrs(c->amend, &amend_csv_form, c->attr.data, c->attr.len, finding))
		return 0;
	buf_clear(&c->cell);
	csv_add_quoted(&c->cell, c->amend->cell.data, c->amend->cell.len);
	if (!c->anew && c->cell.len == to - from)
		return write_over(c, src->place.offset + from, err);
	if (!c->anew) {
		c->anew = true;
		return -EAGAIN;
	}
	if (c->out < 0)
		r = make_out(c, err);
	if (r == 0)
		r = copy_to(c, src->place.offset + from, err);
	buf_add(&c->pending, c->cell.data, c->cell.len);
	c->copied = src->place.offset + to;
	c->amend->rows++;
	return r;
}

static int amend_csv_rows(struct csv_copy *c, struct err *err)
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

		r = finding ? amend_csv_row(c, dump_source(d), finding, err) : 0;
		if (r < 0)
			break;
	}
	dump_close(d);
	return r;
}

/* The rest of the old file, then the new one takes its place. */
static int replace_file(struct csv_copy *c, struct err *err)
{
	struct stat st;

	if (fstat(c->in, &st) < 0)
		return err_sys(err, -errno, "cannot stat \"%s\"", c->amend->path);
	int r = copy_to(c, (uint64_t)st.st_size, err);
	if (r == 0)
		r = write_pending(c, err);
	if (r < 0)
		return r;
	if (fsync(c->out) < 0)
		return err_sys(err, -errno, "cannot replace \"%s\"", c->amend->path);
	r = fs_rename(c->out_path, c->amend->path, err);
	if (r < 0)
		return r;
	free(c->out_path);
	c->out_path = NULL;
	return 0;
}

static int amend_csv_file(struct amend *a, int fd, struct err *err)
{
	struct csv_copy c = {.amend = a, .in = fd, .over = -1, .out = -1};
	int r = 0;

	/* Writers hold it; where locks do not work (some network file systems) we do without. */
	if (flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK)
		r = err_set(err, -EBUSY, "\"%s\" is being written by another process", a->path);
	if (r == 0)
		r = amend_csv_rows(&c, err);
	if (r == -EAGAIN && c.anew) { /* once more: what was written over stays as it is */
		buf_clear(&c.bytes);
		c.copied = 0;
		r = amend_csv_rows(&c, err);
	}
	if (r == 0 && c.out >= 0)
		r = replace_file(&c, err);
	if (c.out_path)
		(void)fs_unlink(c.out_path, NULL);
	free(c.out_path);
	if (c.out >= 0)
		close(c.out);
	if (c.over >= 0)
		close(c.over);
	close(fd);
	buf_release(&c.bytes);
	buf_release(&c.pending);
	buf_release(&c.attr);
	buf_release(&c.cell);
	return r;
}

/* --- SQLite: one transaction, rows by their number --- */

static const char select_sql[] = "SELECT rowid,\"Process Id\",\"Attr\" FROM memscope_dump "
				 "WHERE \"Event\"='MALLOC' COLLATE NOCASE";
static const char update_sql[] = "UPDATE memscope_dump SET \"Attr\"=?1 WHERE rowid=?2";

struct db_amend {
	struct amend *amend;
	sqlite3 *db;
	sqlite3_stmt *select;
	sqlite3_stmt *update;
	struct cell_keys keys;
	struct buf keep;
	struct row row;
};

static int db_error(struct db_amend *d, int rc, struct err *err)
{
	return err_set(err, sql_errno(d->db, rc), "cannot write \"%s\": %s", d->amend->path,
		       sql_words(d->db, rc));
}

static uint32_t read_pid(sqlite3_stmt *stmt, int column)
{
	const char *text = (const char *)sqlite3_column_text(stmt, column);
	uint64_t pid;

	if (!text || !cell_read_u64(text, (size_t)sqlite3_column_bytes(stmt, column), &pid) ||
	    pid > UINT32_MAX)
		return UINT32_MAX;
	return (uint32_t)pid;
}

/* The row that the statement stands at. */
static int amend_db_row(struct db_amend *d)
{
	const char *text = (const char *)sqlite3_column_text(d->select, 2);
	size_t len = (size_t)sqlite3_column_bytes(d->select, 2);
	struct amend *a = d->amend;

	d->row.event = ROW_MALLOC;
	d->row.pid = read_pid(d->select, 1);
	if (!text || cell_read_json(&d->keys, text, len, &d->keep, &d->row) < 0)
		return SQLITE_OK;
	const struct amendment *finding = amend_find(a, &d->row);
	/* white space around the braces is no part of them */
	for (; len && strchr(" \t\r\n", *text); len--)
		text++;
	while (len && strchr(" \t\r\n", text[len - 1]))
		len--;
	if (!finding || !amend_attrs(a, &amend_json_form, text, len, finding))
		return SQLITE_OK;
	int rc = sqlite3_bind_text(d->update, 1, a->cell.data, (int)a->cell.len, SQLITE_STATIC);
	if (rc == SQLITE_OK)
		rc = sqlite3_bind_int64(d->update, 2, sqlite3_column_int64(d->select, 0));
	if (rc == SQLITE_OK)
		rc = sql_run(d->update);
	a->rows++;
	return rc;
}

static int amend_db_rows(struct db_amend *d)
{
	int rc = sqlite3_exec(d->db, "BEGIN IMMEDIATE", NULL, NULL, NULL);

	if (rc == SQLITE_OK)
		rc = sqlite3_prepare_v2(d->db, select_sql, -1, &d->select, NULL);
	if (rc == SQLITE_OK)
		rc = sqlite3_prepare_v2(d->db, update_sql, -1, &d->update, NULL);
	while (rc == SQLITE_OK && (rc = sqlite3_step(d->select)) == SQLITE_ROW)
		rc = amend_db_row(d);
	if (rc != SQLITE_DONE)
		return rc;
	sqlite3_reset(d->select);
	return sqlite3_exec(d->db, d->amend->rows ? "COMMIT" : "ROLLBACK", NULL, NULL, NULL);
}

static int amend_db_file(struct amend *a, int fd, struct err *err)
{
	struct db_amend d = {.amend = a};

	close(fd); /* SQLite's own locks must come after: closing a file drops a process' locks */
	cell_keys_init(&d.keys);
	int rc = sql_open_to_write(a->path, NULL, &d.db);
	bool old = false;
	int r = rc == SQLITE_OK ? dump_db_check(d.db, a->path, &old, err) : db_error(&d, rc, err);
	if (r == 0 && old)
		r = err_set(err, -EINVAL,
			    "\"%s\" is of msLeaks (table leaks_dump): it is only read", a->path);
	if (r == 0) {
		rc = amend_db_rows(&d);
		if (rc != SQLITE_OK)
			r = db_error(&d, rc, err);
	}
	sqlite3_finalize(d.select);
	sqlite3_finalize(d.update);
	sqlite3_close(d.db); /* takes an open transaction back */
	buf_release(&d.keep);
	return r;
}

/* --- both --- */

/* The file behind all links, open for reading; says whether it is a database. */
static int open_file(const char *path, char **out_real, bool *out_db, struct err *err)
{
	char start[sizeof(DB_MAGIC)];
	struct buf real = {0};
	int fd = fs_resolve(path, &real, err);

	buf_str(&real);
	*out_real = real.data;
	if (fd == 0)
		fd = fs_open(*out_real, O_RDONLY, 0, err);
	if (fd < 0)
		return fd;
	if (euidaccess(*out_real, W_OK) < 0) {
		int r = err_sys(err, -errno, "cannot write \"%s\"", path);

		close(fd);
		return r;
	}
	*out_db = pread(fd, start, sizeof(start), 0) == sizeof(start) &&
		  !memcmp(start, DB_MAGIC, sizeof(start));
	return fd;
}

int dump_amend(const char *path, enum row_compat compat, amend_lookup find, void *arg,
	       uint64_t *out_rows, struct err *err)
{
	struct amend a = {.find = find, .arg = arg};
	char *real = NULL;
	bool is_db = false;

	a.inefficient_key = attr_key_text(ATTR_INEFFICIENT, compat);
	int r = open_file(path, &real, &is_db, err);
	if (r >= 0) {
		a.path = real;
		r = is_db ? amend_db_file(&a, r, err) : amend_csv_file(&a, r, err);
	}
	if (r == 0)
		*out_rows = a.rows;
	buf_release(&a.cell);
	free(real);
	return r;
}
