/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What a session samples, how often, and where it writes: plain values. The
 * command line of `sonde stack` is read in cli/stack/options.c.
 */
#ifndef SONDE_SAMPLER_SESSION_OPTIONS_H
#define SONDE_SAMPLER_SESSION_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "sampler/discover/discover.h"
#include "sampler/rounds/thread_filter.h"

enum stack_format { STACK_CHROME, STACK_COLLAPSED, STACK_SPEEDSCOPE, STACK_PPROF, STACK_SVG };

/* The list is owned; texts in it are borrowed. */
struct stack_pids {
	pid_t *list;
	unsigned n;
	size_t cap;
};
struct stack_texts {
	const char **list;
	unsigned n;
	size_t cap;
};

struct stack_options {
	/* which processes */
	struct stack_pids pids, parents;
	struct stack_texts names, cgroups;
	bool children, all_python, debug_discovery;
	unsigned min_npu_mb, min_gpu_mb;
	uint64_t refresh_ns; /* 0: as suits the rules */
	uint64_t refresh_empty_ns, empty_exit_ns;
	/* how they are sampled */
	uint64_t interval_ns, duration_ns;
	bool all_threads, native, exact, fast;
	struct thread_moments moments;
	/* counters */
	bool npu_usage, gpu_usage, host_usage, process_usage;
	uint64_t npu_timeout_ns, gpu_timeout_ns;
	uint64_t counter_ns; /* 0: the interval */
	/* files */
	const char *output, *autosave_output, *snapshot_output;
	uint64_t autosave_ns, snapshot_ns;
	unsigned format; /* enum stack_format */
	bool gzip, lines;
	uint64_t rotate_bytes, rotate_ns;
	unsigned keep;
	bool verbose; /* more in the log */
};

void stack_options_init(struct stack_options *o);
void stack_options_release(struct stack_options *o);

/* Once, however often it is added. */
void stack_pid_add(struct stack_pids *p, pid_t pid);
void stack_text_add(struct stack_texts *t, const char *text);

/* Borrows from o. */
void stack_options_rules(const struct stack_options *o, struct discover_rules *out);

/* Whether the list of processes is fixed: named by pid or parent alone. */
bool stack_options_fixed(const struct stack_options *o);

/* Milliseconds, rounded up; the most there can be if there are more. */
unsigned stack_ms(uint64_t ns);

#endif
