/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Where the splits of ranks lie: <log file>/<host>_<pid>_<time>_sonde/summary.json, one for each.
 * Those of one request together make the summary of the job, which is made again whenever a rank
 * has closed its trace; so it is complete after the last.
 */
#ifndef SONDE_ACTIVITY_STEPS_FILES_H
#define SONDE_ACTIVITY_STEPS_FILES_H

#include "activity/steps/job_summary.h"
#include "wire/control_page.h"

#define SPLIT_DIR_SUFFIX SESSION_TRACE_SUFFIX
#define SPLIT_RANK_FILE "summary.json"
#define SPLIT_RANK_TEXT "summary.txt"
/* Behind the name of the directory that could not be written: why. If nothing can be written into
 * the log file's directory, behind that one's name. */
#define SPLIT_TROUBLE_SUFFIX ".error.txt"
#define SPLIT_TROUBLE_REQUEST "request "
#define SPLIT_TOP 25 /* lines of a table in files */

/*
 * Adds the ranks that lie below `dir`, or the one that lies in it. request: only those of it; NULL:
 * those of the newest, and those that traced the same steps at the same time for another daemon.
 * Directories that cannot be read are noted, and so is what could not be written. -ENOENT: there
 * is none.
 */
int split_job_read(struct split_job *j, const char *dir, const char *request, struct err *err);

/* The same of several hosts: those of each directory are added, as ranks of `host` if that is not
 * NULL. Call it for each. */
int split_job_add_host(struct split_job *j, const char *host, const char *dir, const char *request,
		       struct err *err);

/* Is this the name of a directory that a rank leaves? */
bool split_is_rank_dir(const char *name);

/* Reads the ranks of the request and writes <dir>/summary_<request>.txt and .json. */
int split_files_write(const char *dir, const char *request, struct err *err);

/* A file in a directory, in one step; text is released, and o is taken. */
int split_file_write(const char *dir, const char *name, struct buf *text, struct err *err);
int split_file_write_json(const char *dir, const char *name, json_t *o, struct err *err);

#endif
