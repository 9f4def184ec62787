/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Cells out of an SQLite dump. The file may come from anywhere: its schema is not trusted, and
 * only a plain table is read.
 *
 * A file without a log beside it is not being written. It is then opened as immutable: that works
 * in a directory without write permission and leaves no -wal and -shm behind.
 */
#include "memory/input/reader_impl.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "base/text/text.h"
#include "formats/sqlite_use.h"
#include "memory/dump/csv_lex.h"

#define BUSY_MS 5000

struct db_source {
	struct dump_source src;
	sqlite3 *db;
	sqlite3_stmt *stmt;
	bool done; /* another step would begin again */
	int row_number; /* column of the rowid in the statement, -1 for none */
	int columns[COL_END]; /* in the statement, -1 for none */
	struct cell cells[COL_END];
	char words[COL_END][DUMP_WORD_MAX + CELL_SLACK];
};

static int db_error(sqlite3 *db, const char *path, int rc, struct err *err)
{
	int code = (rc & 0xff) == SQLITE_BUSY	  ? -EBUSY
		   : (rc & 0xff) == SQLITE_NOTADB ? -EINVAL
						  : -EIO;

	return err_set(err, code, "cannot read \"%s\": %s", path, sqlite3_errmsg(db));
}

static char *put_i64(char *p, int64_t v)
{
	if (v < 0)
		*p++ = '-';
	return put_u64(p, v < 0 ? -(uint64_t)v : (uint64_t)v);
}

static bool is_number(enum cell_column col)
{
	return col == COL_ID || col == COL_TIME || col == COL_PID || col == COL_TID;
}

/* Long texts stay where they lie; numbers and words get their slack. */
static struct cell db_cell(struct db_source *s, enum cell_column col)
{
	const int at = s->columns[col];
	char *word = s->words[col];

	/* Our own text of a number is made faster than SQLite's. */
	if (is_number(col) && sqlite3_column_type(s->stmt, at) == SQLITE_INTEGER)
		return (struct cell){
			word, (size_t)(put_i64(word, sqlite3_column_int64(s->stmt, at)) - word)};
	const char *text = (const char *)sqlite3_column_text(s->stmt, at);
	if (!text)
		return (struct cell){0};
	size_t len = (size_t)sqlite3_column_bytes(s->stmt, at);
	if (len > DUMP_WORD_MAX || col == COL_ATTR)
		return (struct cell){text, len};
	memcpy(word, text, len);
	return (struct cell){word, len};
}

static int db_next(struct dump_source *src, struct err *err)
{
	struct db_source *s = (struct db_source *)src;
	int rc = s->done ? SQLITE_DONE : sqlite3_step(s->stmt);

	s->done = rc != SQLITE_ROW;
	if (rc == SQLITE_DONE)
		return 0;
	if (rc != SQLITE_ROW)
		return db_error(s->db, s->src.path, rc, err);
	src->line++;
	if (s->row_number >= 0)
		src->line = (uint64_t)sqlite3_column_int64(s->stmt, s->row_number);
	for (unsigned i = 0; i < COL_END; i++)
		if (s->columns[i] >= 0)
			s->cells[i] = db_cell(s, (enum cell_column)i);
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

static int open_db(struct db_source *s)
{
	char *real = realpath(s->src.path, NULL);
	const char *path = real ? real : s->src.path;
	int rc = sql_open_to_read(path, !has_log(path), &s->db);

	free(real);
	return rc;
}

int dump_db_check(sqlite3 *db, const char *path, bool *out_old, struct err *err)
{
	static const char sql[] =
		"SELECT name FROM sqlite_master WHERE type='table' AND name IN "
		"('memscope_dump','leaks_dump') AND rootpage>0 ORDER BY name DESC";
	sqlite3_stmt *stmt = NULL;

	sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
	sqlite3_db_config(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
	sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_VIEW, 0, NULL);
	sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, NULL);
	sqlite3_limit(db, SQLITE_LIMIT_LENGTH, CSV_MAX_RECORD);
	sqlite3_busy_timeout(db, BUSY_MS);
	int rc = sqlite3_exec(db, "PRAGMA cell_size_check=ON", NULL, NULL, NULL);
	if (rc == SQLITE_OK)
		rc = sqlite3_prepare_v2(db, sql, -1, &stmt, NULL);
	if (rc == SQLITE_OK)
		rc = sqlite3_step(stmt);
	if (rc == SQLITE_ROW) {
		const char *name = (const char *)sqlite3_column_text(stmt, 0);
		*out_old = name && *name == 'l';
	}
	sqlite3_finalize(stmt);
	if (rc == SQLITE_ROW)
		return 0;
	if (rc == SQLITE_DONE)
		return err_set(
			err, -EINVAL,
			"\"%s\" is not a memory dump: no table memscope_dump (or leaks_dump, "
			"as msLeaks called it)",
			path);
	return db_error(db, path, rc, err);
}

