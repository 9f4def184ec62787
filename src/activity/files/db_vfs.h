/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The order in which the pages of a commit reach a DB that only grows, so that the file can be read
 * whenever its writer is killed, without a journal, and by those who copy it meanwhile.
 *
 *	1	pages behind the old end of the file: nothing refers to them yet
 *	2	changed pages of tables of texts, then of tables that are referred to, then of the
 *		others; in each of them leaves before the pages that point to them
 *	3	the first page
 *
 * The kernel may stop a killed process between two pages, not inside of one. Rows appear with what
 * they refer to, or not at all. The header does not say how many pages there are, so that readers
 * take the size of the file. For all this rows must only be added, at the end of their tables, and
 * no table be made; tables of one page may be changed as one likes.
 *
 * One gap remains: when a page that points to leaves is full and becomes two, once in some 40,000
 * rows, the last rows of a table are out of sight between two writes.
 */
#ifndef SONDE_ACTIVITY_FILES_DB_VFS_H
#define SONDE_ACTIVITY_FILES_DB_VFS_H

/* The name to open a database with: pages of 4096 bytes, journal_mode=MEMORY, cache_spill=OFF. */
const char *activity_db_vfs(void);

#endif
