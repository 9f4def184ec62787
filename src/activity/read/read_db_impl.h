/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What the two files of the DB reader share: the connection and its texts, and the tables. */
#ifndef SONDE_ACTIVITY_READ_READ_DB_IMPL_H
#define SONDE_ACTIVITY_READ_READ_DB_IMPL_H

#include <sqlite3.h>

#include "activity/read/read.h"
#include "base/containers/buf.h"
#include "base/containers/hmap.h"

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
};

/* activity/read/read_db_open.c */
int db_reading_open(struct db_reading *r);
int db_reading_error(struct db_reading *r, int rc); /* a negative errno, with words */
bool db_reading_has(struct db_reading *r, const char *table);
int db_reading_texts(struct db_reading *r);
/* The text of an id; where there is none something to tell one from another. */
int db_reading_text(struct db_reading *r, int64_t id, const char **out);

#endif
