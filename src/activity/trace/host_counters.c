/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * --host-sys: what the host and the process do while the steps run, out of /proc. Sums since the
 * machine was started; the trace shows how they grow. What cannot be read is 0 throughout, and not
 * shown.
 */
#include "activity/trace/trace.h"
#include "base/fs.h"
#include "base/mem.h"
#include "base/proc.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EVERY_NS 20000000u
#define FILE_BYTES (1u << 20)
#define SECTOR 512u

/* The text of a file of /proc, in `room`; NULL if it cannot be read. */
static const char *read_text(const char *path, struct buf *room)
{
	buf_clear(room);
	return fs_read_file(path, FILE_BYTES, room, NULL) == 0 && room->len ? buf_str(room) : NULL;
}

static const char *read_own(const struct trace_state *t, const char *name, struct buf *room)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%u/%s", t->w->shown_pid, name);
	return read_text(path, room);
}

/* The number behind a word such as "MemTotal:"; 0 if it is not there. */
static uint64_t number_behind(const char *text, const char *word)
{
	const char *at = strstr(text, word);

	return at ? strtoull(at + strlen(word), NULL, 10) : 0;
}

static const char *next_line(const char *at)
{
	const char *end = strchr(at, '\n');

	return end ? end + 1 : at + strlen(at);
}

static void sample_cpu(const struct trace_state *t, struct trace_sample *s, struct buf *room)
{
	unsigned long long v[8] = {0};
	struct proc_stat own;

	const char *text = read_text("/proc/stat", room);
	if (text && sscanf(text, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &v[0], &v[1], &v[2],
			   &v[3], &v[4], &v[5], &v[6], &v[7]) >= 4) {
		for (int i = 0; i < 8; i++)
			s->cpu_all += v[i];
		s->cpu_busy = s->cpu_all - v[3] - v[4]; /* idle, waiting for disks */
	}
	if (proc_stat_read((pid_t)t->w->shown_pid, &own) == 0)
		s->own_cpu = own.user_ticks + own.system_ticks;
}

static void sample_mem(const struct trace_state *t, struct trace_sample *s, struct buf *room)
{
	const char *text = read_text("/proc/meminfo", room);

	if (text) {
		s->mem_total = number_behind(text, "MemTotal:") << 10;
		s->mem_available = number_behind(text, "MemAvailable:") << 10;
	}
	text = read_own(t, "status", room);
	if (text)
		s->own_rss = number_behind(text, "\nVmRSS:") << 10;
}

/* Whole disks alone: their partitions, and what is stacked on them, would count twice. */
static bool is_disk(const char *name)
{
	size_t len = strlen(name);

	if (!strncmp(name, "nvme", 4))
		return !strchr(name, 'p');
	return (!strncmp(name, "sd", 2) || !strncmp(name, "vd", 2) || !strncmp(name, "xvd", 3)) &&
	       (name[len - 1] < '0' || name[len - 1] > '9');
}

static void sample_disk(const struct trace_state *t, struct trace_sample *s, struct buf *room)
{
	char name[64];
	unsigned long long in, out;

	const char *text = read_text("/proc/diskstats", room);
	if (text)
		for (const char *at = text; *at; at = next_line(at))
			if (sscanf(at, "%*u %*u %63s %*u %*u %llu %*u %*u %*u %llu", name, &in,
				   &out) == 3 &&
			    is_disk(name)) {
				s->disk_read += in * SECTOR;
				s->disk_written += out * SECTOR;
			}
	text = read_own(t, "io", room);
	if (text) {
		s->own_read = number_behind(text, "\nread_bytes:");
		s->own_written = number_behind(text, "\nwrite_bytes:");
	}
}

/* Of the network that the process sees. */
static void sample_network(const struct trace_state *t, struct trace_sample *s, struct buf *room)
{
	unsigned long long in, out;

	const char *text = read_own(t, "net/dev", room);
	for (const char *at = text ? text : ""; *at; at = next_line(at)) {
		const char *colon = strchr(at, ':'), *end = next_line(at);

		while (*at == ' ')
			at++;
		if (colon && colon < end && strncmp(at, "lo:", 3) &&
		    sscanf(colon + 1, "%llu %*u %*u %*u %*u %*u %*u %*u %llu", &in, &out) == 2) {
			s->net_in += in;
			s->net_out += out;
		}
	}
}

void trace_host_sample(struct trace_state *t, uint64_t now_mono_ns)
{
	struct trace_samples *all = &t->samples;
	uint32_t what = t->w->trace.host_sys;

	if (now_mono_ns < all->next_ns || all->n >= TRACE_MAX_SAMPLES)
		return;
	all->next_ns = now_mono_ns + EVERY_NS;
	uint64_t ns = now_mono_ns + (uint64_t)t->w->wall_minus_mono_ns;
	if (ns >= t->to_ns && all->n && all->list[all->n - 1].ns >= t->to_ns)
		return; /* the one behind the last step is enough */
	/* The last one before the first step is what its first moments are measured from. */
	if (t->from_ns == TRACE_NOT_YET)
		all->n = 0;
	struct buf room = {0};
	struct trace_sample s = {.ns = ns};
	if (what & REQUEST_HOST_CPU)
		sample_cpu(t, &s, &room);
	if (what & REQUEST_HOST_MEM)
		sample_mem(t, &s, &room);
	if (what & REQUEST_HOST_DISK)
		sample_disk(t, &s, &room);
	if (what & REQUEST_HOST_NETWORK)
		sample_network(t, &s, &room);
	buf_release(&room);
	*XPUSH(all->list, all->n, all->cap) = s;
}

