/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Which files a path stands for. */
#ifndef SONDE_TIMELINE_SOURCES_H
#define SONDE_TIMELINE_SOURCES_H

#include <stddef.h>

#include "base/err.h"

enum source_kind { SOURCE_NONE, SOURCE_MEMORY, SOURCE_ACTIVITY, SOURCE_CHROME, SOURCE_CLOCKS };

struct source_file {
	char *path; /* owned */
	enum source_kind kind;
};

/* Zero-initialise and release. */
struct source_files {
	struct source_file *list;
	size_t n, cap;
};

/* A file is what its first bytes say. A directory stands for the files below it; if there are none,
 * it may have dumps of memory: then it is in the list itself. */
int source_files_find(struct source_files *f, const char *path, struct err *err);
void source_files_release(struct source_files *f);

#endif
