/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "activity/steps/spans.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/compare.h"
#include "base/mem.h"

void spans_grow(struct spans *s)
{
	s->at = xgrow(s->at, &s->cap, s->n + 1, sizeof(*s->at));
}

COMPARE_BY(by_start, struct span, start)

/* Adds a span that begins where the last one did, or later. */
static void join_span(struct spans *s, struct span add)
{
	struct span *last = s->n ? &s->at[s->n - 1] : NULL;

	if (last && add.start <= last->end) {
		if (add.end > last->end)
			last->end = add.end;
		return;
	}
	spans_add(s, add.start, add.end);
}

/* The first tidy span that ends at `ns` or later: those before are not touched by what begins
 * there.
 */
static size_t first_reached(const struct spans *s, uint64_t ns)
{
	size_t low = 0, high = s->tidy;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (s->at[mid].end < ns)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/* What is new is sorted; then it is merged, in place, with the tidy ones that it reaches back to.
 */
void spans_tidy(struct spans *s)
{
	size_t n = s->n - s->tidy, sorted = 1, i = 0, k = 0;

	if (!n)
		return;
	struct span *fresh = s->at + s->tidy, *old = NULL;
	while (sorted < n && fresh[sorted - 1].start <= fresh[sorted].start)
		sorted++;
	if (sorted < n)
		qsort(fresh, n, sizeof(*fresh), by_start);
	size_t from = first_reached(s, fresh[0].start), reached = s->tidy - from;
	if (reached) {
		old = xmalloc(reached * sizeof(*old));
		memcpy(old, s->at + from, reached * sizeof(*old));
	}
	struct span *to = s->at + from; /* behind the last one that is in its place */
	while (i < reached || k < n) {
		bool is_old = k == n || (i < reached && old[i].start <= fresh[k].start);
		struct span next = is_old ? old[i++] : fresh[k++];

		if (to == s->at + from || next.start > to[-1].end)
			*to++ = next;
		else if (next.end > to[-1].end)
			to[-1].end = next.end;
	}
	free(old);
	s->n = s->tidy = (size_t)(to - s->at);
}

void spans_union(const struct spans *a, const struct spans *b, struct spans *out)
{
	size_t i = 0, k = 0;

	out->n = 0;
	while (i < a->n || k < b->n) {
		if (k == b->n || (i < a->n && a->at[i].start <= b->at[k].start))
			join_span(out, a->at[i++]);
		else
			join_span(out, b->at[k++]);
	}
	out->tidy = out->n;
}

void spans_minus(const struct spans *a, const struct spans *b, struct spans *out)
{
	size_t k = 0;

	out->n = 0;
	for (size_t i = 0; i < a->n; i++) {
		uint64_t from = a->at[i].start, end = a->at[i].end;

		while (k < b->n && b->at[k].end <= from)
			k++;
		/* The last one that is compared may reach into the next span of a. */
		for (size_t j = k; j < b->n && b->at[j].start < end; j++) {
			spans_add(out, from, b->at[j].start);
			from = b->at[j].end;
			k = j;
		}
		spans_add(out, from, end);
	}
	out->tidy = out->n;
}

uint64_t spans_length_of_first(const struct spans *s, size_t n)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += s->at[i].end - s->at[i].start;
	return sum;
}

uint64_t spans_length(const struct spans *s)
{
	return spans_length_of_first(s, s->n);
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

/* All are tidy. */
void spans_drop_first(struct spans *s, size_t n)
{
	s->n = s->tidy -= n;
	if (n && s->n)
		memmove(s->at, s->at + n, s->n * sizeof(*s->at));
}
