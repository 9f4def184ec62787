/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "activity/steps/missing.h"
#include "unwind/symbols/demangle.h"

#include <string.h>

#define GAPS_SHOWN 8
#define NAME_COLUMNS 60

/* How many ranks the job has, if all who say so agree; 0: not known. */
static uint32_t world_of(const struct split_job *j)
{
	uint32_t world = 0;

	for (size_t i = 0; i < j->nranks; i++) {
		uint32_t own = j->ranks[i]->world;

		if (own && world && own != world)
			return 0;
		world = own ? own : world;
	}
	return (uint32_t)j->ranks[j->nranks - 1]->rank < world ? world : 0;
}

/* Ranks below this one should be there; 0: that cannot be known. */
static uint32_t expected(const struct split_job *j)
{
	/* In the order of ranks: whoever does not know its own is the last. */
	int32_t highest = j->nranks ? j->ranks[j->nranks - 1]->rank : -1;

	if (!j->gathered || highest < 0 || j->slowest.verdict == SPLIT_SEVERAL_JOBS)
		return 0;
	for (size_t i = 0; i < j->nranks; i++)
		if (j->ranks[i]->chosen)
			return 0;
	uint32_t world = world_of(j);
	if (!world && j->nranks > 1)
		world = (uint32_t)highest + 1;
	return world;
}

bool split_gap_next(const struct split_job *j, struct split_gap *gap)
{
	uint32_t all = expected(j);

	while (gap->to < all) {
		bool is_end = gap->at == j->nranks;
		uint32_t next = is_end ? all : (uint32_t)j->ranks[gap->at++]->rank;

		gap->from = gap->to;
		gap->to = is_end ? all : next + 1;
		if (next > gap->from) {
			/* The rank that is there is not in it. */
			gap->to = next;
			gap->at -= !is_end;
			return true;
		}
	}
	return false;
}

static uint64_t count_missing(const struct split_job *j, size_t *out_gaps)
{
	struct split_gap gap = {0};
	uint64_t n = 0;

	for (*out_gaps = 0; split_gap_next(j, &gap); ++*out_gaps)
		n += gap.to - gap.from;
	return n;
}

/* "2", "1, 3 to 5 and 7" */
static void add_ranks(const struct split_job *j, size_t gaps, struct buf *out)
{
	struct split_gap gap = {0};

	for (size_t i = 0; i < GAPS_SHOWN && split_gap_next(j, &gap); i++) {
		if (i)
			buf_add_str(out, i + 1 == gaps ? " and " : ", ");
		buf_addf(out, "%u", gap.from);
		if (gap.to - gap.from > 1)
			buf_addf(out, " to %u", gap.to - 1);
	}
	if (gaps > GAPS_SHOWN)
		buf_add_str(out, " and others");
}

/* --- where the others stand --- */

struct stand {
	size_t n; /* that were ended by request */
	uint64_t first, last; /* steps in which they were */
	uint64_t least, most; /* launches that had not run */
	const struct split_rank *longest; /* whose launch waits longest */
};

static struct stand stand_of(const struct split_job *j)
{
	struct stand s = {.first = UINT64_MAX, .least = UINT64_MAX};

	for (size_t i = 0; i < j->nranks; i++) {
		const struct split_rank *r = j->ranks[i];

		if (!r->ended || !r->nsteps || r->steps[r->nsteps - 1].number == SPLIT_NO_NUMBER)
			continue;
		uint64_t step = r->steps[r->nsteps - 1].number;
		s.n++;
		s.first = step < s.first ? step : s.first;
		s.last = step > s.last ? step : s.last;
		s.least = r->waiting < s.least ? r->waiting : s.least;
		s.most = r->waiting > s.most ? r->waiting : s.most;
		if (*r->waiting_for && (!s.longest || r->waiting_ns < s.longest->waiting_ns))
			s.longest = r;
	}
	return s;
}

static void add_launches(const struct stand *s, struct buf *out)
{
	if (!s->most)
		return;
	buf_add_str(out, " with ");
	if (!s->least)
		buf_add_str(out, "up to ");
	else if (s->least < s->most)
		buf_addf(out, "%llu to ", (unsigned long long)s->least);
	buf_addf(out, "%llu launch%s that had not run", (unsigned long long)s->most,
		 s->most == 1 ? "" : "es");
	if (!s->longest)
		return;
	buf_add_str(out, ", first ");
	demangle_add_name(out, s->longest->waiting_for, NAME_COLUMNS);
}

static void say_stand(const struct split_job *j, struct buf *out)
{
	struct stand s = stand_of(j);

	if (!s.n)
		return;
	if (s.n == j->nranks)
		buf_addf(out, "; the other%s", s.n == 1 ? " stands" : "s stand");
	else
		buf_addf(out, "; %zu of the others stand", s.n);
	if (s.first == s.last)
		buf_addf(out, " in step %llu", (unsigned long long)s.last);
	else
		buf_addf(out, " in steps %llu to %llu", (unsigned long long)s.first,
			 (unsigned long long)s.last);
	add_launches(&s, out);
}

void split_missing_say(const struct split_job *j, struct buf *out)
{
	size_t gaps;
	uint64_t n = count_missing(j, &gaps);

	if (!n)
		return;
	buf_add_str(out, n == 1 ? "Rank " : "Ranks ");
	add_ranks(j, gaps, out);
	uint32_t world = world_of(j);
	if (world)
		buf_addf(out, " of %u", world);
	buf_add_str(out, n == 1 ? " has left no trace here" : " have left no trace here");
	say_stand(j, out);
	buf_add_str(out, ".\n");
}
