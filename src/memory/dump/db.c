/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The SQLite dump: one table, rows in transactions of many, write-ahead log.
 *
 * What makes it fast: a transaction per flush instead of one per row; no fsync (synchronous=OFF:
 * what was committed is with the kernel, so a killed process loses nothing); large pages; values
 * bound where they lie; and a value that is the same as in the row before is not bound again.
 *
 * Other programs may read at any time. The log is copied back now and then, and at close, when
 * the -wal and -shm files go away.
 */
#include "memory/dump/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/containers/buf.h"
#include "base/fs.h"
#include "base/mem.h"
#include "base/text/text.h"
#include "formats/sqlite_use.h"
#include "memory/dump/cell.h"
#include "wire/record.h"

#define BATCH_ROWS 16384 /* in one transaction at most */
#define BUSY_MS 5000

static const char create_sql[] =
	"CREATE TABLE IF NOT EXISTS memscope_dump(\"ID\" INTEGER,\"Event\" TEXT,"
	"\"Event Type\" TEXT,\"Name\" TEXT,\"Timestamp(ns)\" INTEGER,\"Process Id\" INTEGER,"
	"\"Thread Id\" INTEGER,\"Device Id\" TEXT,\"Ptr\" TEXT,\"Attr\" TEXT,"
	"\"Call Stack(Python)\" TEXT,\"Call Stack(C)\" TEXT)";
static const char columns_sql[] =
	"SELECT group_concat(name, ',') FROM pragma_table_info('memscope_dump')";
static const char insert_sql[] = "INSERT INTO memscope_dump VALUES(?,?,?,?,?,?,?,?,?,?,?,?)";

/*
 * The page size counts only for a new file. The log is copied back every 64 MiB or so: later
 * would cost the same but twice the disk.
 */
static const char setup_sql[] = "PRAGMA page_size=32768;"
				"PRAGMA journal_mode=WAL;"
				"PRAGMA synchronous=OFF;"
				"PRAGMA cache_size=-16384;"
				"PRAGMA temp_store=MEMORY;"
				"PRAGMA wal_autocheckpoint=2048;";

struct writer {
	sqlite3 *db;
	sqlite3_stmt *insert;
	sqlite3_stmt *begin;
	sqlite3_stmt *commit;
	enum row_compat compat;
	int failed; /* the negative errno that rows are dropped for, 0 when all is well */
	bool in_batch;
	uint64_t rows; /* in the open transaction */
	uint64_t lost_rows;
	char *path;
	struct buf name, attr, py_stack, c_stack; /* bound cells, valid until the next row */
	struct buf scratch; /* of text_clean() */
	char ptr[PUT_ADDR_LEN];
	char device[PUT_U64_MAX];
	const void *bound[COL_END]; /* the constant text that a column holds now, NULL for other */
	uint32_t pid, tid, device_bound; /* values that are bound, once `ids_bound` */
	bool ids_bound;
};

/* The open transaction is gone with all its rows. Reports it unless that was done before. */
static int fail_batch(struct writer *w, int rc, struct err *err)
{
	int before = w->failed;
	const char *text = sqlite3_errmsg(w->db);

	w->failed = sql_errno(w->db, rc);
	if (!before)
		err_set(err, w->failed,
			"cannot write \"%s\", rows are dropped until it works again: %s", w->path,
			text);
	if (!sqlite3_get_autocommit(w->db))
		sqlite3_exec(w->db, "ROLLBACK", NULL, NULL, NULL);
	w->in_batch = false;
	w->lost_rows += w->rows;
	w->rows = 0;
	return before ? 0 : w->failed;
}

static int bind_text(struct writer *w, enum cell_column col, const char *s, size_t n)
{
	w->bound[col] = NULL;
	if (n > INT32_MAX)
		return SQLITE_TOOBIG;
	return sqlite3_bind_text(w->insert, (int)col + 1, s, (int)n, SQLITE_STATIC);
}

/* A text that lives for ever and never changes: bound once for all rows that have it. */
static int bind_constant(struct writer *w, enum cell_column col, const char *s)
{
	if (w->bound[col] == s)
		return SQLITE_OK;
	int rc = bind_text(w, col, s, strlen(s));
	w->bound[col] = s;
	return rc;
}

/* With quotes around it, as readers of this table expect; they are not doubled inside. */
static int bind_quoted(struct writer *w, enum cell_column col, const char *s, size_t n,
		       struct buf *cell)
{
	if (n)
		s = text_clean(s, &n, &w->scratch);
	buf_clear(cell);
	buf_add_char(cell, '"');
	buf_add(cell, s, n);
	buf_add_char(cell, '"');
	return bind_text(w, col, cell->data, cell->len);
}

