/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * How much of the communication is waiting. In each step the rank that comes last waits for nobody:
 * its communication is the transfer and nothing else, or more, if several take turns within the step.
 * What the others have more of, they wait. Only lengths are compared, so clocks need not agree.
 */
#include "activity/steps/job_summary.h"

#include <stdlib.h>

#include "base/mem.h"

/* The place of a step of a row; n: it has none that is whole. *at goes along. */
static size_t find_step(const struct split_rank *r, uint64_t number, size_t *at)
{
	while (*at < r->nsteps && r->steps[*at].number < number)
		++*at;
	if (*at < r->nsteps && r->steps[*at].number == number && r->steps[*at].whole)
		return *at;
	return r->nsteps;
}

struct step_waiting {
	uint64_t comm_ns, least_ns;
	size_t last; /* row */
	size_t n;
};

/* False: a judged row does not have it. */
static bool add_step(const struct split_job *j, uint64_t number, size_t *at,
		     struct step_waiting *out)
{
	for (size_t i = 0; i < j->nrows; i++) {
		const struct split_row *row = &j->rows[i];

		if (!row->judged || !row->device)
			continue;
		size_t step = find_step(row->rank, number, &at[i]);
		if (step == row->rank->nsteps)
			return false;
		uint64_t ns = row->device->steps[step].part_ns[SPLIT_COMM];
		out->comm_ns += ns;
		if (!out->n++ || ns < out->least_ns) {
			out->least_ns = ns;
			out->last = i;
		}
	}
	return out->n > 1;
}

struct split_waiting split_job_waiting(const struct split_job *j)
{
	struct split_waiting w = {0};
	size_t *at = xcalloc(j->nrows + 1, sizeof(*at)),
	       *last = xcalloc(j->nrows + 1, sizeof(*last));
	const struct split_rank *r = NULL;

	for (size_t i = 0; i < j->nrows && !r; i++)
		r = j->rows[i].judged && j->rows[i].device ? j->rows[i].rank : NULL;
	for (size_t i = 0; r && i < r->nsteps; i++) {
		struct step_waiting s = {0};

		if (r->steps[i].number == SPLIT_NO_NUMBER || !r->steps[i].whole ||
		    !add_step(j, r->steps[i].number, at, &s))
			continue;
		w.steps++;
		w.comm_ns += s.comm_ns;
		w.waiting_ns += s.comm_ns - s.least_ns * s.n;
		last[s.last]++;
		if (last[s.last] > w.last_steps) {
			w.last_steps = last[s.last];
			w.last = s.last;
		}
	}
	free(at);
	free(last);
	return w;
}
