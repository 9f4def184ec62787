/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Memory in bytes, and the load averages: gauges, true at the moment of the round. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "device/host/metrics/file.h"
#include "device/host/metrics/host.h"

struct host_memory {
	struct kernel_file meminfo;
	struct kernel_file loadavg;
};

struct host_memory *host_memory_new(const char *root)
{
	struct host_memory *m = xcalloc(1, sizeof(*m));

	kernel_file_init(&m->meminfo, root, "/proc/meminfo");
	kernel_file_init(&m->loadavg, root, "/proc/loadavg");
	return m;
}

void host_memory_free(struct host_memory *m)
{
	if (!m)
		return;
	kernel_file_release(&m->meminfo);
	kernel_file_release(&m->loadavg);
	free(m);
}

/* "MemTotal:  2048 kB" as bytes. */
static bool find_bytes(const char *text, const char *key, uint64_t *out)
{
	size_t n = strlen(key), len;
	const char *line;

	while ((line = kernel_line(&text, &len))) {
		if (len <= n || strncmp(line, key, n) || line[n] != ':')
			continue;
		line += n + 1;
		return kernel_number(&line, out) && !__builtin_mul_overflow(*out, 1024u, out);
	}
	return false;
}

static void read_memory(const char *text, struct metric_list *out)
{
	uint64_t total, available, swap_total, swap_free;

	if (find_bytes(text, "MemTotal", &total) && find_bytes(text, "MemAvailable", &available) &&
	    available <= total) {
		metric_list_uint(out, "mem_total", NULL, total);
		metric_list_uint(out, "mem_available", NULL, available);
		metric_list_uint(out, "mem_used", NULL, total - available);
	}
	if (find_bytes(text, "SwapTotal", &swap_total) &&
	    find_bytes(text, "SwapFree", &swap_free) && swap_free <= swap_total) {
		metric_list_uint(out, "swap_total", NULL, swap_total);
		metric_list_uint(out, "swap_used", NULL, swap_total - swap_free);
	}
}

/* "0.12 3.40 …": always two digits behind the point. */
static bool take_hundredths(const char **at, double *out)
{
	uint64_t whole, part;

	if (!kernel_number(at, &whole) || **at != '.')
		return false;
	++*at;
	if (!kernel_number(at, &part) || part > 99)
		return false;
	*out = (double)whole + (double)part / 100;
	return true;
}

static void read_load(const char *text, struct metric_list *out)
{
	static const char *const names[] = {"load_1m", "load_5m", "load_15m"};
	double v;

	for (size_t i = 0; i < 3 && take_hundredths(&text, &v); i++)
		metric_list_float(out, names[i], NULL, v);
}

void host_memory_read(struct host_memory *m, struct metric_list *out)
{
	const char *text = kernel_file_read(&m->meminfo);

	if (text)
		read_memory(text, out);
	text = kernel_file_read(&m->loadavg);
	if (text)
		read_load(text, out);
}
