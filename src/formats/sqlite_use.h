/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What every user of SQLite here needs. */
#ifndef SONDE_FORMATS_SQLITE_USE_H
#define SONDE_FORMATS_SQLITE_USE_H

#include <sqlite3.h>

/* A code of SQLite as a negative errno; that of the system, where there was one. */
int sql_errno(sqlite3 *db, int rc);
/* Steps and resets a statement that gives no rows; the code. */
int sql_run(sqlite3_stmt *stmt);
/* A URI by which a file is read as it is, whatever lies beside it; the caller frees it. */
char *sql_immutable_uri(const char *path);

#endif
