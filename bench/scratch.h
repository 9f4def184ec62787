/* SPDX-License-Identifier: MulanPSL-2.0 */
/* For programs that run Python jobs: the build that is measured, and a directory for what they
 * leave. */
#ifndef SONDE_BENCH_SCRATCH_H
#define SONDE_BENCH_SCRATCH_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct scratch {
	const char *build;
	char dir[256];
};

/* False, with a word on stderr, if there is no place for it. */
static inline bool scratch_open(struct scratch *s)
{
	const char *tmp = getenv("TMPDIR");

	s->build = getenv("SONDE_BUILD") ? getenv("SONDE_BUILD") : "build";
	snprintf(s->dir, sizeof(s->dir), "%s/sonde-bench-XXXXXX", tmp ? tmp : "/tmp");
	if (mkdtemp(s->dir))
		return true;
	perror(s->dir);
	return false;
}

static inline void scratch_remove(const struct scratch *s)
{
	char cmd[512];

	snprintf(cmd, sizeof(cmd), "rm -rf '%s'", s->dir);
	if (system(cmd) != 0)
		fprintf(stderr, "cannot remove %s\n", s->dir);
}

#endif
