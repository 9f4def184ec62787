/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Lines of /metrics: what reports say of devices and steps, and what has become slower. Names of
 * kernels are labels only of those that have, which are few. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "activity/live/toplist.h"
#include "daemon/jobs/jobs_impl.h"
#include "daemon/metrics/prometheus_text.h"

#define PROCESSES 256 /* that are told of */
#define SLOW 64 /* names */
#define LATE_MS 180000 /* an hour-old report is none of now */

static void add_devices(struct expo *e, const struct toplist_report *r, struct expo_label *labels)
{
	static const struct expo_family family = {
		"sonde_device_time_ratio", EXPO_GAUGE,
		"Part of the last interval in which a process' device was busy, ran kernels, "
		"communicated, copied."};
	double all = (double)r->interval_ns;

	for (size_t i = 0; i < r->ndevices; i++) {
		const struct toplist_device *d = &r->devices[i];
		const struct {
			const char *what;
			uint64_t ns;
			uint32_t kinds;
		} parts[] = {{"busy", d->busy_ns, TOPLIST_BUSY},
			     {"kernel", d->kernel_ns, TOPLIST_KERNELS},
			     {"communication", d->comm_ns, TOPLIST_COMMUNICATION},
			     {"copy", d->copy_ns, TOPLIST_COPIES}};
		char device[16];

		snprintf(device, sizeof(device), "%d", (int)d->device);
		labels[2] = (struct expo_label){"device", device};
		for (size_t k = 0; k < sizeof(parts) / sizeof(parts[0]); k++) {
			labels[3] = (struct expo_label){"what", parts[k].what};
			if (toplist_collects(r, parts[k].kinds))
				expo_add(e, &family, (double)parts[k].ns / all, labels, 4);
		}
	}
}

static void add_slow(struct expo *e, const struct toplist *t, struct expo_label *labels,
		     unsigned *left)
{
	static const struct expo_family family = {
		"sonde_regression_ratio", EXPO_GAUGE,
		"How many times as long a kernel takes as it used to, while that is a regression."};
	struct toplist_regression r;
	size_t at = 0;

	while (*left && toplist_next_regression(t, &at, &r)) {
		char device[16];

		snprintf(device, sizeof(device), "%d", (int)r.device);
		labels[2] = (struct expo_label){"device", device};
		labels[3] = (struct expo_label){"kind", r.kind};
		labels[4] = (struct expo_label){"name", r.name};
		expo_add(e, &family, r.baseline_ns ? (double)r.mean_ns / (double)r.baseline_ns : 1,
			 labels, 5);
		(*left)--;
	}
}

static bool has_report(const struct jobs_process *p, const void *arg)
{
	(void)arg;
	return p->top != NULL;
}

void jobs_expose_top(const struct jobs *j, struct expo *e)
{
	static const struct expo_family slow = {"sonde_regressions", EXPO_GAUGE,
						"Kernels that take longer than they used to, by "
						"the limit of --regression-percent."};
	static const struct expo_family step = {"sonde_step_seconds", EXPO_GAUGE,
						"Mean time of a step in the last interval."};
	unsigned left = SLOW;
	size_t n;

	expo_add(e, &slow, (double)j->counts.regressions, NULL, 0);
	struct jobs_process **all = jobs_collect(j, has_report, NULL, jobs_by_pids, &n);
	for (size_t i = 0; i < n && i < PROCESSES; i++) {
		const struct toplist_report *r = toplist_last(all[i]->top);
		char pid[16], rank[16];

		snprintf(pid, sizeof(pid), "%d", (int)all[i]->pid);
		snprintf(rank, sizeof(rank), "%d", (int)r->rank);
		struct expo_label labels[5] = {{"pid", pid}, {"rank", r->rank < 0 ? NULL : rank}};
		add_slow(e, all[i]->top, labels, &left);
		if (jobs_now_ms() - r->taken_ms > LATE_MS)
			continue;
		add_devices(e, r, labels);
		if (r->step_mean_ns)
			expo_add(e, &step, (double)r->step_mean_ns / 1e9, labels, 2);
	}
	free(all);
}
