/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "report/memory/series.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define FIRST_SHIFT 10 /* a microsecond */

void grid_begin(struct grid *g, uint64_t start_ns)
{
	g->start_ns = start_ns;
	g->shift = FIRST_SHIFT;
	g->begun = true;
}

void grid_halved(struct grid *g)
{
	g->shift++;
	g->buckets = (g->buckets + 1) / 2;
}

static void add_entry(struct series_entry *to, const struct series_entry *from)
{
	to->more += from->more;
	to->less += from->less;
	to->plus += from->plus;
	to->minus += from->minus;
}

/* How many entries are in that bucket or before it. */
static size_t entries_until(const struct series *s, uint32_t bucket)
{
	size_t low = 0, high = s->n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (s->at[middle].bucket <= bucket)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

struct series_entry *series_entry(struct series *s, struct grid *g, uint32_t bucket)
{
	size_t at = s->n;

	if (at && s->at[at - 1].bucket > bucket)
		at = entries_until(s, bucket);
	if (at && s->at[at - 1].bucket == bucket)
		return &s->at[at - 1];
	s->at = xgrow(s->at, &s->cap, s->n + 1, sizeof(*s->at));
	memmove(s->at + at + 1, s->at + at, (s->n - at) * sizeof(*s->at));
	s->n++;
	g->entries++;
	s->at[at] = (struct series_entry){.bucket = bucket};
	if (bucket >= g->buckets)
		g->buckets = bucket + 1;
	return &s->at[at];
}

void series_halve(struct series *s, struct grid *g)
{
	size_t n = 0;

	for (size_t i = 0; i < s->n; i++) {
		struct series_entry e = s->at[i];

		e.bucket /= 2;
		if (n && s->at[n - 1].bucket == e.bucket)
			add_entry(&s->at[n - 1], &e);
		else
			s->at[n++] = e;
	}
	g->entries -= s->n - n;
	s->n = n;
}

void series_merge(struct series *to, struct series *from, struct grid *g)
{
	struct series out = {0};
	size_t i = 0, k = 0;

	out.at = xgrow(NULL, &out.cap, to->n + from->n + 1, sizeof(*out.at));
	while (i < to->n || k < from->n) {
		bool second = i == to->n || (k < from->n && from->at[k].bucket < to->at[i].bucket);
		const struct series_entry *e = second ? &from->at[k++] : &to->at[i++];

		if (out.n && out.at[out.n - 1].bucket == e->bucket)
			add_entry(&out.at[out.n - 1], e);
		else
			out.at[out.n++] = *e;
	}
	g->entries -= to->n + from->n - out.n;
	free(to->at);
	*to = out;
	free(from->at);
	*from = (struct series){0};
}

void series_release(struct series *s)
{
	free(s->at);
	*s = (struct series){0};
}
