/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "device/cuda/metrics/nvidia_smi.h"

#include <string.h>

#include "base/subprocess.h"
#include "base/text/number_read.h"

#define MAX_OUTPUT (1u << 20)
#define MAX_MB (INT64_C(1) << 40)

/* The next field of a line, without blanks around it; false at its end. */
static bool take_field(const char **at, const char *end, const char **out, size_t *out_len)
{
	if (*at > end)
		return false;
	const char *comma = memchr(*at, ',', (size_t)(end - *at));
	const char *from = *at, *to = comma ? comma : end;

	*at = to + 1;
	while (from < to && strchr(" \t\r", *from))
		from++;
	while (to > from && strchr(" \t\r", to[-1]))
		to--;
	*out = from;
	*out_len = (size_t)(to - from);
	return true;
}

/* The next field as a number of 0 to max, -1 if it is none. */
static int64_t take_number(const char **at, const char *end, int64_t max)
{
	const char *text;
	size_t len;
	int64_t v;

	if (!take_field(at, end, &text, &len) || !number_read(text, len, &v) || v < 0 || v > max)
		return -1;
	return v;
}

static const char *end_of_line(const char *text, size_t len)
{
	const char *end = memchr(text, '\n', len);

	return end ? end : text + len;
}

unsigned nvidia_smi_parse_gpus(const char *text, size_t len, struct nvidia_smi_gpu *out,
			       unsigned cap)
{
	const char *at = text, *last = len ? text + len : text;
	unsigned n = 0;

	while (at < last && n < cap) {
		const char *end = end_of_line(at, (size_t)(last - at));
		struct nvidia_smi_gpu g;

		g.index = (int)take_number(&at, end, INT16_MAX);
		g.utilization = (int)take_number(&at, end, 100);
		g.memory_utilization = (int)take_number(&at, end, 100);
		g.memory_used_mb = take_number(&at, end, MAX_MB);
		g.memory_total_mb = take_number(&at, end, MAX_MB);
		if (g.memory_total_mb < g.memory_used_mb || g.memory_used_mb < 0)
			g.memory_used_mb = g.memory_total_mb = -1;
		if (g.index >= 0)
			out[n++] = g;
		at = end + 1;
	}
	return n;
}

void nvidia_smi_parse_apps(const char *text, size_t len, struct device_processes *out)
{
	const char *at = text, *last = len ? text + len : text;

	while (at < last) {
		const char *end = end_of_line(at, (size_t)(last - at));
		int64_t pid = take_number(&at, end, INT32_MAX);
		int64_t mb = take_number(&at, end, MAX_MB);

		if (pid > 0)
			device_processes_add(
				out, &(struct device_process){
					     .pid = (pid_t)pid,
					     .device = -1,
					     .bytes = mb < 0 ? UINT64_MAX : (uint64_t)mb << 20});
		at = end + 1;
	}
}

static int run_query(const char *query, unsigned timeout_ms, pid_t *hanging, struct buf *out,
		     struct err *err)
{
	const char *argv[] = {"nvidia-smi", query, "--format=csv,noheader,nounits", NULL};
	const struct run_options o = {.timeout_ms = timeout_ms,
				      .max_bytes = MAX_OUTPUT,
				      .apart = true,
				      .hanging = hanging};

	return run_program(argv, &o, out, err);
}

int nvidia_smi_gpus(unsigned timeout_ms, pid_t *hanging, struct nvidia_smi_gpu *out, unsigned cap,
		    struct err *err)
{
	struct buf text = {0};
	int r = run_query(
		"--query-gpu=index,utilization.gpu,utilization.memory,memory.used,memory.total",
		timeout_ms, hanging, &text, err);

	if (r == 0)
		r = (int)nvidia_smi_parse_gpus(text.data, text.len, out, cap);
	buf_release(&text);
	return r;
}

int nvidia_smi_apps(unsigned timeout_ms, struct device_processes *out, struct err *err)
{
	struct buf text = {0};
	int r = run_query("--query-compute-apps=pid,used_memory", timeout_ms, &out->hanging, &text,
			  err);

	if (r == 0)
		nvidia_smi_parse_apps(text.data, text.len, out);
	buf_release(&text);
	return r;
}