static int bind_stack(struct writer *w, enum cell_column col, const char *s, size_t n,
		      struct buf *cell)
{
	return s && n ? bind_quoted(w, col, s, n, cell) : bind_constant(w, col, "");
}

static int bind_name(struct writer *w, const struct row *row)
{
	size_t n;
	const char *s = cell_name(row, &n);

	if (row->event == ROW_MSTX)
		return bind_quoted(w, COL_NAME, s, n, &w->name);
	if (!row->name)
		return bind_constant(w, COL_NAME, "N/A");
	if (n) {
		const char *clean = text_clean(s, &n, &w->scratch);

		if (clean != s) {
			buf_clear(&w->name);
			buf_add(&w->name, clean, n);
			s = w->name.data;
		}
	}
	return bind_text(w, COL_NAME, n ? s : "", n);
}

static int bind_device(struct writer *w, uint32_t device)
{
	if (device == DEV_NONE)
		return bind_constant(w, COL_DEVICE, "N/A");
	if (device == DEV_HOST)
		return bind_constant(w, COL_DEVICE, "cpu");
	return bind_text(w, COL_DEVICE, w->device,
			 (size_t)(put_u64(w->device, device) - w->device));
}

/* What seldom changes from row to row. An unknown id is -1, as 26.0 stores it. */
static int bind_ids(struct writer *w, const struct row *row)
{
	int rc = SQLITE_OK;

	if (!w->ids_bound || w->pid != row->pid)
		rc |= sqlite3_bind_int64(w->insert, COL_PID + 1,
					 row->pid == UINT32_MAX ? -1 : (int64_t)row->pid);
	if (!w->ids_bound || w->tid != row->tid)
		rc |= sqlite3_bind_int64(w->insert, COL_TID + 1,
					 row->tid == UINT32_MAX ? -1 : (int64_t)row->tid);
	if (!w->ids_bound || w->device_bound != row->device)
		rc |= bind_device(w, row->device);
	w->pid = row->pid;
	w->tid = row->tid;
	w->device_bound = row->device;
	w->ids_bound = true;
	return rc;
}

static int bind_row(struct writer *w, const struct row *row)
{
	int rc = sqlite3_bind_int64(w->insert, COL_ID + 1, (sqlite3_int64)row->id);

	rc |= sqlite3_bind_int64(w->insert, COL_TIME + 1, (sqlite3_int64)row->time_ns);
	rc |= bind_constant(w, COL_EVENT, row_event_text(row->event));
	rc |= bind_constant(w, COL_TYPE, row_type_text(row->type, w->compat));
	rc |= bind_name(w, row);
	rc |= bind_ids(w, row);
	if (row->has_ptr) {
		put_addr(w->ptr, row->ptr);
		rc |= bind_text(w, COL_PTR, w->ptr, sizeof(w->ptr));
	} else {
		rc |= bind_constant(w, COL_PTR, "N/A");
	}
	buf_clear(&w->attr);
	cell_attrs_json(row, w->compat, &w->attr, &w->scratch);
	rc |= bind_text(w, COL_ATTR, w->attr.data, w->attr.len);
	rc |= bind_stack(w, COL_PY_STACK, row->py_stack, row->py_stack_len, &w->py_stack);
	rc |= bind_stack(w, COL_C_STACK, row->c_stack, row->c_stack_len, &w->c_stack);
	return rc;
}

static int commit_batch(struct writer *w, struct err *err)
{
	if (!w->in_batch)
		return 0;
	int rc = sql_run(w->commit);
	if (rc != SQLITE_OK)
		return fail_batch(w, rc, err);
	w->in_batch = false;
	w->rows = 0;
	return 0;
}

/* Dropped rows: has the room come back? Writes one page without a change to find out. */
static int try_again(struct writer *w)
{
	int rc = sqlite3_exec(w->db, "PRAGMA user_version=0", NULL, NULL, NULL);

	if (rc == SQLITE_OK)
		w->failed = 0;
	return 0;
}

static int db_flush(struct writer *w, struct err *err)
{
	return w->failed ? try_again(w) : commit_batch(w, err);
}

