/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Activities out of a DB. The file may come from anywhere: its schema is not trusted, only plain
 * tables are read, and tables may be missing.
 *
 * Nothing has an index. Texts of our own files lie in the order of their ids, so that one is found
 * by the number of its row; those of msmonitor are read as a whole. Kernels and their tasks are
 * read side by side, as they were written.
 */
#include "activity/files/activity.h"
#include "activity/files/db_file.h"
#include "activity/read/read.h"
#include "base/containers/buf.h"
#include "base/containers/hmap.h"
#include "base/containers/intern.h"
#include "base/mem.h"
#include "base/text/text.h"
#include "formats/sqlite_use.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

#define BUSY_MS 5000
#define MAX_CELL (64 << 20)

struct db_reading {
	sqlite3 *db;
	const char *path;
	activity_read_fn fn;
	void *arg;
	struct activity_about *about;
	struct err *err;
	struct buf scratch;
	struct hmap texts; /* id to interned text */
	sqlite3_stmt
		*text; /* by the number of its row; NULL: all are in the map, or there are none */
	struct hmap marks; /* connectionId to the number of its row in MSTX_EVENTS */
	const char *(*mark_texts)[2];
	size_t nmarks, marks_cap;
	sqlite3_stmt *info; /* COMPUTE_TASK_INFO, at the next row */
	bool info_there;
	struct hmap infos; /* globalTaskId to id of the name, when they are not side by side */
	bool infos_loaded;
	const char *mark_type; /* "MsTx", interned */
	enum activity_table table; /* that is being read */
	uint64_t task; /* the id of its row, of a task */
};

static int db_reading_error(struct db_reading *r, int rc)
{
	int code = (rc & 0xff) == SQLITE_BUSY	  ? -EBUSY
		   : (rc & 0xff) == SQLITE_NOTADB ? -EINVAL
						  : -EIO;

	return err_set(r->err, code, "cannot read '%s': %s", r->path, sqlite3_errmsg(r->db));
}

static bool db_reading_has(struct db_reading *r, const char *name)
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

