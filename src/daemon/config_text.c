/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "daemon/config_text.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define WARM_UP_MS 12000 /* libkineto's five seconds, and two of its questions */
#define ITERATION_MS 20000 /* a step may take long; few take so long */
#define LATEST_MS 600000

static bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

static const char *skip_blanks(const char *s, const char *end)
{
	while (s < end && is_blank(*s))
		s++;
	return s;
}

static const char *trim_end(const char *s, const char *end)
{
	while (end > s && is_blank(end[-1]))
		end--;
	return end;
}

const char *config_value(const char *text, const char *key, size_t *out_len)
{
	size_t key_len = strlen(key);

	for (const char *line = text; *line;) {
		const char *end = line + strcspn(line, "\n");
		const char *equals = memchr(line, '=', (size_t)(end - line));

		if (equals) {
			const char *k = skip_blanks(line, equals);

			if ((size_t)(trim_end(k, equals) - k) == key_len &&
			    !memcmp(k, key, key_len)) {
				const char *v = skip_blanks(equals + 1, end);

				*out_len = (size_t)(trim_end(v, end) - v);
				return v;
			}
		}
		line = end + (*end == '\n');
	}
	return NULL;
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
static double number(const char *text, const char *key)
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
	if (!config_is_true(text, "NPU_MONITOR_START") || config_is_true(text, "NPU_MONITOR_STOP"))
		return 0;
	double seconds = number(text, "DURATION");
	return seconds > 0 && seconds < 1e9 ? (int64_t)(seconds * 1000) : 0;
}

int64_t config_trace_begins_ms(const char *text, int64_t now_ms)
{
	double start = number(text, "PROFILE_START_TIME") - (double)now_ms;
	size_t len;

	if (config_value(text, "ACTIVITIES_ITERATIONS", &len))
		return ITERATION_MS;
	if (!(start > 0))
		start = 0;
	return WARM_UP_MS + (int64_t)(start < LATEST_MS ? start : LATEST_MS);
}
