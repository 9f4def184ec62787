/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * One sampling from beginning to end: the processes, the schedule, what is written, what is
 * counted.
 *
 * The schedule is absolute: rounds begin at start + n * interval. A round that comes too late for
 * the next ones skips them and counts them; the sampler never catches up by running without pause.
 */
#ifndef SONDE_CLI_STACK_SESSION_H
#define SONDE_CLI_STACK_SESSION_H

#include "base/containers/hmap.h"
#include "cli/command.h"
#include "sampler/counters/counters.h"
#include "sampler/rounds/targets.h"
#include "sampler/session/job.h"
#include "sampler/session/options.h"
#include "sampler/session/output.h"
#include "sampler/session/stages.h"

struct stack_totals {
	unsigned processes; /* sampled at least once */
	unsigned refused; /* named ones that could not be read */
	uint64_t rounds, skipped; /* ticks of the schedule */
	uint64_t captures; /* processes, once for each round */
	uint64_t samples, missed; /* threads, once for each round */
	uint64_t retries, torn, calls; /* of struct python_counts */
	uint64_t native_failed;
	uint64_t counters, counters_lost;
	uint64_t skew_ns, skew_max_ns; /* sum over rounds, and the largest */
	uint64_t saves; /* snapshots and copies */
	uint64_t events, bytes; /* in the file, at the end */
	double cpu_s; /* that we used ourselves */
	uint64_t rss_bytes; /* most that we had */
};

enum stack_end {
	STACK_END_NONE,
	STACK_END_DURATION,
	STACK_END_SIGNAL,
	STACK_END_GONE, /* all processes of a fixed list have ended */
	STACK_END_EMPTY, /* nothing was found for too long */
	STACK_END_JOB, /* the job has ended */
	STACK_END_OUTPUT, /* the file cannot be written any more */
};

struct stack_session {
	/* set by the caller */
	const struct command *cmd;
	const struct stack_options *o;
	struct stack_job *job; /* NULL: none */
	/* the rest zeroed */
	struct discover_rules rules;
	struct stack_output *output;
	struct targets *targets;
	struct counters *counters;
	struct stack_stages stages;
	struct stack_totals totals;
	enum stack_end end;
	uint64_t start_ns, end_ns;
	uint64_t loop_ns; /* when the first round was due: devices may take their time before */
	double cpu_before_s; /* processor time used before it began */
	uint64_t next_care_ns, next_eager_ns, next_flush_ns, next_save_ns, next_snapshot_ns,
		next_line_ns;
	uint64_t empty_since_ns; /* 0: somebody is there */
	struct hmap told; /* serials of targets of which was said why they cannot be read */
	bool missing_told; /* which counters there are not */
	bool line_shown; /* the one that overwrites itself */
	char how[sizeof(
		((struct discovery *)0)->found_by)]; /* --debug-pid-discovery: as told last */
	struct err trouble; /* the last one with looking for processes: said once */
};

/* Opens the output and its log: before a job is started, so that nothing runs for nothing. */
int stack_session_open(struct stack_session *s, struct err *err);
/* Samples until it is over; `end` tells why. */
int stack_session_run(struct stack_session *s, struct err *err);
/* Completes the file and releases everything but the log: stack_say_close() does, after the report.
 */
int stack_session_close(struct stack_session *s, struct err *err);

#endif
