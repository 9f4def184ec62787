/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Reports of what takes time: whose are accepted, what is logged, and their lines of /metrics. */
#define LOG_AREA "top"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "activity/live/toplist.h"
#include "base/broker.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/proc.h"
#include "base/text/printable.h"
#include "daemon/jobs/jobs_impl.h"
#include "daemon/metrics/prometheus_text.h"

#define USER_BYTES (32u << 20) /* of reports that are kept of one user's processes */
#define PROCESSES 256 /* in one answer, and in /metrics */
#define NAME_SHOWN 199 /* bytes of a name in the log */

/* --- accepting --- */

static bool stat_namespace(pid_t pid, struct stat *out)
{
	char path[48];

	snprintf(path, sizeof(path), "/proc/%d/ns/pid", (int)pid);
	int fd = proc_is_ours() ? broker_open(path) : -1;
	bool found = fd >= 0 && fstat(fd, out) == 0;
	if (fd >= 0)
		close(fd);
	return found;
}

/* Whether two processes are in the same pid namespace, so that a number means the same to both. */
static bool share_namespace(pid_t a, pid_t b)
{
	struct stat x, y;

	return stat_namespace(a, &x) && stat_namespace(b, &y) && x.st_dev == y.st_dev &&
	       x.st_ino == y.st_ino;
}

struct wanted {
	const struct jobs *j;
	const struct jobs_sender *from;
	int32_t pid;
	bool *is_known; /* out: there is a process with that pid, of anybody */
};

static bool is_reported(const struct jobs_process *p, const void *arg)
{
	const struct wanted *w = arg;

	if (p->pid != w->pid)
		return false;
	*w->is_known = true;
	return p->uid == w->from->uid || jobs_is_trusted(w->j, w->from->uid);
}

/* The process that a recorder speaks of; of several with that number in different containers the
 * one in the recorder's own. The guest, if there is one beside another client. NULL: none. */
struct jobs_process *jobs_find_reported(const struct jobs *j, const struct jobs_sender *from,
					int32_t pid, bool *is_known)
{
	struct wanted w = {j, from, pid, is_known};
	struct jobs_process *found = NULL;
	size_t n;
	struct jobs_process **all = jobs_collect(j, NULL, is_reported, &w, NULL, &n);
	bool several = false;

	for (size_t i = 1; i < n; i++)
		several = several || all[i]->peer != all[0]->peer;
	for (size_t i = 0; i < n; i++) {
		struct jobs_process *p = all[i];

		if (several && (!p->peer || !share_namespace(p->peer->pid, from->pid)))
			continue;
		if (!found || (p->guest && !found->guest))
			found = p;
	}
	free(all);
	return found;
}

void jobs_top_forget(struct jobs *j, struct jobs_process *p)
{
	free(p->courses);
	p->courses = NULL;
	if (!p->top)
		return;
	jobs_count(&j->top_bytes, p->uid, -(int64_t)toplist_bytes(p->top));
	j->counts.regressions -= toplist_regressions(p->top);
	j->counts.longer_waits -= toplist_longer_waits(p->top);
	toplist_free(p->top);
	p->top = NULL;
}

static bool has_courses(const struct jobs_process *p, const void *arg)
{
	(void)arg;
	return p->courses != NULL;
}

struct log_regressions {
	struct jobs *j;
	const struct jobs_process *p;
	int32_t rank;
};

/* Waiting longer is no fault of who waits, nor by itself a fault of anybody; healthy jobs do it, too. */
static void log_longer_wait(const struct log_regressions *t, const struct toplist_regression *r,
			    const char *what, bool over)
{
	if (over)
		log_debug(
			"process %d, rank %d, %s': it takes %.3f us, and does not wait longer any "
			"more",
			(int)t->p->pid, (int)t->rank, what, (double)r->mean_ns / 1000);
	else
		log_debug(
			"process %d, rank %d, %s': waits longer for other ranks, it takes %.3f us "
			"instead of %.3f us",
			(int)t->p->pid, (int)t->rank, what, (double)r->mean_ns / 1000,
			(double)r->baseline_ns / 1000);
}

/* Names are somebody else's text, and the log has lines. */
static void log_regression(void *arg, const struct toplist_regression *r, bool over)
{
	struct log_regressions *t = arg;
	struct buf what = {0};

	if (!user_limit_take(t->j->log_limit, t->p->uid)) /* reports must not fill the disk */
		return;
	text_add_printable(&what, r->kind, strlen(r->kind));
	buf_add_str(&what, " '");
	text_add_shortened(&what, r->name, strlen(r->name), NAME_SHOWN);
	if (r->waits)
		log_longer_wait(t, r, buf_str(&what), over);
	else if (over)
		log_info("process %d, rank %d, %s': it takes %.3f us, which is no regression any "
			 "more",
			 (int)t->p->pid, (int)t->rank, buf_str(&what), (double)r->mean_ns / 1000);
	else
		log_warn("process %d, rank %d, %s': regression, it takes %.3f us, %.0f %% more "
			 "than the usual %.3f us",
			 (int)t->p->pid, (int)t->rank, buf_str(&what), (double)r->mean_ns / 1000,
			 ((double)r->mean_ns / (double)r->baseline_ns - 1) * 100,
			 (double)r->baseline_ns / 1000);
	buf_release(&what);
}

