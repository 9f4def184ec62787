/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "base/numbers/clock_fit.h"

#include <math.h>
#include <stdlib.h>

#include "base/mem.h"

#define TURNS 80 /* of a search that leaves 0.62 of its range each time */
#define GOLDEN 0.6180339887498949

/* A limit in seconds and nanoseconds, counted from the first one. */
struct limit {
	double at, value;
};

struct limits {
	struct limit *low, *high;
	size_t nlow, nhigh;
	double widen; /* spans are this much wider on each side */
};

/* All lines of a slope: their values at time 0 are between these. */
static double lowest(const struct limits *s, double slope)
{
	double most = -INFINITY;

	for (size_t i = 0; i < s->nlow; i++)
		most = fmax(most, s->low[i].value - slope * s->low[i].at);
	return most - s->widen;
}

static double highest(const struct limits *s, double slope)
{
	double least = INFINITY;

	for (size_t i = 0; i < s->nhigh; i++)
		least = fmin(least, s->high[i].value - slope * s->high[i].at);
	return least + s->widen;
}

/* The three things that are searched for the largest value: all are concave in the slope. */
enum goal { ROOM, TOP, BOTTOM };

static double measure(const struct limits *s, enum goal goal, double at, double slope)
{
	if (goal == ROOM)
		return highest(s, slope) - lowest(s, slope);
	return goal == TOP ? highest(s, slope) + slope * at : -(lowest(s, slope) + slope * at);
}

/* The slope in between where it is largest. */
static double find_largest(const struct limits *s, enum goal goal, double at, double from,
			   double to)
{
	double a = to - GOLDEN * (to - from), b = from + GOLDEN * (to - from);
	double va = measure(s, goal, at, a), vb = measure(s, goal, at, b);

	for (unsigned i = 0; i < TURNS; i++) {
		if (va >= vb) {
			to = b;
			b = a;
			vb = va;
			a = to - GOLDEN * (to - from);
			va = measure(s, goal, at, a);
		} else {
			from = a;
			a = b;
			va = vb;
			b = from + GOLDEN * (to - from);
			vb = measure(s, goal, at, b);
		}
	}
	return (from + to) / 2;
}

/* The steepest slope towards `outer` that still has a line; `inner` has one. */
static double find_edge(const struct limits *s, double inner, double outer)
{
	if (measure(s, ROOM, 0, outer) >= 0)
		return outer;
	for (unsigned i = 0; i < TURNS; i++) {
		double middle = (inner + outer) / 2;

		if (measure(s, ROOM, 0, middle) >= 0)
			inner = middle;
		else
			outer = middle;
	}
	return inner;
}

/* What all lines together have at a time. */
static void find_range(const struct limits *s, const double slopes[2], double at, double *low,
		       double *high)
{
	double top = find_largest(s, TOP, at, slopes[0], slopes[1]);
	double bottom = find_largest(s, BOTTOM, at, slopes[0], slopes[1]);

	*high = measure(s, TOP, at, top);
	*low = -measure(s, BOTTOM, at, bottom);
	for (unsigned i = 0; i < 2; i++) { /* the search does not reach its ends */
		*high = fmax(*high, measure(s, TOP, at, slopes[i]));
		*low = fmin(*low, -measure(s, BOTTOM, at, slopes[i]));
	}
}

static void add_limits(struct limits *s, const struct clock_span *spans, size_t n, int64_t zero_ns,
		       int64_t base)
{
	for (size_t i = 0; i < n; i++) {
		double at = (double)(spans[i].at_ns - zero_ns) / 1e9;

		if (spans[i].low_ns != CLOCK_OPEN_LOW)
			s->low[s->nlow++] = (struct limit){at, (double)(spans[i].low_ns - base)};
		if (spans[i].high_ns != CLOCK_OPEN_HIGH)
			s->high[s->nhigh++] = (struct limit){at, (double)(spans[i].high_ns - base)};
	}
}

static void fit_limits(struct limits *s, double to, int64_t base, struct clock_line *out)
{
	const double steepest = CLOCK_DRIFT_MAX * 1e9; /* nanoseconds per second */
	double best = find_largest(s, ROOM, 0, -steepest, steepest), slopes[2], low[2], high[2];
	double room = measure(s, ROOM, 0, best);

	if (room <
	    0) { /* the truth is as far off on the other side of a span as the line on this */
		out->bent_ns = (int64_t)ceil(-room / 2);
		s->widen = -room * 1.5;
	}
	slopes[0] = find_edge(s, best, -steepest);
	slopes[1] = find_edge(s, best, steepest);
	find_range(s, slopes, 0, &low[0], &high[0]);
	find_range(s, slopes, to, &low[1], &high[1]);
	double start = (low[0] + high[0]) / 2, end = (low[1] + high[1]) / 2;
	out->offset_ns = base + (int64_t)llround(start);
	out->drift = to > 0 ? (end - start) / to / 1e9 : 0;
	out->bound_ns =
		(int64_t)ceil(fmax(high[0] - low[0], high[1] - low[1]) / 2) + 1 + out->bent_ns;
}

bool clock_fit(const struct clock_span *spans, size_t n, int64_t from_ns, int64_t to_ns,
	       struct clock_line *out)
{
	struct limits s = {.low = xcalloc(n + 1, sizeof(*s.low)),
			   .high = xcalloc(n + 1, sizeof(*s.high))};
	int64_t base = 0;

	for (size_t i = 0; i < n && !base; i++)
		base = spans[i].low_ns != CLOCK_OPEN_LOW ? spans[i].low_ns : spans[i].high_ns;
	add_limits(&s, spans, n, from_ns, base);
	bool enough = s.nlow && s.nhigh;
	if (enough) {
		*out = (struct clock_line){.from_ns = from_ns, .to_ns = to_ns};
		fit_limits(&s, (double)(to_ns - from_ns) / 1e9, base, out);
	}
	free(s.low);
	free(s.high);
	return enough;
}

int64_t clock_line_at(const struct clock_line *l, int64_t at_ns)
{
	return l->offset_ns + (int64_t)llround(l->drift * (double)(at_ns - l->from_ns));
}
