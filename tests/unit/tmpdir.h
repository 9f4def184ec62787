/* SPDX-License-Identifier: MulanPSL-2.0 */
/* A directory of its own for a test, removed when the test's process leaves by exit(). */
#ifndef SONDE_TESTS_UNIT_TMPDIR_H
#define SONDE_TESTS_UNIT_TMPDIR_H

#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char tmpdir_path[] = "/tmp/sonde-unit-XXXXXX";
static pid_t tmpdir_owner;

static inline int tmpdir_entry(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	(void)st;
	(void)flag;
	(void)ftw;
	return remove(path);
}

static inline void tmpdir_remove(void)
{
	if (getpid() == tmpdir_owner)
		nftw(tmpdir_path, tmpdir_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static inline const char *tmpdir(void)
{
	if (tmpdir_owner)
		return tmpdir_path;
	if (!mkdtemp(tmpdir_path))
		abort();
	tmpdir_owner = getpid();
	atexit(tmpdir_remove);
	return tmpdir_path;
}

/* A path in it; valid until the next but three. */
static inline const char *tmpfile_path(const char *name)
{
	static char paths[4][PATH_MAX];
	static unsigned at;
	char *p = paths[at++ % 4];

	snprintf(p, PATH_MAX, "%s/%s", tmpdir(), name);
	return p;
}

#endif
