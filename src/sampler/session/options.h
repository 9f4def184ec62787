/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What `sonde stack` and `sonde stack run` can be told: one table for both, so that whatever is
 * said about sampling a running job can be said about one that is started.
 */
#ifndef SONDE_SAMPLER_SESSION_OPTIONS_H
#define SONDE_SAMPLER_SESSION_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/containers/buf.h"
#include "base/text/args.h"
#include "sampler/discover/discover.h"
#include "sampler/session/values.h"

enum stack_format { STACK_CHROME, STACK_COLLAPSED, STACK_SPEEDSCOPE, STACK_PPROF };

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
	/* counters */
	bool npu_usage, gpu_usage, host_usage, process_usage;
	unsigned npu_smi_refresh; /* accepted; all cards are read in one go */
	uint64_t npu_timeout_ns, gpu_timeout_ns, host_timeout_ns;
	uint64_t counter_ns; /* 0: the interval */
	/* files */
	const char *output, *autosave_output, *snapshot_output;
	uint64_t autosave_ns, snapshot_ns;
	unsigned format; /* enum stack_format */
	bool gzip, lines;
	uint64_t rotate_bytes, rotate_ns;
	unsigned keep;
	/* messages */
	bool verbose, quiet, json;
	/* in the background, and what the shell wrapper knew */
	bool detach, status, stop, dry_run;
	const char *pid_file, *detach_log;
	const char *python, *sniffer_script;
	struct stack_texts sniffer_args;
	/* made by stack_options_complete() */
	char *output_made, *pid_file_made, *detach_log_made;
};

extern const struct opt stack_option_rows[];

void stack_options_init(struct stack_options *o);
void stack_options_release(struct stack_options *o);

/* Applies --sniffer-arg, fills in what depends on other options, and refuses what does not fit. */
int stack_options_complete(struct stack_options *o, struct args *a, struct err *err);

/* Borrows from o. */
void stack_options_rules(const struct stack_options *o, struct discover_rules *out);

/* Whether the list of processes is that of the command line, which does not grow anew. */
bool stack_options_manual(const struct stack_options *o);

#endif
