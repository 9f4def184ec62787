/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "client/profiler_config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const nputrace_activities[] = {"CPU,NPU", "NPU,CPU", "CPU", "NPU", NULL};
const char *const nputrace_levels[] = {"Level0", "Level1", "Level2", "Level_none", NULL};
const char *const nputrace_aic_metrics[] = {
	"AiCoreNone", "PipeUtilization", "ArithmeticUtilization",
	"Memory",     "MemoryL0",	 "ResourceConflictRatio",
	"MemoryUB",   "L2Cache",	 "MemoryAccess",
	NULL};
const char *const nputrace_exports[] = {"Text", "Db", NULL};
const char *const nputrace_true_false[] = {"true", "false", NULL};
const char *const nputrace_host_systems[] = {"cpu", "mem", "disk", "network", "osrt", NULL};
const char *const npu_monitor_exports[] = {"DB", "Jsonl", NULL};
const char *const npu_monitor_kinds[] = {"Marker", "Kernel",  "API",	    "Hccl",
					 "Memory", "MemSet",  "MemCpy",	    "Communication",
					 "AclAPI", "NodeAPI", "RuntimeAPI", NULL};

/* For the next line KEY=VALUE. */
static struct buf *next_line(struct buf *out)
{
	if (out->len)
		buf_add_char(out, '\n');
	return out;
}

static void add_bool(struct buf *out, const char *key, bool value)
{
	buf_addf(next_line(out), "%s=%s", key, value ? "true" : "false");
}

static void add_or_none(struct buf *out, const char *key, const char *value)
{
	buf_addf(next_line(out), "%s=%s", key, value && *value ? value : "None");
}

void config_add_float(struct buf *out, float v)
{
	char digits[32];
	int precision = 0;

	/* 9 digits always suffice */
	do
		snprintf(digits, sizeof(digits), "%.*e", precision, (double)v);
	while (strtof(digits, NULL) != v && precision++ < 9);
	int exponent = atoi(strchr(digits, 'e') + 1);
	int behind = precision - exponent;
	buf_addf(out, "%.*f", behind > 0 ? behind : 0, atof(digits));
}

void gputrace_config_text(const struct gputrace_config *c, struct buf *out)
{
	buf_addf(next_line(out), "ACTIVITIES_LOG_FILE=%s", c->log_file);
	if (c->iterations > 0) {
		buf_addf(next_line(out), "PROFILE_START_ITERATION=0");
		buf_addf(next_line(out), "PROFILE_START_ITERATION_ROUNDUP=%" PRIu64, c->roundup);
		buf_addf(next_line(out), "ACTIVITIES_ITERATIONS=%" PRId64, c->iterations);
	} else {
		buf_addf(next_line(out), "PROFILE_START_TIME=%" PRIu64, c->start_time_ms);
		buf_addf(next_line(out), "ACTIVITIES_DURATION_MSECS=%" PRIu64, c->duration_ms);
	}
	add_bool(out, "PROFILE_REPORT_INPUT_SHAPES", c->record_shapes);
	if (c->profile_memory) {
		add_bool(out, "PROFILE_PROFILE_MEMORY", true);
		add_bool(out, "PROFILE_MEMORY", true);
		buf_addf(next_line(out), "PROFILE_MEMORY_DURATION_MSECS=%" PRIu64, c->duration_ms);
	}
	add_bool(out, "PROFILE_WITH_STACK", c->with_stacks);
	add_bool(out, "PROFILE_WITH_FLOPS", c->with_flops);
	add_bool(out, "PROFILE_WITH_MODULES", c->with_modules);
}

static void add_levels(const struct nputrace_config *c, struct buf *out)
{
	buf_addf(next_line(out), "PROFILE_ACTIVITIES=%s", nputrace_activities[c->activities]);
	add_bool(out, "PROFILE_ANALYSE", c->analyse);
	add_bool(out, "PROFILE_ASYNC_MODE", c->async_mode);
	buf_addf(next_line(out), "PROFILE_PROFILER_LEVEL=%s", nputrace_levels[c->profiler_level]);
	buf_addf(next_line(out), "PROFILE_AIC_METRICS=%s", nputrace_aic_metrics[c->aic_metrics]);
	add_bool(out, "PROFILE_L2_CACHE", c->l2_cache);
	add_bool(out, "PROFILE_OP_ATTR", c->op_attr);
	add_bool(out, "PROFILE_MSPROF_TX", c->msprof_tx);
	if (c->attribute)
		buf_add_str(next_line(out), "SONDE_ATTRIBUTE=true");
	if (c->gc_given) {
		buf_add_str(out, "\nPROFILE_GC_DETECT_THRESHOLD=");
		config_add_float(out, c->gc_threshold_ms);
	} else {
		buf_addf(next_line(out), "PROFILE_GC_DETECT_THRESHOLD=None");
	}
}