/* For the charts: how long steps took, and how busy the devices were. */
static void keep_courses(struct jobs_process *p, const struct toplist_report *r)
{
	uint64_t busy = 0;

	if (!p->courses)
		p->courses = xcalloc(1, sizeof(*p->courses));
	if (r->steps) {
		p->step_ms = r->taken_ms;
		course_add(&p->courses->step_ns, clock_real_ns(), (double)r->step_mean_ns);
	}
	for (size_t i = 0; i < r->ndevices; i++)
		busy += r->devices[i].busy_ns;
	if (r->interval_ns && r->ndevices)
		course_add(&p->courses->busy, clock_real_ns(),
			   (double)busy / (double)r->interval_ns / (double)r->ndevices);
}

json_t *jobs_history(const struct jobs *j, const struct access_grant *who, int64_t from_bin,
		     int64_t now_ns, uint64_t *out_bytes)
{
	json_t *list = json_array();
	size_t n;
	struct jobs_process **all = jobs_collect(j, who, has_courses, NULL, NULL, &n);

	*out_bytes = n * sizeof(struct jobs_courses);
	for (size_t i = 0; i < n && i < PROCESSES; i++) {
		const struct jobs_process *p = all[i];
		const struct toplist_report *r = p->top ? toplist_last(p->top) : NULL;

		json_array_append_new(
			list,
			json_pack("{s:i, s:I, s:o, s:o, s:o}", "pid", p->pid, "job_id",
				  (json_int_t)p->job_id, "rank",
				  r && r->rank >= 0 ? json_integer(r->rank) : json_null(),
				  "step_ns", course_json(&p->courses->step_ns, from_bin, now_ns),
				  "busy", course_json(&p->courses->busy, from_bin, now_ns)));
	}
	free(all);
	return list;
}

int jobs_top(struct jobs *j, const struct jobs_sender *from, const char *text, size_t len)
{
	struct toplist_report *r = toplist_report_read(text, len);

	if (!r)
		return -EINVAL;
	bool is_known = false;
	struct jobs_process *p = jobs_find_reported(j, from, r->pid, &is_known);
	if (!p) {
		toplist_report_free(r);
		j->counts.late_reports += !is_known;
		return is_known ? -EPERM : -ESRCH;
	}
	if (r->partial && !p->top) { /* nothing to add it to, and no interval of its own */
		toplist_report_free(r);
		return 0;
	}
	uint64_t used = jobs_count(&j->top_bytes, p->uid, 0);
	if (!jobs_is_trusted(j, p->uid) && used && used + r->bytes > USER_BYTES) {
		toplist_report_free(r);
		return -EDQUOT;
	}
	size_t before = p->top ? toplist_bytes(p->top) : 0;
	if (!p->top)
		p->top = toplist_new();
	size_t slow = toplist_regressions(p->top), waits = toplist_longer_waits(p->top);
	struct log_regressions t = {.j = j, .p = p, .rank = r->rank};
	r->taken_ms = jobs_now_ms();
	keep_courses(p, r);
	toplist_take(p->top, r, j->regression_percent, log_regression, &t);
	jobs_count(&j->top_bytes, p->uid, (int64_t)toplist_bytes(p->top) - (int64_t)before);
	j->counts.regressions += toplist_regressions(p->top) - slow;
	j->counts.longer_waits += toplist_longer_waits(p->top) - waits;
	j->counts.reports++;
	return 0;
}

void jobs_set_regression(struct jobs *j, unsigned percent)
{
	j->regression_percent = percent;
}

/* --- lines of /metrics: devices, steps, regressions, waits, the slowest rank; kernels are labels
 * of what has become slower alone --- */

#define SLOW 64 /* names */
#define LATE_MS 180000 /* an hour-old report is none of now */

static void add_devices(struct prom_text *e, const struct toplist_report *r,
			struct prom_label *labels)
{
	static const struct prom_family family = {
		"sonde_device_time_ratio", PROM_GAUGE,
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
		labels[2] = (struct prom_label){"device", device};
		for (size_t k = 0; k < sizeof(parts) / sizeof(parts[0]); k++) {
			labels[3] = (struct prom_label){"what", parts[k].what};
			if (toplist_collects(r, parts[k].kinds))
				prom_add(e, &family, (double)parts[k].ns / all, labels, 4);
		}
	}
}