/* --- what they come to --- */

#define MIB 1048576.0

static double growth_of(uint64_t now, uint64_t before)
{
	return now > before ? (double)(now - before) : 0;
}

enum counter_id { HOST_BUSY, OWN_BUSY, HOST_USED, OWN_RESIDENT, RATES };

/* Without time and value; those from RATES on are sums that grow. */
static const struct {
	struct trace_counter c;
	uint32_t what; /* REQUEST_HOST_* */
	size_t offset;
} counters[] = {
#define COUNTER(own, name, unit, recorded, key, scale)                                             \
	{                                                                                          \
		0, own, name, unit, recorded, key, scale, 0                                        \
	}
#define RATE(what, own, member, name, recorded)                                                    \
	{                                                                                          \
		COUNTER(own, name, "bytes per s", recorded, "bytes_per_s", 1), what,               \
			offsetof(struct trace_sample, member)                                      \
	}
	[HOST_BUSY] = {COUNTER(false, "cpu busy", "percent", "host_cpu_percent", "cpu", 1), 0, 0},
	[OWN_BUSY] = {COUNTER(true, "cpu", "percent of one", "process_cpu_percent", "cpu", 1), 0,
		      0},
	[HOST_USED] = {COUNTER(false, "memory used", "bytes", "cpu_mem", "used_bytes", 1), 0, 0},
	[OWN_RESIDENT] = {COUNTER(true, "resident memory", "bytes", "process_rss_mb", "rss_mb",
				  MIB),
			  0, 0},
	[RATES] = RATE(REQUEST_HOST_DISK, false, disk_read, "disk read", "host_disk_read"),
	RATE(REQUEST_HOST_DISK, false, disk_written, "disk written", "host_disk_written"),
	RATE(REQUEST_HOST_DISK, true, own_read, "read from disk", "process_disk_read"),
	RATE(REQUEST_HOST_DISK, true, own_written, "written to disk", "process_disk_written"),
	RATE(REQUEST_HOST_NETWORK, false, net_in, "network in", "host_network_in"),
	RATE(REQUEST_HOST_NETWORK, false, net_out, "network out", "host_network_out"),
};

struct counters_out {
	void (*fn)(void *arg, const struct trace_counter *c);
	void *arg;
	uint64_t ns;
};

static void put_value(const struct counters_out *o, size_t id, double value)
{
	struct trace_counter c = counters[id].c;

	c.ns = o->ns;
	c.value = value;
	o->fn(o->arg, &c);
}

static void put_load(const struct counters_out *o, const struct trace_sample *a,
		     const struct trace_sample *b)
{
	double s = growth_of(b->ns, a->ns) / 1e9;
	double ticks = (double)sysconf(_SC_CLK_TCK);

	if (b->cpu_all > a->cpu_all)
		put_value(o, HOST_BUSY,
			  100 * growth_of(b->cpu_busy, a->cpu_busy) /
				  growth_of(b->cpu_all, a->cpu_all));
	if (b->own_cpu && ticks > 0)
		put_value(o, OWN_BUSY, 100 * growth_of(b->own_cpu, a->own_cpu) / ticks / s);
	if (b->mem_total)
		put_value(o, HOST_USED, growth_of(b->mem_total, b->mem_available));
	if (b->own_rss)
		put_value(o, OWN_RESIDENT, (double)b->own_rss);
}

static void put_traffic(const struct counters_out *o, const struct trace_sample *a,
			const struct trace_sample *b, uint32_t what)
{
	for (size_t i = RATES; i < sizeof(counters) / sizeof(counters[0]); i++) {
		const void *before = (const char *)a + counters[i].offset;
		const void *now = (const char *)b + counters[i].offset;

		if (what & counters[i].what)
			put_value(o, i,
				  growth_of(*(const uint64_t *)now, *(const uint64_t *)before) /
					  (growth_of(b->ns, a->ns) / 1e9));
	}
}

void trace_host_each(const struct trace_state *t,
		     void (*fn)(void *arg, const struct trace_counter *c), void *arg)
{
	const struct trace_samples *s = &t->samples;
	struct counters_out o = {fn, arg, 0};

	for (size_t i = 1; i < s->n; i++) {
		if (s->list[i].ns <= s->list[i - 1].ns || s->list[i].ns < t->from_ns)
			continue;
		o.ns = s->list[i].ns;
		put_load(&o, &s->list[i - 1], &s->list[i]);
		put_traffic(&o, &s->list[i - 1], &s->list[i], t->w->trace.host_sys);
	}
}