static void harden_db(sqlite3 *db)
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
static int db_reading_open(struct db_reading *r)
{
	int rc = sql_open_to_read(r->path, false, &r->db);

	if (rc == SQLITE_OK) {
		harden_db(r->db);
		rc = try_schema(r->db);
	}
	if ((rc & 0xff) == SQLITE_READONLY || (rc & 0xff) == SQLITE_CANTOPEN) {
		sqlite3_close(r->db);
		rc = sql_open_to_read(r->path, true, &r->db);
		if (rc == SQLITE_OK) {
			harden_db(r->db);
			rc = try_schema(r->db);
		}
	}
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

static int db_reading_texts(struct db_reading *r)
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

static int db_reading_text(struct db_reading *r, int64_t id, const char **out)
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

/* --- tables --- */

static uint64_t u64(sqlite3_stmt *stmt, int i)
{
	return (uint64_t)sqlite3_column_int64(stmt, i);
}

static int report_activity(struct db_reading *r, const struct activity *a)
{
	r->about->activities++;
	return r->fn(r->arg, a);
}

typedef int (*row_fn)(struct db_reading *r, sqlite3_stmt *stmt);

static int each_row(struct db_reading *r, const char *table, const char *columns, row_fn fn)
{
	sqlite3_stmt *stmt = NULL;
	int got = 0;

	if (!db_reading_has(r, table))
		return 0;
	char *sql = xasprintf("SELECT %s FROM %s", columns, table);
	int rc = sqlite3_prepare_v2(r->db, sql, -1, &stmt, NULL);
	free(sql);
	if (rc != SQLITE_OK)
		got = db_reading_error(r, rc);
	while (got == 0 && (rc = sqlite3_step(stmt)) == SQLITE_ROW)
		got = fn(r, stmt);
	if (got == 0 && rc != SQLITE_DONE)
		got = db_reading_error(r, rc);
	sqlite3_finalize(stmt);
	return got;
}

/* Kept for the device's half, whose texts they are. */
static int add_host_mark(struct db_reading *r, struct activity *a)
{
	a->correlation -= ACTIVITY_MARK_OFFSET;
	r->mark_texts = xgrow(r->mark_texts, &r->marks_cap, r->nmarks + 1, sizeof(*r->mark_texts));
	r->mark_texts[r->nmarks][0] = a->name;
	r->mark_texts[r->nmarks][1] = a->detail;
	hmap_put(&r->marks, a->correlation, r->nmarks++);
	return report_activity(r, a);
}

static int add_device_mark(struct db_reading *r, struct activity *a)
{
	a->kind = ACTIVITY_MARKER;
	a->flag = a->start_ns == a->end_ns ? ACTIVITY_MARK_INSTANT : ACTIVITY_MARK_START;
	a->correlation -= ACTIVITY_MARK_OFFSET;
	uint64_t mark = hmap_get(&r->marks, a->correlation);
	a->name = mark == HMAP_NONE ? "" : r->mark_texts[mark][0];
	a->detail = mark == HMAP_NONE ? "default" : r->mark_texts[mark][1];
	return report_activity(r, a);
}

static int next_info(struct db_reading *r)
{
	int rc = sqlite3_step(r->info);

	r->info_there = rc == SQLITE_ROW;
	return rc == SQLITE_ROW || rc == SQLITE_DONE ? 0 : db_reading_error(r, rc);
}

static int load_infos(struct db_reading *r)
{
	int got = 0;

	r->infos_loaded = true;
	sqlite3_reset(r->info);
	for (got = next_info(r); got == 0 && r->info_there; got = next_info(r))
		if (u64(r->info, 1) != HMAP_NONE) /* no text has that number */
			hmap_put(&r->infos, u64(r->info, 0), u64(r->info, 1));
	return got;
}

/* The name of the kernel that a task ran; its type where nobody says. */
static int find_kernel(struct db_reading *r, uint64_t task, struct activity *a)
{
	int got = 0;

	a->name = a->detail;
	if (!r->info)
		return 0;
	if (!r->infos_loaded && r->info_there && u64(r->info, 0) == task) {
		got = db_reading_text(r, sqlite3_column_int64(r->info, 1), &a->name);
		return got < 0 ? got : next_info(r);
	}
	if (!r->infos_loaded)
		got = load_infos(r);
	uint64_t name = got < 0 ? HMAP_NONE : hmap_get(&r->infos, task);
	return name == HMAP_NONE ? got : db_reading_text(r, (int64_t)name, &a->name);
}

/* Without texts a mark is known by its id. */
static int add_task(struct db_reading *r, struct activity *a)
{
	if (a->detail == r->mark_type ||
	    (r->about->nameless && a->correlation >= ACTIVITY_MARK_OFFSET &&
	     hmap_get(&r->marks, a->correlation - ACTIVITY_MARK_OFFSET) != HMAP_NONE))
		return add_device_mark(r, a);
	int got = find_kernel(r, r->task, a);
	return got < 0 ? got : report_activity(r, a);
}

/* A number of 32 bits; what does not fit is nowhere. */
static uint32_t u32_of(sqlite3_int64 v)
{
	return v >= 0 && v < ACTIVITY_NOWHERE ? (uint32_t)v : ACTIVITY_NOWHERE;
}

/* Into the field that the writer has taken it from. */
static inline int set_column(struct db_reading *r, unsigned source, sqlite3_int64 v,
			     struct activity *a)
{
	switch (source) {
	case FIELD_START:
		a->start_ns = (uint64_t)v;
		return 0;
	case FIELD_END:
		a->end_ns = (uint64_t)v;
		return 0;
	case FIELD_DEVICE:
		a->device = u32_of(v);
		return 0;
	case FIELD_STREAM:
		a->stream = u32_of(v);
		return 0;
	case FIELD_CORRELATION:
		a->correlation = (uint64_t)v;
		return 0;
	case FIELD_NAME:
		return db_reading_text(r, v, &a->name);
	case FIELD_COMM_NAME:
	case FIELD_DOMAIN:
	case DB_TASK_TYPE:
		return db_reading_text(r, v, &a->detail);
	case FIELD_ALG_TYPE:
		return db_reading_text(r, v, &a->more);
	case FIELD_DATA_TYPE:
		a->data_type = (uint16_t)v;
		return 0;
	case FIELD_COPY_KIND:
		a->flag = (uint8_t)v;
		return 0;
	case FIELD_OPERATION:
		a->flag = v != 0;
		return 0;
	case FIELD_ASYNC:
		a->async = v != 0;
		return 0;
	case FIELD_ADDRESS:
	case FIELD_VALUE:
		a->number = (uint64_t)v;
		return 0;
	case DB_API_TYPE:
		a->kind = v == API_TYPE_ACL	  ? ACTIVITY_ACL_API
			  : v == API_TYPE_RUNTIME ? ACTIVITY_RUNTIME_API
						  : ACTIVITY_API;
		return 0;
	case DB_GLOBAL_TID:
		a->place = ACTIVITY_ON_HOST;
		a->pid = (uint32_t)((uint64_t)v >> 32);
		a->tid = (uint32_t)v;
		return 0;
	case DB_MARK_TYPE:
		a->flag = v == MSTX_TYPE_RANGE ? ACTIVITY_MARK_START : ACTIVITY_MARK_INSTANT;
		return 0;
	case DB_TASK_ID:
		r->task = (uint64_t)v;
		return 0;
	default: /* bytes, elements, bytes per second */
		a->amount = (uint64_t)v;
		return 0;
	}
}

static int add_activity(struct db_reading *r, sqlite3_stmt *stmt)
{
	static const uint8_t kinds[TABLE_END] = {
		[TABLE_MSTX_EVENTS] = ACTIVITY_MARKER,
		[TABLE_TASK] = ACTIVITY_KERNEL,
		[TABLE_COMMUNICATION_OP] = ACTIVITY_COMMUNICATION,
		[TABLE_HCCL] = ACTIVITY_HCCL,
		[TABLE_MEMORY_OP] = ACTIVITY_MEMORY,
		[TABLE_MEMSET] = ACTIVITY_MEMSET,
		[TABLE_MEMCPY] = ACTIVITY_MEMCPY,
	};
	struct activity a = {ACTIVITY_EMPTY, .kind = kinds[r->table], .place = ACTIVITY_ON_DEVICE};
	int i = 0, got = 0;

	for (const struct db_column *c = activity_tables[r->table].columns; got == 0 && c->name;
	     c++)
		if (c->source < DB_NOT_READ)
			got = set_column(r, c->source, sqlite3_column_int64(stmt, i++), &a);
	if (got < 0)
		return got;
	if (r->table == TABLE_MSTX_EVENTS)
		return add_host_mark(r, &a);
	return r->table == TABLE_TASK ? add_task(r, &a) : report_activity(r, &a);
}

static int read_activities(struct db_reading *r, enum activity_table table)
{
	struct buf columns = {0};

	r->table = table;
	for (const struct db_column *c = activity_tables[table].columns; c->name; c++)
		if (c->source < DB_NOT_READ)
			buf_addf(&columns, "%s%s", columns.len ? "," : "", c->name);
	int got = each_row(r, activity_tables[table].name, buf_str(&columns), add_activity);
	buf_release(&columns);
	return got;
}

static int session_row(struct db_reading *r, sqlite3_stmt *stmt)
{
	r->about->start_ns = u64(stmt, 0);
	r->about->end_ns = u64(stmt, 1);
	return 0;
}

static int rank_row(struct db_reading *r, sqlite3_stmt *stmt)
{
	sqlite3_int64 rank = sqlite3_column_int64(stmt, 0);

	if (rank >= 0 && rank <= INT32_MAX)
		r->about->rank = (int32_t)rank;
	return 0;
}

static int loss_row(struct db_reading *r, sqlite3_stmt *stmt)
{
	r->about->lost += u64(stmt, 0);
	return 0;
}

/* Not every file of ours has this column. */
static void read_end(struct db_reading *r)
{
	sqlite3_stmt *stmt = NULL;

	if (sqlite3_prepare_v2(r->db, "SELECT closed FROM ACTIVITY_LOSS", -1, &stmt, NULL) ==
		    SQLITE_OK &&
	    sqlite3_step(stmt) == SQLITE_ROW)
		r->about->end =
			sqlite3_column_int64(stmt, 0) ? ACTIVITY_END_THERE : ACTIVITY_END_MISSING;
	sqlite3_finalize(stmt);
}

/* Others may have a table of this name with other columns. */
static void read_host(struct db_reading *r)
{
	sqlite3_stmt *stmt = NULL;

	if (sqlite3_prepare_v2(r->db, "SELECT hostName FROM HOST_INFO", -1, &stmt, NULL) ==
		    SQLITE_OK &&
	    sqlite3_step(stmt) == SQLITE_ROW) {
		const char *name = column_text(r, stmt, 0);

		r->about->host = *name ? xstrdup(name) : NULL;
	}
	sqlite3_finalize(stmt);
}

static int meta_row(struct db_reading *r, sqlite3_stmt *stmt)
{
	const char *name = (const char *)sqlite3_column_text(stmt, 0);
	const char *value = (const char *)sqlite3_column_text(stmt, 1);

	if (name && value && !strcmp(name, "parallel_group_info")) {
		free(r->about->groups);
		r->about->groups = xstrdup(value);
	}
	return 0;
}

static const struct {
	const char *table, *columns;
	row_fn fn;
} about_tables[] = {
	{"SESSION_TIME_INFO", "startTimeNs,endTimeNs", session_row},
	{"RANK_DEVICE_MAP", "rankId", rank_row},
	{"META_DATA", "name,value", meta_row},
	{"ACTIVITY_LOSS", "lost", loss_row},
};
#define NABOUT (sizeof(about_tables) / sizeof(about_tables[0]))

/* Marks come before tasks, which have their texts from them. */
static const enum activity_table tables[] = {
	TABLE_MSTX_EVENTS, TABLE_CANN_API,  TABLE_TASK,	  TABLE_COMMUNICATION_OP,
	TABLE_HCCL,	   TABLE_MEMORY_OP, TABLE_MEMSET, TABLE_MEMCPY};
#define NTABLES (sizeof(tables) / sizeof(tables[0]))

static int begin_infos(struct db_reading *r)
{
	static const char sql[] = "SELECT globalTaskId,name FROM COMPUTE_TASK_INFO";

	if (!db_reading_has(r, "COMPUTE_TASK_INFO"))
		return 0;
	int rc = sqlite3_prepare_v2(r->db, sql, -1, &r->info, NULL);
	return rc == SQLITE_OK ? next_info(r) : db_reading_error(r, rc);
}

static int read_all(struct db_reading *r)
{
	bool any = false;
	int got = db_reading_open(r);

	for (unsigned i = 0; got == 0 && i < NABOUT && !any; i++)
		any = db_reading_has(r, about_tables[i].table);
	for (unsigned i = 0; got == 0 && i < NTABLES && !any; i++)
		any = db_reading_has(r, activity_tables[tables[i]].name);
	if (got == 0 && !any)
		got = activity_read_refuse(
			r->path, "it is a DB of something else, with none of their tables", r->err);
	/* all of it as of one moment, however many tables there are */
	if (got == 0 && sqlite3_exec(r->db, "BEGIN", NULL, NULL, NULL) != SQLITE_OK)
		got = db_reading_error(r, SQLITE_IOERR);
	if (got == 0)
		got = db_reading_texts(r);
	if (got == 0 && db_reading_has(r, "ACTIVITY_LOSS"))
		read_end(r);
	if (got == 0 && !r->about->host && db_reading_has(r, "HOST_INFO"))
		read_host(r);
	if (got == 0)
		got = begin_infos(r);
	for (unsigned i = 0; got == 0 && i < NABOUT; i++)
		got = each_row(r, about_tables[i].table, about_tables[i].columns,
			       about_tables[i].fn);
	for (unsigned i = 0; got == 0 && i < NTABLES; i++)
		got = read_activities(r, tables[i]);
	return got;
}

int activity_read_db(const char *path, activity_read_fn fn, void *arg, struct activity_about *about,
		     struct err *err)
{
	struct db_reading r = {.path = path, .fn = fn, .arg = arg, .about = about, .err = err};
	int got = read_all(&r);

	sqlite3_finalize(r.text);
	sqlite3_finalize(r.info);
	sqlite3_close(r.db);
	hmap_release(&r.texts);
	hmap_release(&r.marks);
	hmap_release(&r.infos);
	free(r.mark_texts);
	buf_release(&r.scratch);
	return got;
}
