/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "sampler/counters/host.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/mem.h"
#include "base/proc.h"
#include "base/text/number_read.h"

#define MB 1048576.0

/* The number behind a name such as "MemTotal:", which counts kB. */
static bool find_kb(const char *text, size_t len, const char *name, uint64_t *out)
{
	size_t n = strlen(name);
	int64_t v;

	for (const char *at = text, *end = text + len; at < end;) {
		const char *line = memchr(at, '\n', (size_t)(end - at));
		size_t left = (size_t)((line ? line : end) - at);

		if (left > n && !memcmp(at, name, n)) {
			const char *digits = at + n, *stop = at + left;

			while (digits < stop && *digits == ' ')
				digits++;
			size_t k = 0;
			while (digits + k < stop && digits[k] >= '0' && digits[k] <= '9')
				k++;
			if (!number_read(digits, k, &v) || v < 0 || v > INT64_MAX >> 10)
				return false;
			*out = (uint64_t)v << 10;
			return true;
		}
		at += left + 1;
	}
	return false;
}

int meminfo_parse(const char *text, size_t len, struct meminfo *out)
{
	uint64_t total, available, v;
	static const char *const parts[] = {"MemFree:", "Buffers:", "Cached:", "SReclaimable:"};

	if (!find_kb(text, len, "MemTotal:", &total) || !total)
		return -EPROTO;
	if (!find_kb(text, len, "MemAvailable:", &available)) {
		available = 0;
		for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
			if (find_kb(text, len, parts[i], &v) && v <= total)
				available += v;
	}
	out->total_bytes = total;
	out->available_bytes = available < total ? available : total;
	out->free_bytes = find_kb(text, len, "MemFree:", &v) ? v : 0;
	out->shared_bytes = find_kb(text, len, "Shmem:", &v) ? v : 0;
	out->cache_bytes = 0;
	for (size_t i = 1; i < sizeof(parts) / sizeof(parts[0]); i++)
		if (find_kb(text, len, parts[i], &v) && v <= total)
			out->cache_bytes += v;
	return 0;
}

/* As proc_read(), of the host itself. */
static ssize_t read_host_file(const char *name, char *out, size_t cap)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%s", name);
	int fd = fs_open(path, O_RDONLY, 0, NULL);
	ssize_t n = fd < 0 ? -1 : read(fd, out, cap - 1);
	if (fd >= 0)
		close(fd);
	out[n > 0 ? n : 0] = '\0';
	return n;
}

void counters_put_host(struct counters *c)
{
	struct meminfo m;
	char text[8192];
	ssize_t n = read_host_file("meminfo", text, sizeof(text));

	if (n <= 0 || meminfo_parse(text, (size_t)n, &m) < 0)
		return;
	uint64_t used = m.total_bytes - m.available_bytes;
	counters_put(c,
		     &(struct counter){.track = COUNTER_HOST,
				       .card = -1,
				       .name = "cpu_mem",
				       .n = 4,
				       .more = 3,
				       .values = {
					       {"total_bytes", (double)m.total_bytes},
					       {"used_bytes", (double)used},
					       {"available_bytes", (double)m.available_bytes},
					       {"usage_rate", (double)(used * 100 / m.total_bytes)},
					       {"free_bytes", (double)m.free_bytes},
					       {"shared_bytes", (double)m.shared_bytes},
					       {"buff_cache_bytes", (double)m.cache_bytes},
				       }});
}

/* Of all processors, since it was called last. */
void counters_put_cpu(struct counters *c, struct process_loads *l)
{
	unsigned long long v[8] = {0}; /* user nice system idle iowait irq softirq steal */
	uint64_t all = 0, busy;
	char text[512];

	if (read_host_file("stat", text, sizeof(text)) <= 0 ||
	    sscanf(text, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &v[0], &v[1], &v[2], &v[3],
		   &v[4], &v[5], &v[6], &v[7]) < 4)
		return;
	for (unsigned i = 0; i < 8; i++)
		all += v[i];
	busy = all - v[3] - v[4];
	if (l->cpu_all && all > l->cpu_all && busy >= l->cpu_busy)
		counters_put(c, &(struct counter){
					.track = COUNTER_HOST,
					.card = -1,
					.name = "host_cpu_percent",
					.n = 1,
					.values = {{"cpu", 100.0 * (double)(busy - l->cpu_busy) /
								   (double)(all - l->cpu_all)}}});
	l->cpu_busy = busy;
	l->cpu_all = all;
}

/* --- processes --- */

static struct process_load *load_of(struct process_loads *l, pid_t pid)
{
	uint64_t at = hmap_get(&l->by_pid, (uint64_t)pid);

	if (at == HMAP_NONE) {
		at = l->n;
		l->list = xgrow(l->list, &l->cap, l->n + 1, sizeof(*l->list));
		l->list[l->n++] = (struct process_load){.pid = pid};
		hmap_put(&l->by_pid, (uint64_t)pid, at);
	}
	return &l->list[at];
}

/* Forgets those that were not asked for this time. */
static void forget_others(struct process_loads *l)
{
	size_t n = 0;

	for (size_t i = 0; i < l->n; i++) {
		if (!l->list[i].wanted) {
			hmap_remove(&l->by_pid, (uint64_t)l->list[i].pid);
			continue;
		}
		l->list[n] = l->list[i];
		l->list[n].wanted = false;
		hmap_put(&l->by_pid, (uint64_t)l->list[n].pid, n);
		n++;
	}
	l->n = n;
}

static void put_process(struct counters *c, pid_t pid, const char *name, const char *key,
			double value)
{
	counters_put(c, &(struct counter){.track = COUNTER_PROCESS,
					  .card = -1,
					  .pid = pid,
					  .name = name,
					  .n = 1,
					  .values = {{key, value}}});
}

static void put_cpu(struct counters *c, struct process_load *p, const struct proc_stat *s)
{
	double hz = (double)sysconf(_SC_CLK_TCK);
	uint64_t ticks = s->user_ticks + s->system_ticks, now_ns = clock_mono_ns();

	if (p->start_ticks == s->start_ticks && p->time_ns && now_ns > p->time_ns &&
	    ticks >= p->ticks)
		put_process(c, p->pid, "process_cpu_percent", "cpu",
			    100e9 * (double)(ticks - p->ticks) / hz /
				    (double)(now_ns - p->time_ns));
	p->start_ticks = s->start_ticks;
	p->ticks = ticks;
	p->time_ns = now_ns;
}

static void put_memory(struct counters *c, pid_t pid)
{
	unsigned long long pages;
	char text[256];

	if (proc_read(pid, "statm", text, sizeof(text)) > 0 &&
	    sscanf(text, "%*u %llu", &pages) == 1)
		put_process(c, pid, "process_rss_mb", "rss_mb",
			    (double)pages * (double)sysconf(_SC_PAGESIZE) / MB);
}

void counters_put_processes(struct counters *c, struct process_loads *l, const pid_t *pids,
			    unsigned n)
{
	struct proc_stat s;

	for (unsigned i = 0; i < n; i++) {
		if (proc_stat_read(pids[i], &s) < 0 || s.state == 'Z')
			continue;
		struct process_load *p = load_of(l, pids[i]);
		p->wanted = true;
		put_cpu(c, p, &s);
		put_memory(c, pids[i]);
	}
	forget_others(l);
}

void process_loads_release(struct process_loads *l)
{
	free(l->list);
	hmap_release(&l->by_pid);
	*l = (struct process_loads){0};
}