/* Does the table have times in microseconds? */
static bool has_us(sqlite3 *db, const char *table)
{
	char *sql = xasprintf("SELECT * FROM %s", table);
	sqlite3_stmt *stmt = NULL;
	bool found = false;

	if (sqlite3_prepare_v2(db, sql, -1, &stmt, NULL) == SQLITE_OK)
		for (int i = 0; i < sqlite3_column_count(stmt); i++) {
			const char *name = sqlite3_column_name(stmt, i);
			found |= name && dump_time_is_us(name, strlen(name));
		}
	sqlite3_finalize(stmt);
	free(sql);
	return found;
}

/* A table may have been made without row numbers; then rows of one time and ID have no order. */
static int select_rows(struct db_source *s, bool sorted, bool old)
{
	const char *table = old ? "leaks_dump" : "memscope_dump";

	s->src.in_us = has_us(s->db, table);
	s->src.plain_attrs = old || s->src.in_us;
	char *plain = xasprintf("SELECT * FROM %s", table);
	char *order = xasprintf("ORDER BY CAST(\"%s\" AS INTEGER),CAST(\"ID\" AS INTEGER)",
				s->src.in_us ? DUMP_TIME_IN_US : "Timestamp(ns)");
	char *numbered = xasprintf("SELECT *,rowid FROM %s %s,rowid", table, order);
	char *ordered = xasprintf("%s %s", plain, order);
	int rc = sqlite3_prepare_v2(s->db, sorted ? numbered : plain, -1, &s->stmt, NULL);

	s->row_number = rc == SQLITE_OK && sorted ? sqlite3_column_count(s->stmt) - 1 : -1;
	if (rc != SQLITE_OK && sorted)
		rc = sqlite3_prepare_v2(s->db, ordered, -1, &s->stmt, NULL);
	free(plain);
	free(order);
	free(numbered);
	free(ordered);
	return rc;
}

static int prepare_rows(struct db_source *s, bool sorted, struct err *err)
{
	int rc = open_db(s);

	if (rc != SQLITE_OK)
		return db_error(s->db, s->src.path, rc, err);
	bool old = false;
	int r = dump_db_check(s->db, s->src.path, &old, err);
	if (r < 0)
		return r;
	rc = select_rows(s, sorted, old);
	if (rc != SQLITE_OK)
		return db_error(s->db, s->src.path, rc, err);
	memset(s->columns, -1, sizeof(s->columns));
	for (int i = 0; i < sqlite3_column_count(s->stmt); i++) {
		const char *name = sqlite3_column_name(s->stmt, i);
		enum cell_column col = !name ? COL_END
				       : dump_time_is_us(name, strlen(name))
					       ? COL_TIME
					       : cell_column_find(name, strlen(name));

		if (col == COL_END)
			continue;
		s->columns[col] = i;
		s->src.columns[col] = &s->cells[col];
	}
	return dump_check_columns(&s->src, err);
}

int dump_db_open(const char *path, bool sorted, struct dump_source **out, struct err *err)
{
	struct db_source *s = xcalloc(1, sizeof(*s));

	s->src.ops = &db_ops;
	s->src.path = path;
	int r = prepare_rows(s, sorted, err);
	if (r < 0)
		db_free(&s->src);
	else
		*out = &s->src;
	return r;
}
