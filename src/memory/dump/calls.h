/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Calls of Python functions on disk: a CSV file per thread, or a table python_trace_<pid>. One row
 * per call, when it has ended.
 */
#ifndef SONDE_MEMORY_DUMP_CALLS_H
#define SONDE_MEMORY_DUMP_CALLS_H

#include "base/containers/buf.h"
#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

#define TRACE_COLUMNS "FuncInfo,StartTime(ns),EndTime(ns),Thread Id,Process Id"

struct trace_row {
	const char *prefix; /* before the text; "" for none */
	const char *text; /* borrowed */
	size_t text_len;
	uint64_t start_ns, end_ns; /* since the epoch; 0: not known, written as N/A */
	uint32_t tid, pid;
};

/* Adds a line. `scratch` is for text that is not valid UTF-8. */
void trace_csv_add(struct buf *out, const struct trace_row *row, struct buf *scratch);

/* An SQLite file, of its own or that of a dump: nobody else may be inside a transaction while rows
 * are written. Rows are kept by the caller: either all of a batch are in the file, or none. */
struct trace_db;
int trace_db_open(const char *path, uint32_t pid, struct trace_db **out, struct err *err);
int trace_db_begin(struct trace_db *db, struct err *err);
int trace_db_add(struct trace_db *db, const struct trace_row *row, struct err *err);
int trace_db_commit(struct trace_db *db, struct err *err);
void trace_db_close(struct trace_db *db); /* may be NULL */

#endif
