/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The table of calls. It stands in the file of a dump where there is one, through a connection of
 * its own: the dump's must have committed before ours begins.
 */
#include "memory/dump/calls.h"

#include "base/mem.h"
#include "base/text/text.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BUSY_MS 5000

struct trace_db {
	sqlite3 *db;
	sqlite3_stmt *insert;
	char *path;
	struct buf text, scratch;
};

static int db_error(struct trace_db *t, int rc, struct err *err)
{
	int code = (rc & 0xff) == SQLITE_FULL	? -ENOSPC
		   : (rc & 0xff) == SQLITE_BUSY ? -EBUSY
						: -EIO;

	return err_set(err, code, "cannot write calls to \"%s\": %s", t->path,
		       sqlite3_errmsg(t->db));
}

static int prepare(struct trace_db *t, uint32_t pid, struct err *err)
{
	static const char setup[] = "PRAGMA journal_mode=WAL;PRAGMA synchronous=OFF;";
	char *create = xasprintf("CREATE TABLE IF NOT EXISTS python_trace_%u(\"FuncInfo\" TEXT,"
				 "\"StartTime(ns)\" TEXT,\"EndTime(ns)\" TEXT,"
				 "\"Thread Id\" INTEGER,\"Process Id\" INTEGER)",
				 pid);
	char *insert = xasprintf("INSERT INTO python_trace_%u VALUES(?,?,?,?,?)", pid);
	const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW;
	char *real = realpath(t->path, NULL);
	int rc = sqlite3_open_v2(real ? real : t->path, &t->db, flags, NULL);

	if (rc == SQLITE_OK)
		rc = sqlite3_busy_timeout(t->db, BUSY_MS);
	if (rc == SQLITE_OK)
		rc = sqlite3_exec(t->db, setup, NULL, NULL, NULL);
	if (rc == SQLITE_OK)
		rc = sqlite3_exec(t->db, create, NULL, NULL, NULL);
	if (rc == SQLITE_OK)
		rc = sqlite3_prepare_v3(t->db, insert, -1, SQLITE_PREPARE_PERSISTENT, &t->insert,
					NULL);
	free(real);
	free(create);
	free(insert);
	return rc == SQLITE_OK ? 0 : db_error(t, rc, err);
}

int trace_db_open(const char *path, uint32_t pid, struct trace_db **out, struct err *err)
{
	/* SQLite makes files by umask and follows links, so the file is made here first. */
	int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600);

	if (fd < 0)
		return err_sys(err, -errno, "cannot create \"%s\"", path);
	close(fd);
	struct trace_db *t = xcalloc(1, sizeof(*t));
	t->path = xstrdup(path);
	int r = prepare(t, pid, err);
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
	if (rc == SQLITE_OK) {
		sqlite3_step(t->insert);
		rc = sqlite3_reset(t->insert);
	}
	if (rc == SQLITE_OK)
		return 0;
	int r = db_error(t, rc, err);
	if (!sqlite3_get_autocommit(t->db))
		sqlite3_exec(t->db, "ROLLBACK", NULL, NULL, NULL);
	return r;
}

int trace_db_commit(struct trace_db *t, struct err *err)
{
	int rc = sqlite3_exec(t->db, "COMMIT", NULL, NULL, NULL);

	if (rc == SQLITE_OK)
		return 0;
	int r = db_error(t, rc, err);
	if (!sqlite3_get_autocommit(t->db))
		sqlite3_exec(t->db, "ROLLBACK", NULL, NULL, NULL);
	return r;
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
