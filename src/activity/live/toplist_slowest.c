/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The rank that the others wait for; see top.h. */
#include <stdlib.h>

#include "activity/live/toplist.h"
#include "base/mem.h"

#define WORTH 0.02 /* of the time: less is noise */
#define SIMPLER 1.5 /* times as much must others wait for a rank whose own steps are long */
#define SPREADS 2 /* times the usual deviation of the others: less is noise, too */

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

/* Of all but one. */
static double median_without(const double *v, size_t n, size_t left_out, double *scratch)
{
	size_t kept = 0;

	for (size_t i = 0; i < n; i++)
		if (i != left_out)
			scratch[kept++] = v[i];
	qsort(scratch, kept, sizeof(*scratch), by_size);
	/* the lower of the two in the middle: no rank is named for what one other does */
	return scratch[(kept - 1) / 2];
}

/* How far the others are from each other: what is no more than usual names nobody. */
static double spread_without(const double *v, size_t n, size_t left_out, double middle,
			     double *scratch)
{
	size_t kept = 0;

	for (size_t i = 0; i < n; i++)
		if (i != left_out)
			scratch[kept++] = v[i] > middle ? v[i] - middle : middle - v[i];
	qsort(scratch, kept, sizeof(*scratch), by_size);
	return scratch[kept / 2];
}

static struct toplist_slowest by_steps(const struct toplist_rank *ranks, size_t n, double *v,
				       double *scratch)
{
	struct toplist_slowest none = {0}, found = {.by = TOPLIST_SLOW_STEPS};

	for (size_t i = 0; i < n; i++) {
		v[i] = (double)ranks[i].step_mean_ns;
		if (!ranks[i].step_mean_ns)
			return none;
		if (v[i] > v[found.at])
			found.at = i;
	}
	double usual = median_without(v, n, found.at, scratch);
	found.ratio = (v[found.at] - usual) / usual;
	found.behind_ns = (uint64_t)(v[found.at] - usual);
	double spread = spread_without(v, n, found.at, usual, scratch) / usual;
	return found.ratio >= WORTH && found.ratio >= SPREADS * spread ? found : none;
}

/* How long a step takes, of those that say so; 0: nobody does. */
static double step_of(const struct toplist_rank *ranks, size_t n)
{
	double sum = 0;
	size_t known = 0;

	for (size_t i = 0; i < n; i++)
		if (ranks[i].step_mean_ns) {
			sum += (double)ranks[i].step_mean_ns;
			known++;
		}
	return known ? sum / (double)known : 0;
}

static struct toplist_slowest by_waiting(const struct toplist_rank *ranks, size_t n, double *v,
					 double *scratch)
{
	struct toplist_slowest none = {0}, found = {.by = TOPLIST_SLOW_WAITING};
	bool any = false;

	for (size_t i = 0; i < n; i++) {
		if (!ranks[i].interval_ns)
			return none;
		v[i] = (double)ranks[i].comm_ns / (double)ranks[i].interval_ns;
		any = any || ranks[i].comm_ns;
		if (v[i] < v[found.at])
			found.at = i;
	}
	if (!any)
		return none; /* they do not communicate, or nobody looks at it */
	double waits = median_without(v, n, found.at, scratch);
	found.ratio = waits - v[found.at];
	found.behind_ns = (uint64_t)(found.ratio * step_of(ranks, n));
	double spread = spread_without(v, n, found.at, waits, scratch);
	return found.ratio >= WORTH && found.ratio >= SPREADS * spread ? found : none;
}

/* Both are shares of the time: what explains more of it is the reason. Long steps of a rank that
 * does not wait are the simpler one. */
static struct toplist_slowest larger(struct toplist_slowest longer, struct toplist_slowest waited)
{
	if (longer.by == TOPLIST_SLOW_NONE || waited.by == TOPLIST_SLOW_NONE)
		return longer.by == TOPLIST_SLOW_NONE ? waited : longer;
	double needed = longer.ratio * (longer.at == waited.at ? SIMPLER : 1);
	return waited.ratio > needed ? waited : longer;
}

struct toplist_slowest toplist_slowest(const struct toplist_rank *ranks, size_t n)
{
	struct toplist_slowest none = {0};

	if (n < 2)
		return none;
	double *v = xcalloc(2 * n, sizeof(*v));
	struct toplist_slowest found =
		larger(by_steps(ranks, n, v, v + n), by_waiting(ranks, n, v, v + n));
	free(v);
	return found;
}