/* Each user with reports has the same number of names. */
struct slow_names {
	struct hmap used; /* by user */
	unsigned each;
};

static void add_slow(struct prom_text *e, const struct jobs_process *p, struct prom_label *labels,
		     struct slow_names *names)
{
	static const struct prom_family families[] = {
		{"sonde_regression_ratio", PROM_GAUGE,
		 "How many times as long a kernel takes as it used to, while that is a "
		 "regression."},
		{"sonde_wait_ratio", PROM_GAUGE,
		 "How many times as long a collective takes as it used to, while it waits longer "
		 "for other ranks."}};
	struct toplist_regression r;
	size_t at = 0;

	while (jobs_count(&names->used, p->uid, 0) < names->each &&
	       toplist_next_slower(p->top, &at, &r)) {
		char device[16];

		snprintf(device, sizeof(device), "%d", (int)r.device);
		labels[2] = (struct prom_label){"device", device};
		labels[3] = (struct prom_label){"kind", r.kind};
		labels[4] = (struct prom_label){"name", r.name};
		prom_add(e, &families[r.waits],
			 r.baseline_ns ? (double)r.mean_ns / (double)r.baseline_ns : 1, labels, 5);
		jobs_count(&names->used, p->uid, 1);
	}
}

static unsigned count_users(struct jobs_process *const *all, size_t n)
{
	struct hmap users = {0};

	for (size_t i = 0; i < n; i++)
		hmap_put(&users, all[i]->uid, 1);
	unsigned count = (unsigned)users.count;
	hmap_release(&users);
	return count;
}

/* The slowest rank of each job: processes of one user with the same job id. */
static void add_slowest(struct prom_text *e, struct jobs_process *const *all, size_t n)
{
	static const struct prom_family family = {"sonde_slowest_rank_ratio", PROM_GAUGE,
						  "Part of the time that the other ranks lose by "
						  "the slowest rank, while there is one."};
	struct jobs_process **job = xcalloc(n + 1, sizeof(struct jobs_process *));
	bool *done = xcalloc(n + 1, sizeof(*done));

	for (size_t i = 0; i < n; i++) {
		struct jobs_slowest s;
		char pid[16], rank[16];
		size_t members = 0;

		for (size_t k = i; k < n; k++)
			if (!done[k] && all[k]->uid == all[i]->uid &&
			    all[k]->job_id == all[i]->job_id) {
				job[members++] = all[k];
				done[k] = true;
			}
		if (!jobs_find_slowest(job, members, jobs_now_ms(), &s))
			continue;
		snprintf(pid, sizeof(pid), "%d", (int)s.pid);
		snprintf(rank, sizeof(rank), "%d", (int)s.rank);
		struct prom_label labels[] = {{"pid", pid}, {"rank", rank}, {"by", s.by}};
		prom_add(e, &family, s.ratio, labels, 3);
	}
	free(done);
	free(job);
}

static bool has_report(const struct jobs_process *p, const void *arg)
{
	(void)arg;
	return p->top != NULL;
}

void jobs_add_top_metrics(const struct jobs *j, struct prom_text *e)
{
	static const struct prom_family slow = {"sonde_regressions", PROM_GAUGE,
						"Kernels that take longer than they used to, by "
						"the limit of --regression-percent."};
	static const struct prom_family waits = {
		"sonde_waits", PROM_GAUGE,
		"Collectives that wait longer for other ranks than "
		"they used to."};
	static const struct prom_family step = {"sonde_step_seconds", PROM_GAUGE,
						"Mean time of a step in the last interval."};
	struct slow_names names = {0};
	size_t n;

	prom_add(e, &slow, (double)j->counts.regressions, NULL, 0);
	prom_add(e, &waits, (double)j->counts.longer_waits, NULL, 0);
	struct jobs_process **all = jobs_collect(j, NULL, has_report, NULL, jobs_by_pids, &n);
	jobs_take_turns(all, n);
	names.each = count_users(all, n) < SLOW ? SLOW / (count_users(all, n) ?: 1) : 1;
	for (size_t i = 0; i < n && i < PROCESSES; i++) {
		const struct toplist_report *r = toplist_last(all[i]->top);
		char pid[16], rank[16];

		snprintf(pid, sizeof(pid), "%d", (int)all[i]->pid);
		snprintf(rank, sizeof(rank), "%d", (int)r->rank);
		struct prom_label labels[5] = {{"pid", pid}, {"rank", r->rank < 0 ? NULL : rank}};
		add_slow(e, all[i], labels, &names);
		if (jobs_now_ms() - r->taken_ms > LATE_MS)
			continue;
		add_devices(e, r, labels);
		if (r->step_mean_ns)
			prom_add(e, &step, (double)r->step_mean_ns / 1e9, labels, 2);
	}
	add_slowest(e, all, n < PROCESSES ? n : PROCESSES);
	hmap_release(&names.used);
	free(all);
}
