/* SPDX-License-Identifier: MulanPSL-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "activity/files/db_tables.h"
#include "activity/read/read_db_impl.h"
#include "base/containers/intern.h"
#include "base/text/text.h"
#include "formats/sqlite_use.h"

#define BUSY_MS 5000
#define MAX_CELL (64 << 20)

int db_reading_error(struct db_reading *r, int rc)
{
	int code = (rc & 0xff) == SQLITE_BUSY	  ? -EBUSY
		   : (rc & 0xff) == SQLITE_NOTADB ? -EINVAL
						  : -EIO;

	return err_set(r->err, code, "cannot read '%s': %s", r->path, sqlite3_errmsg(r->db));
}

bool db_reading_has(struct db_reading *r, const char *name)
{
	static const char sql[] = "SELECT 1 FROM sqlite_master WHERE type='table' AND name=? AND "
				  "rootpage>0";
	sqlite3_stmt *stmt = NULL;
	bool there = false;

	if (sqlite3_prepare_v2(r->db, sql, -1, &stmt, NULL) == SQLITE_OK) {
		sqlite3_bind_text(stmt, 1, name, -1, SQLITE_STATIC);
		there = sqlite3_step(stmt) == SQLITE_ROW;
	}
	sqlite3_finalize(stmt);
	return there;
}

/* --- opening --- */

static void harden(sqlite3 *db)
{
	sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
	sqlite3_db_config(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
	sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_VIEW, 0, NULL);
	sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, NULL);
	sqlite3_limit(db, SQLITE_LIMIT_LENGTH, MAX_CELL);
	sqlite3_busy_timeout(db, BUSY_MS);
}

static int try_schema(sqlite3 *db)
{
	int rc = sqlite3_exec(db, "PRAGMA cell_size_check=ON;", NULL, NULL, NULL);

	return rc == SQLITE_OK
		       ? sqlite3_exec(db, "SELECT count(*) FROM sqlite_master", NULL, NULL, NULL)
		       : rc;
}

/* Beside a file whose writer was killed there may be a journal, which we must not play back, and in
 * a directory without write permission a log cannot be read: then the file is taken as it is. */
int db_reading_open(struct db_reading *r)
{
	const int flags = SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX;
	char *real = realpath(r->path, NULL);
	const char *path = real ? real : r->path;
	int rc = sqlite3_open_v2(path, &r->db, flags, NULL);

	if (rc == SQLITE_OK) {
		harden(r->db);
		rc = try_schema(r->db);
	}
	if ((rc & 0xff) == SQLITE_READONLY || (rc & 0xff) == SQLITE_CANTOPEN) {
		char *uri = sql_immutable_uri(path);

		sqlite3_close(r->db);
		rc = sqlite3_open_v2(uri, &r->db, flags | SQLITE_OPEN_URI, NULL);
		free(uri);
		if (rc == SQLITE_OK) {
			harden(r->db);
			rc = try_schema(r->db);
		}
	}
	free(real);
	return rc == SQLITE_OK ? 0 : db_reading_error(r, rc);
}

/* --- texts --- */

static const char *column_text(struct db_reading *r, sqlite3_stmt *stmt, int i)
{
	const char *text = (const char *)sqlite3_column_text(stmt, i);
	size_t len = text ? (size_t)sqlite3_column_bytes(stmt, i) : 0;
	const char *clean = text ? text_clean(text, &len, &r->scratch) : "";

	return intern(len ? clean : "", len);
}

static int load_texts(struct db_reading *r)
{
	sqlite3_stmt *stmt = NULL;
	int rc = sqlite3_prepare_v2(r->db, "SELECT id,value FROM STRING_IDS", -1, &stmt, NULL);

	while (rc == SQLITE_OK && (rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		const char *text = column_text(r, stmt, 1);

		hmap_put(&r->texts, (uint64_t)sqlite3_column_int64(stmt, 0), (uintptr_t)text);
		rc = SQLITE_OK;
	}
	sqlite3_finalize(stmt);
	return rc == SQLITE_DONE ? 0 : db_reading_error(r, rc);
}

int db_reading_texts(struct db_reading *r)
{
	static const char sql[] = "SELECT id,value FROM STRING_IDS WHERE rowid=?";

	r->mark_type = intern(ACTIVITY_TASK_MARK, strlen(ACTIVITY_TASK_MARK));
	if (!db_reading_has(r, "STRING_IDS")) {
		r->about->nameless = true;
		return 0;
	}
	/* a table without row numbers is no mistake */
	if (sqlite3_prepare_v2(r->db, sql, -1, &r->text, NULL) != SQLITE_OK)
		return load_texts(r);
	return 0;
}

int db_reading_text(struct db_reading *r, int64_t id, const char **out)
{
	uint64_t known = hmap_get(&r->texts, (uint64_t)id);
	char number[32];

	if (known == HMAP_NONE && r->text) {
		sqlite3_reset(r->text);
		sqlite3_bind_int64(r->text, 1, id < INT64_MAX ? id + 1 : id);
		int rc = sqlite3_step(r->text);
		if (rc == SQLITE_ROW && sqlite3_column_int64(r->text, 0) == id) {
			known = (uintptr_t)column_text(r, r->text, 1);
			hmap_put(&r->texts, (uint64_t)id, known);
		} else {
			sqlite3_finalize(r->text);
			r->text = NULL;
			int got = load_texts(r);
			if (got < 0)
				return got;
			known = hmap_get(&r->texts, (uint64_t)id);
		}
	}
	if (known == HMAP_NONE) {
		sqlite3_snprintf(sizeof(number), number, "#%lld", (long long)id);
		known = (uintptr_t)intern(number, strlen(number));
		hmap_put(&r->texts, (uint64_t)id, known);
	}
	*out = (const char *)(uintptr_t)known;
	return 0;
}
