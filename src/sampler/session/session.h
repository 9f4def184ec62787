/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * One sampling from beginning to end: the processes, the schedule, what is written, what is
 * counted.
 *
 * The schedule is absolute: rounds begin at start + n * interval. A round that comes too late for
 * the next ones skips them and counts them; the sampler never catches up by running without pause.
 *
 * One thread uses it. It prints nothing: messages go to the log of the output and to the caller's
 * `show`.
 */
#ifndef SONDE_SAMPLER_SESSION_SESSION_H
#define SONDE_SAMPLER_SESSION_SESSION_H

#include "base/containers/hmap.h"
#include "sampler/counters/counters.h"
#include "sampler/rounds/step_guess.h"
#include "sampler/rounds/targets.h"
#include "sampler/session/job.h"
#include "sampler/session/options.h"
#include "sampler/session/output.h"

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
	STACK_END_OUTPUT, /* the file can no longer be written */
};

/* How long each kind of work took, for the end of the log. */
enum stack_stage {
	STAGE_DISCOVER,
	STAGE_STACKS,
	STAGE_NATIVE,
	STAGE_EVENTS,
	STAGE_COUNTERS,
	STAGE_FLUSH,
	STAGE_AUTOSAVE,
	STAGE_SNAPSHOT,
	STAGE_LOOP,
	STAGE_SLEEP,
	STAGE_FINAL,
	STAGES,
};

struct stack_stage_time {
	uint64_t count, total_ns, min_ns, max_ns;
};

enum stack_message { STACK_DETAIL, STACK_INFO, STACK_WARNING };

struct stack_session {
	/* set by the caller */
	const struct stack_options *o;
	struct stack_job *job; /* NULL: none */
	/* A message; and now and then the chance to show how it goes. */
	void (*show)(void *arg, enum stack_message kind, const char *text);
	void (*show_progress)(void *arg, const struct stack_session *s, uint64_t now_ns);
	void *arg;
	/* the rest zeroed */
	struct discover_rules rules;
	struct stack_output *output;
	struct targets *targets;
	struct counters *counters;
	struct stack_stage_time stages[STAGES];
	struct stack_totals totals;
	enum stack_end end;
	uint64_t start_ns, end_ns;
	uint64_t loop_ns; /* when the first round was due: devices may take their time before */
	double cpu_before_s; /* processor time used before it began */
	uint64_t next_chores_ns, next_eager_ns, next_flush_ns, next_save_ns, next_snapshot_ns;
	uint64_t empty_since_ns; /* 0: there is a process */
	/* Of processes whose steps nobody counts, when they have ended. */
	struct stack_steps {
		pid_t pid;
		int rank;
		struct step_guess guess; /* released, but for what it says */
	} * steps;
	size_t nsteps, cap_steps;
	struct hmap complained; /* serials of targets whose refusal was reported */
	bool missing_reported; /* which counters there are not */
	/* --debug-pid-discovery: as reported last */
	char found_by[sizeof(((struct discovery *)0)->found_by)];
	struct err search_err; /* of the last search for processes: reported once */
	bool logging; /* to the log of the output */
};

/* Opens the output and its log, "<output>.log": before a job is started, so that nothing runs for
 * nothing. */
int stack_session_open(struct stack_session *s, struct err *err);
/* Samples until it is over; `end` has the reason. */
int stack_session_run(struct stack_session *s, struct err *err);
/* Completes the file and releases everything but the log. */
int stack_session_close(struct stack_session *s, struct err *err);
/* After the last message. */
void stack_session_close_log(struct stack_session *s);

/* A message for the log and the caller's `show`. */
__attribute__((format(printf, 3, 4))) void stack_session_notice(struct stack_session *s,
								enum stack_message kind,
								const char *fmt, ...);

/* --- for session.c and processes.c --- */

/* Adds the time since from_ns to the stage; returns the time now. */
uint64_t stack_stage_done(struct stack_session *s, enum stack_stage stage, uint64_t from_ns);

/* Begins to follow the processes that the options name. */
void stack_processes_open(struct stack_session *s);
/* Searches for new ones if that is due, or `now`, and reports those that cannot be read. */
void stack_processes_refresh(struct stack_session *s, bool now);
/* Samples all that are open. */
void stack_processes_sample(struct stack_session *s);
/* Whether one is there, or may still come, of a fixed list. */
bool stack_processes_left(const struct stack_session *s);

#endif
