/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The "perf" source: instructions and cycles of all processors by the kernel's counters. Where
 * there are fewer hardware counters than users of them, the kernel lets them take turns; what a
 * counter missed is made up for by the time it ran.
 */
#include <errno.h>
#include <linux/perf_event.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "device/host/metrics/file.h"
#include "device/metrics.h"

#define MAX_CPUS 8192

/* As the kernel lays out a read of two counters that are a group. */
struct reading {
	uint64_t n;
	uint64_t enabled_ns, running_ns;
	uint64_t cycles, instructions;
};

struct counters {
	int cycles, instructions; /* descriptors; the first leads the group */
	struct reading before;
};

struct perf {
	struct counters *cpus;
	size_t ncpus, cap;
	uint64_t before_ns;
	int failed; /* negative errno of the first processor that could not be counted */
	struct metric_list record;
};

static void perf_close(void *self)
{
	struct perf *p = self;

	for (size_t i = 0; i < p->ncpus; i++) {
		close(p->cpus[i].instructions);
		close(p->cpus[i].cycles);
	}
	free(p->cpus);
	metric_list_release(&p->record);
	free(p);
}

static int open_counter(uint64_t config, unsigned cpu, int leader)
{
	struct perf_event_attr attr = {.type = PERF_TYPE_HARDWARE,
				       .size = sizeof(attr),
				       .config = config,
				       .read_format = PERF_FORMAT_GROUP |
						      PERF_FORMAT_TOTAL_TIME_ENABLED |
						      PERF_FORMAT_TOTAL_TIME_RUNNING};
	long fd = syscall(SYS_perf_event_open, &attr, -1, (int)cpu, leader, PERF_FLAG_FD_CLOEXEC);

	return fd < 0 ? -errno : (int)fd;
}

static bool read_counters(const struct counters *c, struct reading *out)
{
	return read(c->cycles, out, sizeof(*out)) == (ssize_t)sizeof(*out) && out->n == 2;
}

static void add_cpu(void *arg, unsigned cpu)
{
	struct perf *p = arg;
	struct counters c = {.cycles = -1, .instructions = -1};

	if (p->failed < 0)
		return;
	c.cycles = open_counter(PERF_COUNT_HW_CPU_CYCLES, cpu, -1);
	if (c.cycles == -ENODEV) /* gone offline since the list was made */
		return;
	if (c.cycles >= 0)
		c.instructions = open_counter(PERF_COUNT_HW_INSTRUCTIONS, cpu, c.cycles);
	if (c.cycles < 0 || c.instructions < 0) {
		p->failed = c.cycles < 0 ? c.cycles : c.instructions;
		if (c.cycles >= 0)
			close(c.cycles);
		return;
	}
	read_counters(&c, &c.before);
	p->cpus = xgrow(p->cpus, &p->cap, p->ncpus + 1, sizeof(c));
	p->cpus[p->ncpus++] = c;
}

static int explain_refusal(int code, struct err *err)
{
	switch (code) {
	case -EACCES:
	case -EPERM:
		return err_set(err, -EACCES,
			       "the kernel does not let this user count instructions of all "
			       "processors: needs CAP_PERFMON, root, or "
			       "/proc/sys/kernel/perf_event_paranoid at 0 or below");
	case -ENOENT:
	case -EOPNOTSUPP:
	case -ENOSYS:
		return err_set(err, -ENOENT,
			       "this machine has no hardware counters; most virtual ones do not");
	case -EMFILE:
		return err_set(err, code,
			       "too many open files: two are needed for each processor; raise "
			       "LimitNOFILE or ulimit -n");
	default:
		return err_sys(err, code, "cannot count instructions");
	}
}

static int perf_open(void **out, const struct metrics_options *o, struct err *err)
{
	struct perf *p = xcalloc(1, sizeof(*p));
	char *online = kernel_text("", "/sys/devices/system/cpu/online");

	(void)o;
	if (online)
		kernel_list_each(online, MAX_CPUS, add_cpu, p);
	free(online);
	int r = p->failed;
	if (!r && !p->ncpus)
		r = -ENOENT;
	if (r < 0) {
		perf_close(p);
		return explain_refusal(r, err);
	}
	p->before_ns = clock_mono_ns();
	*out = p;
	return 0;
}

/* What would have been counted had the counters run all the time. */
static double whole(uint64_t now, uint64_t before, double share)
{
	return share > 0 ? (double)kernel_counted(now, before) / share : 0;
}

static int perf_read(void *self, sample_fn fn, void *arg, struct err *err)
{
	struct perf *p = self;
	double instructions = 0, cycles = 0;
	uint64_t now_ns = clock_mono_ns();
	bool any = false;

	for (size_t i = 0; i < p->ncpus; i++) {
		struct reading now, was = p->cpus[i].before;

		if (!read_counters(&p->cpus[i], &now))
			continue; /* offline for now */
		uint64_t enabled = kernel_counted(now.enabled_ns, was.enabled_ns);
		uint64_t running = kernel_counted(now.running_ns, was.running_ns);
		double share = enabled ? (double)running / (double)enabled : 0;
		instructions += whole(now.instructions, was.instructions, share);
		cycles += whole(now.cycles, was.cycles, share);
		p->cpus[i].before = now;
		any = true;
	}
	double us = (double)kernel_counted(now_ns, p->before_ns) / 1e3;
	p->before_ns = now_ns;
	if (!any)
		return err_set(err, -EIO, "no processor's counters can be read");
	if (us < 1)
		return 0;
	metric_list_clear(&p->record);
	/* Events in a microsecond are millions of them in a second. */
	metric_list_float(&p->record, "mips", NULL, instructions / us);
	metric_list_float(&p->record, "mega_cycles_per_second", NULL, cycles / us);
	metric_list_emit(&p->record, perf_metrics.name, SAMPLE_NO_DEVICE, fn, arg);
	return 0;
}

const struct metrics_source perf_metrics = {
	.name = "perf",
	.open = perf_open,
	.read = perf_read,
	.close = perf_close,
};
