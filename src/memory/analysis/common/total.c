/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/analysis/common/total.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "memory/analysis/common/analysis.h"

/* Of one moment, what is freed goes first: blocks of two processes do not follow each other. */
static int older_first(const void *pa, const void *pb)
{
	const struct total_change *a = pa, *b = pb;

	return ORDER(a->time_ns, b->time_ns) ?: ORDER((int64_t)a->bytes, (int64_t)b->bytes);
}

static void sort_changes(struct total *t)
{
	if (t->unsorted)
		SORT(t->waiting, t->n, older_first);
	t->unsorted = false;
}

static void add_up(struct total_peak *sum, const struct total_change *list, size_t n,
		   struct timed_course *course)
{
	for (size_t i = 0; i < n; i++) {
		sum->live_bytes += list[i].bytes;
		if (course)
			timed_course_set(course, list[i].time_ns,
					 (int64_t)sum->live_bytes < 0 ? 0 : sum->live_bytes);
		if ((int64_t)sum->live_bytes <= (int64_t)sum->bytes)
			continue;
		sum->bytes = sum->live_bytes;
		sum->time_ns = list[i].time_ns;
	}
}

/* The older half waits no more. */
static void settle_half(struct total *t)
{
	size_t n = t->n / 2;

	sort_changes(t);
	t->sum.late |= t->waiting[0].time_ns < t->added_ns;
	add_up(&t->sum, t->waiting, n, t->course);
	t->added_ns = t->waiting[n - 1].time_ns;
	t->n -= n;
	memmove(t->waiting, t->waiting + n, t->n * sizeof(*t->waiting));
}

void total_keep_course(struct total *t)
{
	t->course = xcalloc(1, sizeof(*t->course));
}

void total_add(struct total *t, uint64_t time_ns, uint64_t bytes)
{
	if (t->n == TOTAL_WINDOW)
		settle_half(t);
	t->unsorted |= t->n && time_ns < t->waiting[t->n - 1].time_ns;
	LIST_ADD(t->waiting, t->n, t->cap, (struct total_change){time_ns, bytes});
}

struct total_peak total_peak(struct total *t)
{
	struct total_peak sum = t->sum;

	sort_changes(t);
	sum.late |= t->n && t->waiting[0].time_ns < t->added_ns;
	add_up(&sum, t->waiting, t->n, NULL);
	return sum;
}

struct timed_course total_course(struct total *t)
{
	struct timed_course course = *t->course;
	struct total_peak sum = t->sum;

	sort_changes(t);
	add_up(&sum, t->waiting, t->n, &course);
	return course;
}

void total_release(struct total *t)
{
	free(t->course);
	free(t->waiting);
	*t = (struct total){0};
}
