/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "activity/live/busy.h"

#include "base/mem.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static int by_from(const void *a, const void *b)
{
	const struct busy_span *x = a, *y = b;

	return (x->from > y->from) - (x->from < y->from);
}

static void sort_pending(struct busy *b)
{
	size_t i = 1;

	while (i < b->npending && b->pending[i - 1].from <= b->pending[i].from)
		i++;
	if (i < b->npending)
		qsort(b->pending, b->npending, sizeof(*b->pending), by_from);
}

/* The first span that ends at or after ns: those before are not touched by what begins there. */
static size_t first_after(const struct busy *b, uint64_t ns)
{
	size_t lo = 0, hi = b->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		if (b->spans[mid].to < ns)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static void append(struct busy *b, struct busy_span s)
{
	struct busy_span *last = b->n ? &b->spans[b->n - 1] : NULL;

	if (last && s.from <= last->to) {
		if (s.to > last->to)
			last->to = s.to;
		return;
	}
	b->spans[b->n++] = s;
}

static void drop_first(struct busy *b, size_t n)
{
	b->n -= n;
	if (n && b->n)
		memmove(b->spans, b->spans + n, b->n * sizeof(*b->spans));
}

/* Sums up the older half when there are too many. */
static void sum_up_old(struct busy *b)
{
	if (b->n <= BUSY_SPANS)
		return;
	size_t gone = b->n - BUSY_SPANS / 2;
	for (size_t i = 0; i < gone; i++)
		b->covered += b->spans[i].to - b->spans[i].from;
	b->floor = b->spans[gone - 1].to;
	drop_first(b, gone);
}

/* The end of the list is taken off and put back, merged with what has come. */
void busy_merge(struct busy *b)
{
	if (!b->pending)
		b->pending = xmalloc(BUSY_PENDING * sizeof(*b->pending));
	if (!b->npending)
		return;
	sort_pending(b);
	size_t at = first_after(b, b->pending[0].from), tail = b->n - at, i = 0, k = 0;
	struct busy_span *old = NULL;
	if (tail) {
		old = xmalloc(tail * sizeof(*old));
		memcpy(old, b->spans + at, tail * sizeof(*old));
	}
	b->spans = xgrow(b->spans, &b->cap, b->n + b->npending, sizeof(*b->spans));
	b->n = at;
	while (i < tail || k < b->npending) {
		bool is_old = k == b->npending || (i < tail && old[i].from <= b->pending[k].from);
		struct busy_span s = is_old ? old[i++] : b->pending[k++];

		if (s.from < b->floor)
			s.from = b->floor;
		if (s.to <= s.from)
			continue;
		append(b, s);
	}
	free(old);
	b->npending = 0;
	sum_up_old(b);
}

uint64_t busy_take(struct busy *b, uint64_t to)
{
	size_t done = 0;

	busy_merge(b);
	uint64_t covered = b->covered;
	for (; done < b->n && b->spans[done].to <= to; done++)
		covered += b->spans[done].to - b->spans[done].from;
	drop_first(b, done);
	if (b->n && b->spans[0].from < to) { /* it goes on */
		covered += to - b->spans[0].from;
		b->spans[0].from = to;
	}
	b->covered = 0;
	if (b->floor < to)
		b->floor = to;
	return covered;
}

void busy_release(struct busy *b)
{
	free(b->spans);
	free(b->pending);
	*b = (struct busy){0};
}
