/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The texts that profilers and monitors are configured with: lines of KEY=VALUE in a fixed order,
 * without a newline at the end. Consumers split lines at every `=`, so a value may hold none; see
 * check_line() of values.c for all that would not survive.
 */
#ifndef SONDE_CLIENT_PROFILER_CONFIG_H
#define SONDE_CLIENT_PROFILER_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/containers/buf.h"
#include "base/err.h"

#define CONFIG_TEXT_MAX 1024 /* bytes of a list, a filter or a domain */
#define CONFIG_PATH_MAX 4096

/* The value sets; each ended by NULL. */
extern const char *const nputrace_activities[], *const nputrace_levels[],
							*const nputrace_aic_metrics[];
extern const char *const nputrace_exports[], *const nputrace_true_false[],
						     *const nputrace_host_systems[];
extern const char *const npu_monitor_exports[], *const npu_monitor_kinds[];

/* A trace by PyTorch's own profiler. */
struct gputrace_config {
	const char *log_file;
	uint64_t start_time_ms; /* since the epoch; 0: as soon as it is ready */
	uint64_t duration_ms;
	int64_t iterations; /* more than 0: so many iterations instead of a time */
	uint64_t roundup; /* it starts at a multiple of this */
	bool record_shapes, profile_memory, with_stacks, with_flops, with_modules;
};
void gputrace_config_text(const struct gputrace_config *c, struct buf *out);

/* A trace by the profilers of torch_npu and MindSpore. Choices are indices into the sets above. */
struct nputrace_config {
	const char *log_file;
	int64_t start_step; /* -1: the next one */
	int64_t iterations; /* 0: a time instead of steps, by sonde's monitor alone */
	uint64_t duration_ms;
	bool record_shapes, profile_memory, with_stack, with_flops, with_modules;
	unsigned activities;
	bool analyse, async_mode;
	unsigned profiler_level, aic_metrics;
	bool l2_cache, op_attr, msprof_tx;
	bool attribute; /* to modules and lines */
	bool gc_given;
	float gc_threshold_ms;
	unsigned data_simplification; /* of nputrace_true_false */
	unsigned export_type;
	char host_sys[CONFIG_TEXT_MAX + 1]; /* empty: None */
	bool sys_io, sys_interconnection;
	const char *domain_include, *domain_exclude; /* NULL: None */
	char rank_list[CONFIG_TEXT_MAX + 1]; /* empty: None */
};
void nputrace_config_text(const struct nputrace_config *c, struct buf *out);

/* The monitor of operators. */
struct npu_monitor_config {
	bool start, stop;
	unsigned report_interval_s;
	float duration_s;
	char kinds[CONFIG_TEXT_MAX + 1]; /* empty: Marker */
	const char *log_file; /* "" for metrics to the daemon */
	unsigned export_type;
	char rotate_lines[16], rotate_files[16];
	const char *filter;
	bool attribute; /* to modules and lines */
	uint64_t lease; /* of the client that renews the duration; 0: none */
};
void npu_monitor_config_text(const struct npu_monitor_config *c, struct buf *out);

/* The shortest decimal text that is this float again, without an exponent: 0.1, 30, 0. */
void config_add_float(struct buf *out, float v);

/* The file that libkineto makes of a log file's name for a process. False: the name has no .json,
 * and all processes write to the same file. */
bool gputrace_file(const char *log_file, int64_t pid, struct buf *out);

/* The same name with the host in it: /tmp/trace.json is /tmp/trace_node1.json there. */
void gputrace_log_of_host(const char *log_file, const char *host, struct buf *out);

#endif
