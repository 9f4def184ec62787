/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "daemon/metrics/history.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/metrics/names.h"

/* What is kept of devices; of names that mean the same the first that there is. */
static const struct kept {
	const char *name;
	const char *metrics[4]; /* ended by NULL */
} of_devices[] =
	{
		{"utilization",
		 {"aicore_utilization", "npu_utilization", "gpu_device_utilization", NULL}},
		{"memory_bytes", {"hbm_used_bytes", "gpu_memory_used_bytes", NULL}},
		{"memory_total_bytes", {"hbm_total_bytes", "gpu_memory_total_bytes", NULL}},
		{"power_w", {"npu_power_draw_w", "gpu_power_draw", NULL}},
		{"temperature_c", {"npu_temperature_c", "gpu_temperature_c", NULL}},
},
  of_host[] = {
	  {"cpu_percent", {"cpu_util", NULL}},
	  {"memory_bytes", {"mem_used", NULL}},
	  {"memory_total_bytes", {"mem_total", NULL}},
};

/* Sums of the host that are counted between two samples: kept as what comes in a second. */
static const struct {
	const char *name, *metric;
	const char *without[3]; /* instances that begin so; ended by NULL */
} rates[] = {
	{"network_received_bytes_per_s", "rx_bytes", {"lo", NULL}},
	{"network_sent_bytes_per_s", "tx_bytes", {"lo", NULL}},
	{"disk_read_bytes_per_s", "disk_read_bytes", {"loop", "ram", NULL}},
	{"disk_written_bytes_per_s", "disk_write_bytes", {"loop", "ram", NULL}},
};

static struct history_series *find_series(struct history *h, const struct sample *s,
					  const char *name)
{
	for (size_t i = 0; i < h->n; i++) {
		struct history_series *one = h->list[i];

		if (one->device == s->device && one->name == name &&
		    !strcmp(one->source, s->source))
			return one;
	}
	if (h->n >= HISTORY_SERIES || strlen(s->source) >= sizeof(h->list[0]->source))
		return NULL;
	struct history_series *made = xcalloc(1, sizeof(*made));
	snprintf(made->source, sizeof(made->source), "%s", s->source);
	made->device = s->device;
	made->name = name;
	return *XPUSH(h->list, h->n, h->cap) = made;
}

static bool find_number(const struct sample *s, const char *const *names, double *out)
{
	for (; *names; names++)
		for (size_t i = 0; i < s->n; i++)
			if (!s->metrics[i].instance && !strcmp(s->metrics[i].name, *names) &&
			    metric_number(&s->metrics[i], out))
				return true;
	return false;
}

static void keep_value(struct history *h, const struct sample *s, const char *name, double value)
{
	struct history_series *series = find_series(h, s, name);

	if (series)
		course_add(&series->course, s->time_ns, value);
}

static void keep_all(struct history *h, const struct sample *s, const struct kept *kept, size_t n)
{
	double value;

	for (size_t i = 0; i < n; i++)
		if (find_number(s, kept[i].metrics, &value))
			keep_value(h, s, kept[i].name, value);
}

static bool is_left_out(const char *instance, const char *const *without)
{
	for (; *without; without++)
		if (!strncmp(instance, *without, strlen(*without)))
			return true;
	return false;
}

static void keep_rates(struct history *h, const struct sample *s, double seconds)
{
	for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++) {
		double sum = 0, value;
		bool any = false;

		for (size_t k = 0; k < s->n; k++) {
			const struct metric *m = &s->metrics[k];

			if (!m->instance || strcmp(m->name, rates[i].metric) ||
			    is_left_out(m->instance, rates[i].without) || !metric_number(m, &value))
				continue;
			sum += value;
			any = true;
		}
		if (any)
			keep_value(h, s, rates[i].name, sum / seconds);
	}
}

void history_add(struct history *h, const struct sample *s)
{
	bool host = !strcmp(s->source, "kernel");

	if (s->uid || (!host && strcmp(s->source, "npu") && strcmp(s->source, "gpu")))
		return;
	if (!host) {
		keep_all(h, s, of_devices, sizeof(of_devices) / sizeof(of_devices[0]));
		return;
	}
	keep_all(h, s, of_host, sizeof(of_host) / sizeof(of_host[0]));
	if (h->kernel_ns && s->time_ns > h->kernel_ns)
		keep_rates(h, s, (double)(s->time_ns - h->kernel_ns) / 1e9);
	h->kernel_ns = s->time_ns;
}

json_t *history_json(const struct history *h, int64_t from_bin, int64_t now_ns)
{
	json_t *list = json_array();

	for (size_t i = 0; i < h->n; i++) {
		const struct history_series *s = h->list[i];

		json_array_append_new(list, json_pack("{s:s, s:o, s:s, s:o}", "source", s->source,
						      "device",
						      s->device == SAMPLE_NO_DEVICE
							      ? json_null()
							      : json_integer((json_int_t)s->device),
						      "name", s->name, "values",
						      course_json(&s->course, from_bin, now_ns)));
	}
	return list;
}

uint64_t history_bytes(const struct history *h)
{
	return h->n * sizeof(struct history_series) + h->cap * sizeof(h->list[0]);
}

void history_release(struct history *h)
{
	for (size_t i = 0; i < h->n; i++)
		free(h->list[i]);
	free(h->list);
	*h = (struct history){0};
}
