/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Which keys of an nputrace request a process carries out that has our library and no profiler of a
 * framework (docs/nputrace.md). The guest reports them to the daemon, which names in its answer
 * what will be ignored; the recorder notes the same in the trace.
 */
#ifndef SONDE_WIRE_TRACE_CAPABILITIES_H
#define SONDE_WIRE_TRACE_CAPABILITIES_H

/* Separated by spaces, as FABRIC_CAN has them. Of PROFILE_HOST_SYS all but osrt, which would be
 * PROFILE_HOST_SYS.osrt. */
#define TRACE_CAPABILITIES                                                                         \
	"ACTIVITIES_LOG_FILE PROFILE_START_ITERATION PROFILE_START_STEP ACTIVITIES_ITERATIONS "    \
	"ACTIVITIES_DURATION_MSECS PROFILE_ACTIVITIES PROFILE_PROFILE_MEMORY PROFILE_ANALYSE "     \
	"PROFILE_ASYNC_MODE PROFILE_MSPROF_TX PROFILE_MSTX_DOMAIN_INCLUDE "                        \
	"PROFILE_MSTX_DOMAIN_EXCLUDE PROFILE_HOST_SYS PROFILE_EXPORT_TYPE "                        \
	"PROFILE_DATA_SIMPLIFICATION PROFILE_IS_RANK PROFILE_RANK_LIST"
#define TRACE_CAPABILITIES_PYTHON /* in Python programs alone */                                   \
	" PROFILE_WITH_STACK PROFILE_GC_DETECT_THRESHOLD"

/* The other keys that dyno sends, each with the value that asks for nothing. */
struct trace_refusal {
	const char *key, *off;
};
#define TRACE_REFUSALS                                                                             \
	{                                                                                          \
		{"PROFILE_RECORD_SHAPES", "false"}, {"PROFILE_WITH_FLOPS", "false"},               \
			{"PROFILE_WITH_MODULES", "false"}, {"PROFILE_PROFILER_LEVEL", "Level0"},   \
			{"PROFILE_AIC_METRICS", "AiCoreNone"}, {"PROFILE_L2_CACHE", "false"},      \
			{"PROFILE_OP_ATTR", "false"}, {"PROFILE_SYS_IO", "false"},                 \
			{"PROFILE_SYS_INTERCONNECTION", "false"},                                  \
	}

#endif
