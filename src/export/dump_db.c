/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Cells out of an SQLite dump. The file may come from anywhere: its schema is not trusted, and
 * only a plain table is read.
 *
 * A file without a log beside it is not being written. It is then opened as immutable: that works
 * in a directory without write permission and leaves no -wal and -shm behind.
 */
#include "export/dump_source.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "export/csv_lex.h"

#define BUSY_MS 5000

struct db_source {
	struct dump_source src;
	sqlite3 *db;
	sqlite3_stmt *stmt;
	bool done; /* another step would begin again */
	int columns[COL_END]; /* in the statement, -1 for none */
};

static int db_error(struct db_source *s, int rc, struct err *err)
{
	int code = (rc & 0xff) == SQLITE_BUSY	  ? -EBUSY
		   : (rc & 0xff) == SQLITE_NOTADB ? -EINVAL
						  : -EIO;

	return err_set(err, code, "cannot read \"%s\": %s", s->src.path, sqlite3_errmsg(s->db));
}

static int db_next(struct dump_source *src, struct cell *cells, struct err *err)
{
	struct db_source *s = (struct db_source *)src;
	int rc = s->done ? SQLITE_DONE : sqlite3_step(s->stmt);

	s->done = rc != SQLITE_ROW;
	if (rc == SQLITE_DONE)
		return 0;
	if (rc != SQLITE_ROW)
		return db_error(s, rc, err);
	src->line++;
	for (unsigned i = 0; i < COL_END; i++) {
		if (s->columns[i] < 0)
			continue;
		cells[i].text = (const char *)sqlite3_column_text(s->stmt, s->columns[i]);
		cells[i].len =
			cells[i].text ? (size_t)sqlite3_column_bytes(s->stmt, s->columns[i]) : 0;
	}
	return 1;
}

static void db_free(struct dump_source *src)
{
	struct db_source *s = (struct db_source *)src;

	sqlite3_finalize(s->stmt);
	sqlite3_close(s->db);
	free(s);
}

static const struct dump_source_ops db_ops = {
	.is_db = true,
	.next = db_next,
	.free = db_free,
};

static bool has_log(const char *path)
{
	char *wal = xasprintf("%s-wal", path);
	struct stat st;
	bool has = !stat(wal, &st) && st.st_size > 0;

	free(wal);
	return has;
}

/* Everything that means something in a URI is escaped. */
static char *immutable_uri(const char *path)
{
	struct buf b = {0};

	buf_add_str(&b, "file:");
	for (; *path; path++) {
		if (strchr("%?#", *path))
			buf_addf(&b, "%%%02x", (unsigned char)*path);
		else
			buf_add_char(&b, *path);
	}
	buf_add_str(&b, "?immutable=1");
	buf_str(&b);
	return b.data;
}

static int open_db(struct db_source *s)
{
	const int flags = SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX;
	char *real = realpath(s->src.path, NULL);
	const char *path = real ? real : s->src.path;
	int rc;

	if (has_log(path)) {
		rc = sqlite3_open_v2(path, &s->db, flags, NULL);
	} else {
		char *uri = immutable_uri(path);

		rc = sqlite3_open_v2(uri, &s->db, flags | SQLITE_OPEN_URI, NULL);
		free(uri);
	}
	free(real);
	if (rc != SQLITE_OK)
		return rc;
	sqlite3_busy_timeout(s->db, BUSY_MS);
	sqlite3_db_config(s->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
	sqlite3_db_config(s->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
	sqlite3_db_config(s->db, SQLITE_DBCONFIG_ENABLE_VIEW, 0, NULL);
	sqlite3_limit(s->db, SQLITE_LIMIT_LENGTH, CSV_MAX_RECORD);
	return sqlite3_exec(s->db, "PRAGMA cell_size_check=ON", NULL, NULL, NULL);
}

/* A view or a virtual table would run what its author wrote. */
static int check_table(struct db_source *s, struct err *err)
{
	static const char sql[] = "SELECT 1 FROM sqlite_master WHERE type='table' AND "
				  "name='memscope_dump' AND rootpage>0";
	sqlite3_stmt *stmt = NULL;
	int rc = sqlite3_prepare_v2(s->db, sql, -1, &stmt, NULL);

	if (rc == SQLITE_OK)
		rc = sqlite3_step(stmt);
	sqlite3_finalize(stmt);
	if (rc == SQLITE_ROW)
		return 0;
	if (rc == SQLITE_DONE)
		return err_set(err, -EINVAL, "\"%s\" is not a memory dump: no table memscope_dump",
			       s->src.path);
	return db_error(s, rc, err);
}

static int prepare(struct db_source *s, struct err *err)
{
	unsigned have = 0;
	int rc = open_db(s);

	if (rc != SQLITE_OK)
		return db_error(s, rc, err);
	int r = check_table(s, err);
	if (r < 0)
		return r;
	rc = sqlite3_prepare_v2(s->db, "SELECT * FROM memscope_dump", -1, &s->stmt, NULL);
	if (rc != SQLITE_OK)
		return db_error(s, rc, err);
	memset(s->columns, -1, sizeof(s->columns));
	for (int i = 0; i < sqlite3_column_count(s->stmt); i++) {
		const char *name = sqlite3_column_name(s->stmt, i);
		enum cell_column col = name ? cell_column_find(name, strlen(name)) : COL_END;

		if (col == COL_END)
			continue;
		s->columns[col] = i;
		have |= 1u << col;
	}
	return dump_check_columns(s->src.path, have, err);
}

int dump_db_open(const char *path, struct dump_source **out, struct err *err)
{
	struct db_source *s = xcalloc(1, sizeof(*s));

	s->src.ops = &db_ops;
	s->src.path = path;
	int r = prepare(s, err);
	if (r < 0)
		db_free(&s->src);
	else
		*out = &s->src;
	return r;
}
