/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The DB writer in two halves: activity/files/db.c says which rows an activity becomes,
 * activity/files/db_file.c brings rows into the file: transactions, texts, devices, the state
 * tables.
 *
 * Whatever is committed is committed together with all that it refers to. A transaction that
 * cannot be committed because somebody reads stays open, and is tried again; one that fails is
 * rolled back, its rows counted as lost, and texts get new ids as if it had never been.
 */
#ifndef SONDE_ACTIVITY_FILES_DB_FILE_H
#define SONDE_ACTIVITY_FILES_DB_FILE_H

#include "activity/files/activity.h"
#include "base/containers/buf.h"
#include "base/containers/hmap.h"
#include "wire/request.h"

#include <sqlite3.h>
#include <stdbool.h>

/* The tables of a DB of activities, in the order and with the words that its readers know. */

enum activity_table {
	TABLE_CANN_API,
	TABLE_COMMUNICATION_OP,
	TABLE_TASK,
	TABLE_COMPUTE_TASK_INFO,
	TABLE_MSTX_EVENTS,
	/* our own: kinds that today's tool has no place for */
	TABLE_HCCL,
	TABLE_MEMORY_OP,
	TABLE_MEMSET,
	TABLE_MEMCPY,
	TABLE_STRING_IDS,
	TABLE_END,
};

/* Where the value of a column comes from: a field of the activity, or one of these. */
enum db_source {
	DB_API_TYPE = FIELDS,
	DB_GLOBAL_TID, /* pid << 32 | tid */
	DB_MARK_TYPE,
	DB_TASK_ID,
	DB_TASK_TYPE, /* the type of a kernel, ACTIVITY_TASK_MARK of a mark */
	DB_NOT_READ, /* the reader has no use for the rest */
	DB_END_TID = DB_NOT_READ,
	DB_GLOBAL_PID,
	DB_OP_NAME,
	DB_OP_ID,
	DB_NOT_KNOWN, /* ACTIVITY_NO_DATA */
	DB_NOT_KNOWN_TEXT, /* "N/A" */
	DB_ZERO,
	DB_STRING_ID,
};

struct db_column {
	const char *name; /* NULL behind the last one */
	uint8_t source; /* enum activity_field_id or enum db_source */
	const char *type; /* NULL: INTEGER */
};

#define DB_MAX_COLUMNS 16

struct db_table {
	const char *name;
	struct db_column columns[DB_MAX_COLUMNS];
};

extern const struct db_table activity_tables[TABLE_END]; /* activity/files/db.c */

#define API_TYPE_RUNTIME 5000
#define API_TYPE_NODE 10000
#define API_TYPE_ACL 20000
#define MSTX_TYPE_MARKER 0
#define MSTX_TYPE_RANGE 2
#define ACTIVITY_TASK_MARK "MsTx" /* taskType of marks that a stream has passed */
#define ACTIVITY_MARK_OFFSET 4000000000ull /* the ids of marks lie above those of launches */
#define ACTIVITY_NO_DATA 4294967295ll /* columns that nobody knows the value of */

struct db_file {
	sqlite3 *db; /* NULL: not there, or not yet */
	char *dir, *path; /* path: "" before the file is there */
	struct activity_origin who;
	sqlite3_stmt *inserts[TABLE_END]; /* NULL: not used yet */
	struct buf scratch;
	struct hmap by_pointer, by_hash; /* ids of texts */
	uint64_t texts, texts_committed;
	uint32_t *devices; /* in order of first use */
	size_t ndevices, devices_put, devices_committed, devices_cap;
	bool in_batch;
	uint64_t rows; /* in the open transaction */
	uint64_t begun_ns; /* CLOCK_MONOTONIC */
	uint64_t lost; /* that could not be written */
	uint64_t lost_written; /* as the file has it */
	bool closing; /* what is written now is the last */
	uint64_t last_ms; /* of file names */
	uint64_t retry_ns; /* not before, after a failure */
	int failed; /* the negative errno that rows are dropped for */
};

/* A row of as many values as the table has columns. Nothing happens if an earlier row of the same
 * activity has failed. */
int db_file_row(struct db_file *f, enum activity_table table, const int64_t *values,
		struct err *err);
/* Before the first row of an activity: false, and counted, if nothing can be written now. */
bool db_file_begin(struct db_file *f, struct err *err, int *out_r);
/* The id of a text; `text` lives as long as the file. */
int64_t db_file_text(struct db_file *f, const char *text);
/* The same for a text that comes once. */
int64_t db_file_new_text(struct db_file *f, const char *text);
void db_file_device(struct db_file *f, uint32_t device);
/* Behind the last row of an activity: commits what has grown large or old. */
int db_file_end(struct db_file *f, struct err *err);

/* end_ns: wall clock, of the session. `wait`: for readers, seconds if need be. */
int db_file_commit(struct db_file *f, uint64_t end_ns, bool wait, struct err *err);
/* What is known only now; c may be NULL. A disk that is full does not keep the loss from being
 * written: it is a number in a page that is there. */
int db_file_finish(struct db_file *f, const struct activity_closing *c, struct err *err);
int db_file_close(struct db_file *f, struct err *err);

#endif
