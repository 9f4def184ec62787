/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The file in which a sampler in the background writes down who it is:
 *
 *	main_pid=4711		the job, if it was started with one
 *	sniffer_pid=4712
 *	main_start=123456	when they started (field 22 of /proc/PID/stat): a pid alone may be
 *	sniffer_start=123400	somebody else's by now
 */
#ifndef SONDE_SAMPLER_SESSION_PIDFILE_H
#define SONDE_SAMPLER_SESSION_PIDFILE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

struct stack_tracked {
	pid_t pid; /* 0: none */
	uint64_t start_ticks; /* 0: not known, and so not to be trusted */
};

struct stack_pidfile {
	struct stack_tracked job, sampler;
};

/* Lines that it does not know are left out; -EPROTO if there is no pid at all. */
int stack_pidfile_parse(const char *text, size_t len, struct stack_pidfile *out);

int stack_pidfile_read(const char *path, struct stack_pidfile *out, struct err *err);
int stack_pidfile_write(const char *path, const struct stack_pidfile *p, struct err *err);

/* Whether it still is the process that was written down, and has not ended. */
bool stack_tracked_runs(const struct stack_tracked *t);

#endif
