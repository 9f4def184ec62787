/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * --host-sys: what the host and the process do while the steps run, out of /proc. Sums since the
 * machine was started; the trace shows how they grow. What cannot be read is 0 throughout, and not
 * shown.
 */
#include "activity/trace/trace.h"
#include "base/mem.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EVERY_NS 20000000u
#define FILE_BYTES 65536u
#define SECTOR 512u

/* The text of a small file, terminated; false if it cannot be read. */
static bool look(const char *path, char *text)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t n = 0;
	ssize_t got = fd < 0 ? -1 : 1;

	while (got > 0 && n < FILE_BYTES - 1) {
		got = read(fd, text + n, FILE_BYTES - 1 - n);
		n += got > 0 ? (size_t)got : 0;
	}
	if (fd >= 0)
		close(fd);
	text[n] = '\0';
	return n > 0;
}

static bool look_own(const struct trace_state *t, const char *name, char *text)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%u/%s", t->w->pid, name);
	return look(path, text);
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

static void sample_cpu(const struct trace_state *t, struct trace_sample *s, char *text)
{
	unsigned long long v[8] = {0}, user, sys;

	if (look("/proc/stat", text) &&
	    sscanf(text, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &v[0], &v[1], &v[2], &v[3],
		   &v[4], &v[5], &v[6], &v[7]) >= 4) {
		for (int i = 0; i < 8; i++)
			s->cpu_all += v[i];
		s->cpu_busy = s->cpu_all - v[3] - v[4]; /* idle, waiting for disks */
	}
	/* The name of the process may hold anything but ends with the last bracket. */
	const char *p = look_own(t, "stat", text) ? strrchr(text, ')') : NULL;
	if (p && sscanf(p + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &user,
			&sys) == 2)
		s->own_cpu = user + sys;
}

static void sample_mem(const struct trace_state *t, struct trace_sample *s, char *text)
{
	if (look("/proc/meminfo", text)) {
		s->mem_total = number_behind(text, "MemTotal:") << 10;
		s->mem_available = number_behind(text, "MemAvailable:") << 10;
	}
	if (look_own(t, "status", text))
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

static void sample_disk(const struct trace_state *t, struct trace_sample *s, char *text)
{
	char name[64];
	unsigned long long in, out;

	if (look("/proc/diskstats", text))
		for (const char *at = text; *at; at = next_line(at))
			if (sscanf(at, "%*u %*u %63s %*u %*u %llu %*u %*u %*u %llu", name, &in,
				   &out) == 3 &&
			    is_disk(name)) {
				s->disk_read += in * SECTOR;
				s->disk_written += out * SECTOR;
			}
	if (look_own(t, "io", text)) {
		s->own_read = number_behind(text, "\nread_bytes:");
		s->own_written = number_behind(text, "\nwrite_bytes:");
	}
}

/* Of the network that the process sees. */
static void sample_network(const struct trace_state *t, struct trace_sample *s, char *text)
{
	unsigned long long in, out;

	if (!look_own(t, "net/dev", text))
		return;
	for (const char *at = text; *at; at = next_line(at)) {
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
	char *text = xmalloc(FILE_BYTES);
	struct trace_sample s = {.ns = ns};
	if (what & REQUEST_HOST_CPU)
		sample_cpu(t, &s, text);
	if (what & REQUEST_HOST_MEM)
		sample_mem(t, &s, text);
	if (what & REQUEST_HOST_DISK)
		sample_disk(t, &s, text);
	if (what & REQUEST_HOST_NETWORK)
		sample_network(t, &s, text);
	free(text);
	all->list = xgrow(all->list, &all->cap, all->n + 1, sizeof(*all->list));
	all->list[all->n++] = s;
}

void trace_host_release(struct trace_samples *s)
{
	free(s->list);
}
