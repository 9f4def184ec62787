/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Amends an SQLite dump: one transaction, rows by their number. */
#include <errno.h>
#include <sqlite3.h>
#include <string.h>
#include <unistd.h>

#include "memory/dump/amend_impl.h"
#include "memory/dump/cell.h"
#include "memory/input/reader_impl.h"

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
	int code = (rc & 0xff) == SQLITE_BUSY || (rc & 0xff) == SQLITE_LOCKED ? -EBUSY
		   : (rc & 0xff) == SQLITE_FULL				      ? -ENOSPC
		   : (rc & 0xff) == SQLITE_READONLY			      ? -EACCES
									      : -EIO;

	return err_set(err, code, "cannot write \"%s\": %s", d->amend->path, sqlite3_errmsg(d->db));
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
static int amend_row(struct db_amend *d)
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
	if (!finding || !amend_attrs(a, &amend_json, text, len, finding))
		return SQLITE_OK;
	int rc = sqlite3_bind_text(d->update, 1, a->cell.data, (int)a->cell.len, SQLITE_STATIC);
	if (rc == SQLITE_OK)
		rc = sqlite3_bind_int64(d->update, 2, sqlite3_column_int64(d->select, 0));
	if (rc == SQLITE_OK)
		sqlite3_step(d->update);
	a->rows++;
	return rc == SQLITE_OK ? sqlite3_reset(d->update) : rc;
}

static int amend_rows(struct db_amend *d)
{
	int rc = sqlite3_exec(d->db, "BEGIN IMMEDIATE", NULL, NULL, NULL);

	if (rc == SQLITE_OK)
		rc = sqlite3_prepare_v2(d->db, select_sql, -1, &d->select, NULL);
	if (rc == SQLITE_OK)
		rc = sqlite3_prepare_v2(d->db, update_sql, -1, &d->update, NULL);
	while (rc == SQLITE_OK && (rc = sqlite3_step(d->select)) == SQLITE_ROW)
		rc = amend_row(d);
	if (rc != SQLITE_DONE)
		return rc;
	sqlite3_reset(d->select);
	return sqlite3_exec(d->db, d->amend->rows ? "COMMIT" : "ROLLBACK", NULL, NULL, NULL);
}

int amend_db_file(struct amend *a, int fd, struct err *err)
{
	const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW;
	struct db_amend d = {.amend = a};

	close(fd); /* SQLite's own locks must come after: closing a file drops a process' locks */
	cell_keys_init(&d.keys);
	int rc = sqlite3_open_v2(a->path, &d.db, flags, NULL);
	int r = rc == SQLITE_OK ? dump_db_check(d.db, a->path, err) : db_error(&d, rc, err);
	if (r == 0) {
		rc = amend_rows(&d);
		if (rc != SQLITE_OK)
			r = db_error(&d, rc, err);
	}
	sqlite3_finalize(d.select);
	sqlite3_finalize(d.update);
	sqlite3_close(d.db); /* takes an open transaction back */
	buf_release(&d.keep);
	return r;
}
