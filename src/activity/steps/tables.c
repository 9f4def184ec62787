/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The tables of a job's summary: its ranks, its steps, its kernels. */
#include "activity/steps/tables.h"

#include <string.h>

#include "activity/steps/idle_text.h"
#include "base/text/number_words.h"
#include "unwind/symbols/demangle.h"

#define NAME_COLUMNS 60

static double ms(uint64_t ns)
{
	return (double)ns / 1e6;
}

const struct split_rank *split_longest(const struct split_job *j)
{
	const struct split_rank *r = j->ranks[0];

	for (size_t i = 1; i < j->nranks; i++)
		if (j->ranks[i]->nsteps > r->nsteps)
			r = j->ranks[i];
	return r;
}

struct step_range split_step_range(const struct split_job *j)
{
	const struct split_rank *r = split_longest(j);
	struct step_range all = {r->steps[0].number, r->steps[r->nsteps - 1].number, true};

	for (size_t i = 0; i < j->nranks; i++) {
		r = j->ranks[i];
		if (!r->nsteps || r->steps[0].number == SPLIT_NO_NUMBER)
			continue;
		uint64_t first = r->steps[0].number, last = r->steps[r->nsteps - 1].number;
		if ((first != all.first || last != all.last) && split_rank_is_complete(r))
			all.same = false;
		all.first = first < all.first ? first : all.first;
		all.last = last > all.last ? last : all.last;
	}
	return all;
}

static void add_overlap(struct buf *out, const struct split_times *t)
{
	if (t->comm_ns)
		buf_addf(out, " %8.1f %%", split_overlap(t));
	else
		buf_addf(out, " %10s", "-");
}

static void add_times(struct buf *out, const struct split_times *t)
{
	buf_addf(out, " %11.3f", ms(t->step_ns));
	for (unsigned p = 0; p < SPLIT_PARTS; p++)
		buf_addf(out, " %11.3f", ms(t->part_ns[p]));
	add_overlap(out, t);
	buf_add_char(out, '\n');
}

#define TIMES_HEAD "     step ms     compute       comm.        copy        idle      hidden\n"

static void add_rest(struct buf *out, size_t shown, size_t all)
{
	if (shown < all)
		buf_addf(out, "... and %zu more\n", all - shown);
}

static bool is_of_several_hosts(const struct split_job *j)
{
	for (size_t i = 1; i < j->nranks; i++)
		if (strcmp(j->ranks[i]->host, j->ranks[0]->host))
			return true;
	return false;
}

static void table_ranks(const struct split_job *j, unsigned top, struct buf *out)
{
	size_t n = j->nrows < top ? j->nrows : top;
	bool hosts = is_of_several_hosts(j);

	buf_add_str(out, "\nRanks (averages per step; comm.: communication that does not overlap "
			 "with compute; hidden: share of the communication that does)\n"
			 "  rank        pid device steps" TIMES_HEAD);
	if (hosts) {
		out->len--;
		buf_add_str(out, "  host\n");
	}
	for (size_t i = 0; i < n; i++) {
		const struct split_row *row = &j->rows[i];

		buf_addf(out, row->rank->rank >= 0 ? "%6d" : "     ?", row->rank->rank);
		buf_addf(out, " %10u", row->rank->pid);
		buf_addf(out, row->device ? " %6u" : "      -",
			 row->device ? row->device->device : 0);
		buf_addf(out, " %5u", row->steps);
		add_times(out, &row->mean);
		if (!hosts)
			continue;
		out->len--;
		buf_add_str(out, "  ");
		demangle_add_name(out, row->rank->host, NAME_COLUMNS);
		buf_add_char(out, '\n');
	}
	add_rest(out, n, j->nrows);
}

/* Mean over the rows that have this step. */
static bool step_mean(const struct split_job *j, uint64_t number, struct split_times *out)
{
	uint64_t n = 0;

	*out = (struct split_times){0};
	for (size_t i = 0; i < j->nrows; i++) {
		const struct split_row *row = &j->rows[i];

		for (size_t k = 0; k < row->rank->nsteps; k++) {
			const struct split_step *s = &row->rank->steps[k];
			uint64_t ns = s->end_ns - s->start_ns;
			struct split_times bare = {.step_ns = ns, .part_ns = {[SPLIT_IDLE] = ns}};

			if (s->number != number || !s->whole)
				continue;
			split_times_add(out, row->device ? &row->device->steps[k] : &bare);
			n++;
		}
	}
	if (!n)
		return false;
	out->step_ns /= n;
	out->comm_ns /= n;
	for (unsigned p = 0; p < SPLIT_PARTS; p++)
		out->part_ns[p] /= n;
	return true;
}

static void table_steps(const struct split_job *j, unsigned top, struct buf *out)
{
	const struct split_rank *r = split_longest(j);
	uint64_t shown = 0, left = 0;

	if (r->nsteps && r->steps[0].number == SPLIT_NO_NUMBER)
		return;
	struct step_range all = r->nsteps ? split_step_range(j) : (struct step_range){1, 0, true};
	buf_addf(out, "\nSteps (means of %s)\n          step" TIMES_HEAD,
		 all.same ? "all ranks" : "the ranks that traced them");
	/* numbers are somebody else's: two ranks may be far apart */
	for (uint64_t number = all.first; number <= all.last && shown < top; number++) {
		struct split_times t;

		shown++;
		if (!step_mean(j, number, &t))
			continue;
		buf_addf(out, "%14llu", (unsigned long long)number);
		add_times(out, &t);
	}
	left = all.last + 1 - all.first;
	add_rest(out, shown, left);
}

static void table_kernels(const struct split_job *j, unsigned top, struct buf *out)
{
	size_t n = j->nsums < top ? j->nsums : top;

	if (!j->nsums)
		return;
	buf_add_str(out, "\nWhat took the time of the devices (all ranks; p99: the highest of a "
			 "rank)\n   share       calls    total ms     mean us      p99 us  part"
			 "           name\n");
	for (size_t i = 0; i < n; i++) {
		const struct split_sum *s = &j->sums[i];

		buf_addf(out, "%6.1f %% %11llu %11.3f %11.1f %11.1f  %-14s ",
			 percent_of(s->total_ns, j->busy_ns), (unsigned long long)s->calls,
			 ms(s->total_ns), (double)s->total_ns / 1e3 / (double)s->calls,
			 (double)s->p99_ns / 1e3, split_part_name(s->part));
		demangle_add_name(out, s->name, 2 * NAME_COLUMNS);
		buf_add_char(out, '\n');
	}
	add_rest(out, n, j->nsums);
}

void split_job_tables(const struct split_job *j, unsigned top, struct buf *out)
{
	table_ranks(j, top, out);
	split_idle_table(j, top, out);
	table_steps(j, top, out);
	table_kernels(j, top, out);
}
