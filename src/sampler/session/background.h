/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A sampler in the background: going there, finding it again by its pid file, ending it. The file:
 *
 *	main_pid=4711		the job, if it was started with one
 *	sniffer_pid=4712
 *	main_start=123456	when they started (field 22 of /proc/PID/stat): a pid alone may be
 *	sniffer_start=123400	another process by now
 */
#ifndef SONDE_SAMPLER_SESSION_BACKGROUND_H
#define SONDE_SAMPLER_SESSION_BACKGROUND_H

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
	uid_t owner; /* of the file, if it was read from one */
	bool others_write; /* not only the owner may write it */
};

/* Unknown lines are ignored; -EPROTO if there is no pid at all. */
int stack_pidfile_parse(const char *text, size_t len, struct stack_pidfile *out);
int stack_pidfile_read(const char *path, struct stack_pidfile *out, struct err *err);

/* Whether it is the process of the pid file, and has not ended. */
bool stack_tracked_runs(const struct stack_tracked *t);

/* How the process in the background has started; passed to the one in front. */
struct stack_started {
	int status; /* 0: it samples; else what stack_background_failed() was given */
	struct stack_pidfile pids;
	struct err err;
};

/*
 * Forks. Returns 1 in the background, without a terminal, with stdout and stderr in `log` and a
 * pipe to the process in front in *out_ready. Returns 0 in front, when the other has called
 * stack_background_ready() or stack_background_failed(). Fails if a sampler of the pid file runs
 * already (-EEXIST; its pid in out->pids), or if the one in the background dies before it is ready.
 */
int stack_background_start(const char *pid_file, const char *log, int *out_ready,
			   struct stack_started *out, struct err *err);
/* Writes the pid file and lets the process in front go. job: 0 if there is none. */
int stack_background_ready(const char *pid_file, int ready, pid_t job, struct err *err);
/* Lets it go with the status, which is not 0, and the message. */
void stack_background_failed(int ready, int status, const struct err *err);

/* Whether the file may name processes that are to be ended: it is ours alone, the sampler is one of
 * ours, and the job too. -EPERM if not. */
int stack_pidfile_trust(const char *path, const struct stack_pidfile *p, struct err *err);
/* Ends the job if it runs, with it the sampler, and waits for both. False if one still runs. */
bool stack_background_stop(const struct stack_pidfile *p);

#endif
