/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What every user of SQLite here needs. Whatever SQLite creates, writes or deletes (databases,
 * journals, logs) it does by the rules of base/fs.h.
 */
#ifndef SONDE_FORMATS_SQLITE_USE_H
#define SONDE_FORMATS_SQLITE_USE_H

#include <sqlite3.h>
#include <stdbool.h>

#include "base/err.h"

/* A database that is there, made by fs_open(), to be written. `vfs` NULL: the ordinary one. A code
 * of SQLite; the caller closes *out in any case. */
int sql_open_to_write(const char *path, const char *vfs, sqlite3 **out);
/* The same to be read. `as_it_is`: whatever lies beside it. */
int sql_open_to_read(const char *path, bool as_it_is, sqlite3 **out);
/* Puts a closed database in the place of another, which others may have open: they keep the old one.
 * What lies beside the old one (log, journal) would be taken for the new one's, and goes first. */
int sql_replace(const char *from, const char *to, struct err *err);
/* SQLite's message, or why a file was refused. Of this thread's last failure. */
const char *sql_words(sqlite3 *db, int rc);
/* A code of SQLite as a negative errno; that of the system, where there was one. */
int sql_errno(sqlite3 *db, int rc);
/* Steps and resets a statement that gives no rows; the code. */
int sql_run(sqlite3_stmt *stmt);

#endif
