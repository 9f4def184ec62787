/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "activity/live/busy.h"

#include <stddef.h>

void busy_tidy(struct busy *b)
{
	spans_tidy(&b->spans);
	if (b->spans.n <= BUSY_SPANS)
		return;
	size_t gone = b->spans.n - BUSY_SPANS / 2;
	b->covered += spans_length_of_first(&b->spans, gone);
	b->floor = b->spans.at[gone - 1].end;
	spans_drop_first(&b->spans, gone);
}

uint64_t busy_take(struct busy *b, uint64_t to)
{
	struct spans *s = &b->spans;
	size_t done = 0;

	busy_tidy(b);
	while (done < s->n && s->at[done].end <= to)
		done++;
	uint64_t covered = b->covered + spans_length_of_first(s, done);
	spans_drop_first(s, done);
	if (s->n && s->at[0].start < to) { /* it goes on */
		covered += to - s->at[0].start;
		s->at[0].start = to;
	}
	b->covered = 0;
	b->floor = to > b->floor ? to : b->floor;
	return covered;
}

void busy_release(struct busy *b)
{
	spans_release(&b->spans);
	*b = (struct busy){0};
}