void nputrace_config_text(const struct nputrace_config *c, struct buf *out)
{
	buf_addf(next_line(out), "ACTIVITIES_LOG_FILE=%s", c->log_file);
	if (c->iterations > 0) {
		buf_addf(next_line(out), "PROFILE_START_ITERATION=0");
		buf_addf(next_line(out), "PROFILE_START_STEP=%" PRId64, c->start_step);
		buf_addf(next_line(out), "ACTIVITIES_ITERATIONS=%" PRId64, c->iterations);
	} else {
		buf_addf(next_line(out), "PROFILE_START_STEP=-1");
		buf_addf(next_line(out), "ACTIVITIES_DURATION_MSECS=%" PRIu64, c->duration_ms);
	}
	add_bool(out, "PROFILE_RECORD_SHAPES", c->record_shapes);
	add_bool(out, "PROFILE_PROFILE_MEMORY", c->profile_memory);
	add_bool(out, "PROFILE_WITH_STACK", c->with_stack);
	add_bool(out, "PROFILE_WITH_FLOPS", c->with_flops);
	add_bool(out, "PROFILE_WITH_MODULES", c->with_modules);
	add_levels(c, out);
	buf_addf(next_line(out), "PROFILE_DATA_SIMPLIFICATION=%s",
		 nputrace_true_false[c->data_simplification]);
	buf_addf(next_line(out), "PROFILE_EXPORT_TYPE=%s", nputrace_exports[c->export_type]);
	add_or_none(out, "PROFILE_HOST_SYS", c->host_sys);
	add_bool(out, "PROFILE_SYS_IO", c->sys_io);
	add_bool(out, "PROFILE_SYS_INTERCONNECTION", c->sys_interconnection);
	add_or_none(out, "PROFILE_MSTX_DOMAIN_INCLUDE", c->domain_include);
	add_or_none(out, "PROFILE_MSTX_DOMAIN_EXCLUDE", c->domain_exclude);
	add_bool(out, "PROFILE_IS_RANK", c->rank_list[0]);
	add_or_none(out, "PROFILE_RANK_LIST", c->rank_list);
}

void npu_monitor_config_text(const struct npu_monitor_config *c, struct buf *out)
{
	add_bool(out, "NPU_MONITOR_START", c->start);
	add_bool(out, "NPU_MONITOR_STOP", c->stop);
	buf_addf(next_line(out), "REPORT_INTERVAL_S=%u", c->report_interval_s);
	buf_add_str(out, "\nDURATION=");
	config_add_float(out, c->duration_s);
	buf_addf(next_line(out), "MSPTI_ACTIVITY_KIND=%s",
		 c->kinds[0] ? c->kinds : npu_monitor_kinds[0]);
	buf_addf(next_line(out), "NPU_MONITOR_LOG_FILE=%s", c->log_file);
	buf_addf(next_line(out), "NPU_MONITOR_EXPORT_TYPE=%s", npu_monitor_exports[c->export_type]);
	buf_addf(next_line(out), "JSONL_ROTATE_LOG_LINES=%s", c->rotate_lines);
	buf_addf(next_line(out), "JSONL_ROTATE_LOG_FILES=%s", c->rotate_files);
	buf_addf(next_line(out), "NPU_MONITOR_FILTER=%s", c->filter);
	if (c->attribute)
		buf_add_str(next_line(out), "SONDE_ATTRIBUTE=true");
	if (c->lease)
		buf_addf(next_line(out), "SONDE_LEASE=%" PRIu64, c->lease);
}

/* Where the ending begins that a number goes in front of; NULL: there is none. */
static const char *find_ending(const char *log_file)
{
	const char *at = strstr(log_file, ".pt.trace.json");

	return at ? at : strstr(log_file, ".json");
}

bool gputrace_file(const char *log_file, int64_t pid, struct buf *out)
{
	const char *at = find_ending(log_file);

	if (!at) {
		buf_add_str(out, log_file);
		return false;
	}
	buf_add(out, log_file, (size_t)(at - log_file));
	buf_addf(out, "_%" PRId64 "%s", pid, at);
	return true;
}

void gputrace_log_of_host(const char *log_file, const char *host, struct buf *out)
{
	const char *at = find_ending(log_file);
	size_t len = at ? (size_t)(at - log_file) : strlen(log_file);

	buf_add(out, log_file, len);
	buf_add_char(out, '_');
	for (; *host; host++)
		if (!strchr("[]", *host))
			buf_add_char(out, strchr(":%/", *host) ? '-' : *host);
	buf_add_str(out, log_file + len);
}
