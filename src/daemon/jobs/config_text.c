/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "daemon/jobs/jobs_impl.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "wire/request.h"

#define WARM_UP_MS 12000 /* libkineto's five seconds, and two of its questions */
#define ITERATION_MS 20000 /* a step may take long; few take so long */
#define LATEST_MS 600000

const char *config_value(const char *text, const char *key, size_t *out_len)
{
	struct request_text value;

	if (!request_find(text, strlen(text), key, &value))
		return NULL;
	*out_len = value.len;
	return value.at;
}

enum config_kind config_kind(const char *text)
{
	/* what nputrace always sends and gputrace never does, in any of their versions */
	static const char *const npu_keys[] = {"PROFILE_START_STEP", "PROFILE_AIC_METRICS",
					       "PROFILE_PROFILER_LEVEL"};
	static const char monitor[] = "NPU_MONITOR_START";
	size_t len;

	if (!strncmp(text, monitor, sizeof(monitor) - 1))
		return CONFIG_NPU_MONITOR;
	for (size_t i = 0; i < sizeof(npu_keys) / sizeof(npu_keys[0]); i++)
		if (config_value(text, npu_keys[i], &len))
			return CONFIG_NPU_TRACE;
	return CONFIG_KINETO;
}

bool config_is_true(const char *text, const char *key)
{
	size_t len;
	const char *value = config_value(text, key, &len);

	return value &&
	       ((len == 4 && !strncasecmp(value, "true", 4)) || (len == 1 && *value == '1'));
}

/* 0: there is none, or nothing that is a number. */
static double parse_number(const char *text, const char *key)
{
	char digits[32];
	size_t len;
	const char *value = config_value(text, key, &len);

	if (!value || len >= sizeof(digits))
		return 0;
	memcpy(digits, value, len);
	digits[len] = '\0';
	return strtod(digits, NULL);
}

int64_t config_monitor_ms(const char *text)
{
	size_t len;
	bool runs = config_is_true(text, "NPU_MONITOR_START") ||
		    config_value(text, "SONDE_LEASE", &len);

	if (!runs || config_is_true(text, "NPU_MONITOR_STOP"))
		return 0;
	double seconds = parse_number(text, "DURATION");
	return seconds > 0 && seconds < 1e9 ? (int64_t)(seconds * 1000) : 0;
}

int64_t config_trace_begins_ms(const char *text, int64_t now_ms)
{
	double start = parse_number(text, "PROFILE_START_TIME") - (double)now_ms;
	size_t len;

	if (config_value(text, "ACTIVITIES_ITERATIONS", &len))
		return ITERATION_MS;
	if (!(start > 0))
		start = 0;
	return WARM_UP_MS + (int64_t)(start < LATEST_MS ? start : LATEST_MS);
}