static int db_add(struct writer *w, const struct row *row, struct err *err)
{
	int rc = SQLITE_OK;

	BUG_ON(row->nattrs > ROW_MAX_ATTRS);
	if (w->failed) {
		w->lost_rows++;
		return 0;
	}
	w->rows++;
	if (!w->in_batch)
		rc = sql_run(w->begin);
	if (rc != SQLITE_OK)
		return fail_batch(w, rc, err);
	w->in_batch = true;
	rc = bind_row(w, row);
	if (rc == SQLITE_OK)
		rc = sql_run(w->insert);
	if (rc != SQLITE_OK)
		return fail_batch(w, rc, err);
	return w->rows < BATCH_ROWS ? 0 : commit_batch(w, err);
}

static uint64_t db_lost_rows(const struct writer *w)
{
	return w->lost_rows;
}

static int db_close(struct writer *w, struct err *err)
{
	if (!w)
		return 0;
	int r = commit_batch(w, err);
	if (w->failed && !r)
		r = err_set(err, w->failed,
			    "\"%s\" could not be written to the end, %llu rows are lost", w->path,
			    (unsigned long long)w->lost_rows);
	sqlite3_finalize(w->insert);
	sqlite3_finalize(w->begin);
	sqlite3_finalize(w->commit);
	sqlite3_close(w->db); /* copies the log back and removes it */
	buf_release(&w->name);
	buf_release(&w->attr);
	buf_release(&w->py_stack);
	buf_release(&w->c_stack);
	buf_release(&w->scratch);
	free(w->path);
	free(w);
	return r;
}

static bool table_is_ours(sqlite3 *db)
{
	sqlite3_stmt *stmt = NULL;
	bool ours = false;

	if (sqlite3_prepare_v2(db, columns_sql, -1, &stmt, NULL) == SQLITE_OK &&
	    sqlite3_step(stmt) == SQLITE_ROW) {
		const char *text = (const char *)sqlite3_column_text(stmt, 0);

		ours = text && !strcmp(text, CELL_COLUMNS);
	}
	sqlite3_finalize(stmt);
	return ours;
}

static int open_database(struct writer *w, struct err *err)
{
	int rc = sql_open_to_write(w->path, NULL, &w->db);

	if (rc == SQLITE_OK)
		rc = sqlite3_busy_timeout(w->db, BUSY_MS);
	if (rc == SQLITE_OK)
		rc = sqlite3_exec(w->db, setup_sql, NULL, NULL, NULL);
	if (rc == SQLITE_OK)
		rc = sqlite3_exec(w->db, create_sql, NULL, NULL, NULL);
	if (rc == SQLITE_NOTADB)
		return err_set(err, -EEXIST, "\"%s\" exists and is not a database", w->path);
	if (rc == SQLITE_OK && !table_is_ours(w->db))
		return err_set(err, -EEXIST, "\"%s\" has a table memscope_dump of another kind",
			       w->path);
	if (rc == SQLITE_OK)
		rc = sqlite3_prepare_v3(w->db, insert_sql, -1, SQLITE_PREPARE_PERSISTENT,
					&w->insert, NULL);
	if (rc == SQLITE_OK)
		rc = sqlite3_prepare_v3(w->db, "BEGIN IMMEDIATE", -1, SQLITE_PREPARE_PERSISTENT,
					&w->begin, NULL);
	if (rc == SQLITE_OK)
		rc = sqlite3_prepare_v3(w->db, "COMMIT", -1, SQLITE_PREPARE_PERSISTENT, &w->commit,
					NULL);
	if (rc == SQLITE_OK)
		return 0;
	return err_set(err, sql_errno(w->db, rc), "cannot open \"%s\": %s", w->path,
		       sqlite3_errmsg(w->db));
}

static int db_open(const char *path, enum row_compat compat, struct writer **out, struct err *err)
{
	int r = fs_open(path, O_RDWR | O_CREAT, 0600, err);

	if (r < 0)
		return r;
	close(r);
	struct writer *w = xcalloc(1, sizeof(*w));
	w->path = xstrdup(path);
	w->compat = compat;
	r = open_database(w, err);
	if (r < 0)
		db_close(w, NULL);
	else
		*out = w;
	return r;
}

const struct writer_ops db_writer = {
	.name = "db",
	.suffix = "db",
	.open = db_open,
	.add = db_add,
	.flush = db_flush,
	.close = db_close,
	.lost_rows = db_lost_rows,
};

const struct writer_ops *writer_find(const char *name)
{
	return !strcmp(name, "csv") ? &csv_writer : !strcmp(name, "db") ? &db_writer : NULL;
}
