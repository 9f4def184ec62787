/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "activity/steps/spans.h"

#include <stdlib.h>

#include "base/mem.h"

static struct span *push(struct spans *s, uint64_t start, uint64_t end)
{
	s->at = xgrow(s->at, &s->cap, s->n + 1, sizeof(*s->at));
	s->at[s->n] = (struct span){start, end};
	return &s->at[s->n++];
}

void spans_add(struct spans *s, uint64_t start, uint64_t end)
{
	if (start < end)
		push(s, start, end);
}

static int by_start(const void *a, const void *b)
{
	const struct span *x = a, *y = b;

	return x->start < y->start ? -1 : x->start > y->start;
}

/* Adds a span that begins where the last one did, or later. */
static void join(struct spans *s, struct span add)
{
	struct span *last = s->n ? &s->at[s->n - 1] : NULL;

	if (last && add.start <= last->end) {
		if (add.end > last->end)
			last->end = add.end;
		return;
	}
	push(s, add.start, add.end);
}

void spans_tidy(struct spans *s)
{
	size_t n = s->n, i = 1;

	while (i < n && s->at[i - 1].start <= s->at[i].start)
		i++;
	if (i < n)
		qsort(s->at, n, sizeof(*s->at), by_start);
	/* In place: what is joined lies before what is looked at. */
	s->n = 0;
	for (i = 0; i < n; i++)
		join(s, s->at[i]);
}

void spans_union(const struct spans *a, const struct spans *b, struct spans *out)
{
	size_t i = 0, k = 0;

	out->n = 0;
	while (i < a->n || k < b->n) {
		if (k == b->n || (i < a->n && a->at[i].start <= b->at[k].start))
			join(out, a->at[i++]);
		else
			join(out, b->at[k++]);
	}
}

void spans_minus(const struct spans *a, const struct spans *b, struct spans *out)
{
	size_t k = 0;

	out->n = 0;
	for (size_t i = 0; i < a->n; i++) {
		uint64_t from = a->at[i].start, end = a->at[i].end;

		while (k < b->n && b->at[k].end <= from)
			k++;
		/* The last one that is looked at may reach into the next span of a. */
		for (size_t j = k; j < b->n && b->at[j].start < end; j++) {
			spans_add(out, from, b->at[j].start);
			from = b->at[j].end;
			k = j;
		}
		spans_add(out, from, end);
	}
}

uint64_t spans_length(const struct spans *s)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < s->n; i++)
		sum += s->at[i].end - s->at[i].start;
	return sum;
}

uint64_t spans_within(const struct spans *s, uint64_t from, uint64_t to, size_t *at)
{
	uint64_t sum = 0;
	size_t i = *at;

	while (i < s->n && s->at[i].end <= from)
		i++;
	for (*at = i; i < s->n && s->at[i].start < to; i++) {
		uint64_t start = s->at[i].start > from ? s->at[i].start : from;
		uint64_t end = s->at[i].end < to ? s->at[i].end : to;

		if (start < end)
			sum += end - start;
	}
	return sum;
}

void spans_release(struct spans *s)
{
	free(s->at);
	*s = (struct spans){0};
}
