/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Whose reports are taken, and what is told of them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "activity/live/toplist.h"
#include "base/mem.h"
#include "daemon/jobs/jobs_impl.h"

#define LOG_AREA "top"
#include "base/log.h"

#define USER_BYTES (32u << 20) /* of reports that are kept of one user's processes */
#define LOG_PER_MINUTE 60 /* lines about what has become slower, or has not any more */

/* --- taking --- */

/* Whether two processes are in the same pid namespace, so that a number means the same to both. */
static bool share_namespace(pid_t a, pid_t b)
{
	struct stat x, y;
	char path[48];

	snprintf(path, sizeof(path), "/proc/%d/ns/pid", (int)a);
	if (stat(path, &x) < 0)
		return false;
	snprintf(path, sizeof(path), "/proc/%d/ns/pid", (int)b);
	return stat(path, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

struct wanted {
	const struct jobs *j;
	const struct jobs_sender *from;
	int32_t pid;
	bool *is_known; /* out: there is a process with that pid, of anybody */
};

static bool may_speak_for(const struct jobs_process *p, const void *arg)
{
	const struct wanted *w = arg;

	if (p->pid != w->pid)
		return false;
	*w->is_known = true;
	return p->uid == w->from->uid || jobs_is_trusted(w->j, w->from->uid);
}

/* The process that a recorder speaks of; of several with that number in different containers the
 * one in the recorder's own. The guest, if there is one beside another client. NULL: none. */
static struct jobs_process *find(const struct jobs *j, const struct jobs_sender *from, int32_t pid,
				 bool *is_known)
{
	struct wanted w = {j, from, pid, is_known};
	struct jobs_process *found = NULL;
	size_t n;
	struct jobs_process **all = jobs_collect(j, may_speak_for, &w, NULL, &n);
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

static void count_bytes(struct jobs *j, uid_t uid, size_t before, size_t after)
{
	uint64_t n = hmap_get(&j->top_bytes, uid);

	n = (n == HMAP_NONE ? 0 : n) + after - before;
	if (n)
		hmap_put(&j->top_bytes, uid, n);
	else
		hmap_remove(&j->top_bytes, uid);
}

void jobs_top_forget(struct jobs *j, struct jobs_process *p)
{
	if (!p->top)
		return;
	count_bytes(j, p->uid, toplist_bytes(p->top), 0);
	j->counts.regressions -= toplist_regressions(p->top);
	toplist_free(p->top);
	p->top = NULL;
}

struct telling {
	struct jobs *j;
	const struct jobs_process *p;
	int32_t rank;
	unsigned untold;
};

/* Names are somebody else's text, and the log has lines. */
static void clean(const char *text, char *out, size_t cap)
{
	size_t n = 0;

	for (; text[n] && n < cap - 1; n++)
		out[n] = text[n] >= 0x20 && text[n] < 0x7f ? text[n] : '?';
	out[n] = '\0';
}

/* Whoever reports anything must not fill the disk with it. */
static bool may_log(struct jobs *j)
{
	int64_t minute = jobs_now_ms() / 60000;

	if (j->log_minute != minute) {
		j->log_minute = minute;
		j->logged = 0;
	}
	return j->logged++ < LOG_PER_MINUTE;
}

static void tell_regression(void *arg, const struct toplist_regression *r, bool over)
{
	struct telling *t = arg;
	char name[200], kind[TOPLIST_MAX_KIND + 1];

	if (!may_log(t->j)) {
		t->untold++;
		return;
	}
	clean(r->name, name, sizeof(name));
	clean(r->kind, kind, sizeof(kind));
	if (over)
		log_info("process %d, rank %d, %s '%s': it takes %.3f us, which is no regression "
			 "any more",
			 (int)t->p->pid, (int)t->rank, kind, name, (double)r->mean_ns / 1000);
	else
		log_warn("process %d, rank %d, %s '%s': regression, it takes %.3f us, %.0f %% more "
			 "than the usual %.3f us",
			 (int)t->p->pid, (int)t->rank, kind, name, (double)r->mean_ns / 1000,
			 ((double)r->mean_ns / (double)r->baseline_ns - 1) * 100,
			 (double)r->baseline_ns / 1000);
}

int jobs_top(struct jobs *j, const struct jobs_sender *from, const char *text, size_t len)
{
	struct toplist_report *r = toplist_report_read(text, len);

	if (!r)
		return -EINVAL;
	bool is_known = false;
	struct jobs_process *p = find(j, from, r->pid, &is_known);
	if (!p) {
		toplist_report_free(r);
		j->counts.late_reports += !is_known;
		return is_known ? -EPERM : -ESRCH;
	}
	if (r->partial && !p->top) { /* nothing to add it to, and no interval of its own */
		toplist_report_free(r);
		return 0;
	}
	uint64_t used = hmap_get(&j->top_bytes, p->uid);
	if (!jobs_is_trusted(j, p->uid) && used != HMAP_NONE && used + r->bytes > USER_BYTES) {
		toplist_report_free(r);
		return -EDQUOT;
	}
	size_t before = p->top ? toplist_bytes(p->top) : 0;
	if (!p->top)
		p->top = toplist_new();
	size_t slow = toplist_regressions(p->top);
	struct telling t = {.j = j, .p = p, .rank = r->rank};
	r->taken_ms = jobs_now_ms();
	toplist_take(p->top, r, j->regression_percent, tell_regression, &t);
	if (t.untold)
		log_debug("process %d: %u more names have become slower, or are as usual again",
			  (int)p->pid, t.untold);
	count_bytes(j, p->uid, before, toplist_bytes(p->top));
	j->counts.regressions += toplist_regressions(p->top) - slow;
	j->counts.reports++;
	return 0;
}

void jobs_set_regression(struct jobs *j, unsigned percent)
{
	j->regression_percent = percent;
}
