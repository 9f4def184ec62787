/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/dump/calls.h"

#include "base/fs.h"
#include "base/mem.h"
#include "base/text/csv.h"
#include "base/text/text.h"
#include "formats/sqlite_use.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BUSY_MS 5000

/* --- CSV --- */

static char *put_time(char *p, uint64_t ns)
{
	return ns ? put_u64(p, ns) : put_bytes(p, "N/A", 3);
}

void trace_csv_add(struct buf *out, const struct trace_row *row, struct buf *scratch)
{
	size_t n = row->text_len, prefix = strlen(row->prefix);
	const char *s = text_clean(row->text, &n, scratch);
	char *begin = buf_room(out, prefix + 2 * n + 2 + 4 * (PUT_U64_MAX + 1) + 1), *p = begin;
	bool quotes = csv_needs_quotes(s, n);

	if (quotes)
		*p++ = '"';
	p = put_bytes(p, row->prefix, prefix);
	p = quotes ? csv_put_doubled(p, s, n) : put_bytes(p, s, n);
	if (quotes)
		*p++ = '"';
	*p++ = ',';
	p = put_time(p, row->start_ns);
	*p++ = ',';
	p = put_time(p, row->end_ns);
	*p++ = ',';
	p = put_u64(p, row->tid);
	*p++ = ',';
	p = put_u64(p, row->pid);
	*p++ = '\n';
	out->len += (size_t)(p - begin);
}

/*
 * --- SQLite ---
 *
 * The table stands in the file of a dump where there is one, through a connection of its own: the
 * dump's must have committed before ours begins.
 */

struct trace_db {
	sqlite3 *db;
	sqlite3_stmt *insert;
	char *path;
	struct buf text, scratch;
};

static int db_error(struct trace_db *t, int rc, struct err *err)
{
	int r = err_set(err, sql_errno(t->db, rc), "cannot write calls to \"%s\": %s", t->path,
			sql_words(t->db, rc));

	if (t->db && !sqlite3_get_autocommit(t->db))
		sqlite3_exec(t->db, "ROLLBACK", NULL, NULL, NULL);
	return r;
}

static int open_table(struct trace_db *t, uint32_t pid, struct err *err)
{
	static const char setup[] = "PRAGMA journal_mode=WAL;PRAGMA synchronous=OFF;";
	char *create = xasprintf("CREATE TABLE IF NOT EXISTS python_trace_%u(\"FuncInfo\" TEXT,"
				 "\"StartTime(ns)\" TEXT,\"EndTime(ns)\" TEXT,"
				 "\"Thread Id\" INTEGER,\"Process Id\" INTEGER)",
				 pid);
	char *insert = xasprintf("INSERT INTO python_trace_%u VALUES(?,?,?,?,?)", pid);
	int rc = sql_open_to_write(t->path, NULL, &t->db);

	if (rc == SQLITE_OK)
		rc = sqlite3_busy_timeout(t->db, BUSY_MS);
	if (rc == SQLITE_OK)
		rc = sqlite3_exec(t->db, setup, NULL, NULL, NULL);
	if (rc == SQLITE_OK)
		rc = sqlite3_exec(t->db, create, NULL, NULL, NULL);
	if (rc == SQLITE_OK)
		rc = sqlite3_prepare_v3(t->db, insert, -1, SQLITE_PREPARE_PERSISTENT, &t->insert,
					NULL);
	free(create);
	free(insert);
	return rc == SQLITE_OK ? 0 : db_error(t, rc, err);
}

int trace_db_open(const char *path, uint32_t pid, struct trace_db **out, struct err *err)
{
	int fd = fs_open(path, O_RDWR | O_CREAT, 0600, err);

	if (fd < 0)
		return fd;
	close(fd);
	struct trace_db *t = xcalloc(1, sizeof(*t));
	t->path = xstrdup(path);
	int r = open_table(t, pid, err);
	if (r < 0)
		trace_db_close(t);
	else
		*out = t;
	return r;
}

int trace_db_begin(struct trace_db *t, struct err *err)
{
	int rc = sqlite3_exec(t->db, "BEGIN IMMEDIATE", NULL, NULL, NULL);

	return rc == SQLITE_OK ? 0 : db_error(t, rc, err);
}

static int bind_text(struct trace_db *t, int col, const char *s, size_t n)
{
	return sqlite3_bind_text(t->insert, col, s, (int)n, SQLITE_TRANSIENT);
}

static int bind_time(struct trace_db *t, int col, uint64_t ns)
{
	char text[PUT_U64_MAX];

	if (!ns)
		return bind_text(t, col, "N/A", 3);
	return bind_text(t, col, text, (size_t)(put_u64(text, ns) - text));
}

int trace_db_add(struct trace_db *t, const struct trace_row *row, struct err *err)
{
	size_t n = row->text_len;
	const char *s = text_clean(row->text, &n, &t->scratch);

	buf_clear(&t->text);
	buf_add_str(&t->text, row->prefix);
	buf_add(&t->text, s, n);
	int rc = bind_text(t, 1, t->text.len ? t->text.data : "", t->text.len);
	rc |= bind_time(t, 2, row->start_ns);
	rc |= bind_time(t, 3, row->end_ns);
	rc |= sqlite3_bind_int64(t->insert, 4, row->tid);
	rc |= sqlite3_bind_int64(t->insert, 5, row->pid);
	if (rc == SQLITE_OK)
		rc = sql_run(t->insert);
	return rc == SQLITE_OK ? 0 : db_error(t, rc, err);
}

int trace_db_commit(struct trace_db *t, struct err *err)
{
	int rc = sqlite3_exec(t->db, "COMMIT", NULL, NULL, NULL);

	return rc == SQLITE_OK ? 0 : db_error(t, rc, err);
}

void trace_db_close(struct trace_db *t)
{
	if (!t)
		return;
	sqlite3_finalize(t->insert);
	sqlite3_close(t->db);
	buf_release(&t->text);
	buf_release(&t->scratch);
	free(t->path);
	free(t);
}
