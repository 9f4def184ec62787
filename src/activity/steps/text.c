/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "activity/steps/idle_text.h"
#include "activity/steps/job_summary.h"
#include "activity/steps/tables.h"
#include "base/text/number_words.h"
#include "base/text/printable.h"
#include "unwind/symbols/demangle.h"

#include <stdio.h>
#include <stdlib.h>
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
static uint32_t expected_ranks(const struct split_job *j)
{
	/* In the order of ranks: a process that does not know its own is the last. */
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
	uint32_t all = expected_ranks(j);

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

static void describe_others(const struct split_job *j, struct buf *out)
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

/* Who is missing, and where the others stand; nothing if nobody is. */
static void add_missing(const struct split_job *j, struct buf *out)
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
	describe_others(j, out);
	buf_add_str(out, ".\n");
}

/* The answer in words: what matters first, then tables. */

#define TIME_BYTES 32
#define TIME(ns) time_text(ns, (char[TIME_BYTES]){0})

static const char *time_text(uint64_t ns, char *out)
{
	struct buf words = {0};

	words_time(&words, ns);
	snprintf(out, TIME_BYTES, "%s", buf_str(&words));
	buf_release(&words);
	return out;
}

static void capitalize_at(struct buf *out, size_t at)
{
	if (out->len > at && out->data[at] >= 'a' && out->data[at] <= 'z')
		out->data[at] = (char)(out->data[at] - 'a' + 'A');
}

/* --- the words --- */

static void describe_steps(const struct split_job *j, struct buf *out)
{
	const struct split_rank *r = split_longest(j);
	bool numbered = r->nsteps && r->steps[0].number != SPLIT_NO_NUMBER;
	struct step_range all = numbered ? split_step_range(j) : (struct step_range){.same = true};

	if (!r->nsteps)
		buf_add_str(out, "No step");
	else if (!numbered)
		buf_add_str(out, "The time of the trace");
	else if (all.first == all.last)
		buf_addf(out, "Step %llu", (unsigned long long)all.first);
	else
		buf_addf(out, "Steps %llu to %llu", (unsigned long long)all.first,
			 (unsigned long long)all.last);
	buf_add_str(out, " of ");
	words_of(out, j->nranks, "rank");
	if (!all.same)
		buf_add_str(out, ", of which some traced only a part of these steps");
}

static void describe_split(const struct split_job *j, struct buf *out)
{
	const struct split_times *m = &j->mean;

	describe_steps(j, out);
	if (!m->step_ns) {
		buf_add_str(out, ": no step was traced from its beginning to its end.\n");
		return;
	}
	buf_addf(out,
		 ": a step takes %s: %.1f %% compute, %.1f %% communication that no compute hides, "
		 "%.1f %% copies, %.1f %% idle.\n",
		 TIME(m->step_ns), percent_of(m->part_ns[SPLIT_COMPUTE], m->step_ns),
		 percent_of(m->part_ns[SPLIT_COMM], m->step_ns),
		 percent_of(m->part_ns[SPLIT_COPY], m->step_ns),
		 percent_of(m->part_ns[SPLIT_IDLE], m->step_ns));
	if (m->comm_ns)
		buf_addf(out,
			 "Communication takes %s of a step; %.1f %% of it overlaps with compute.\n",
			 TIME(m->comm_ns), split_overlap(m));
}

#define WAITING_SAID 5 /* percent of the communication, and of a step */

static void describe_waiting(const struct split_job *j, struct buf *out)
{
	struct split_waiting w = split_job_waiting(j);
	double share = percent_of(w.waiting_ns, w.comm_ns);

	if (!w.comm_ns || j->slowest.verdict < SPLIT_EVEN)
		return;
	if (share < WAITING_SAID ||
	    percent_of(j->mean.part_ns[SPLIT_COMM], j->mean.step_ns) < WAITING_SAID)
		return;
	buf_addf(out,
		 "Of the communication that nothing hides, %.1f %% is waiting for the rank that "
		 "comes last in a step",
		 share);
	if (w.last_steps * 2 > w.steps) {
		buf_add_str(out, ": ");
		split_row_label(&j->rows[w.last], out);
		buf_addf(out, " in %llu of %llu", (unsigned long long)w.last_steps,
			 (unsigned long long)w.steps);
	} else {
		buf_add_str(out, "; ranks take turns");
	}
	buf_addf(out, "; at most %.1f %% is transfer.\n", 100 - share);
}

static void describe_why(const struct split_job *j, struct buf *out)
{
	const struct split_slowest *s = &j->slowest;
	static const char *const words[SPLIT_PARTS] = {
		[SPLIT_COMPUTE] = "it computes",
		[SPLIT_COMM] = "it communicates",
		[SPLIT_COPY] = "it copies",
		[SPLIT_IDLE] = "its device has nothing to do for",
	};

	buf_addf(out, "The reason: %s %s of a step, the others %s", words[s->why], TIME(s->why_ns),
		 TIME(s->why_others_ns));
	if (s->kernel) {
		buf_add_str(out, "; most of the difference is in ");
		demangle_add_name(out, s->kernel, NAME_COLUMNS);
		buf_addf(out, " (%s, others %s)", TIME(s->kernel_ns), TIME(s->kernel_others_ns));
	}
	if (s->why == SPLIT_IDLE)
		buf_add_str(out, ": its host does not launch in time");
	buf_add_str(out, ".\n");
	split_idle_describe_slowest(j, out);
}

static void describe_slowest(const struct split_job *j, struct buf *out)
{
	const struct split_slowest *s = &j->slowest;
	size_t at = out->len;

	if (s->verdict < SPLIT_EVEN)
		return;
	if (s->common) {
		buf_add_str(out, "in the ");
		words_of(out, s->common, "whole step");
		buf_add_str(out, " that all of them have, ");
	}
	if (s->verdict == SPLIT_EVEN) {
		buf_add_str(out, "no rank is notably slower than the others.\n");
		capitalize_at(out, at);
		return;
	}
	split_row_label(&j->rows[s->row], out);
	capitalize_at(out, at);
	buf_add_str(out, " is the slowest: ");
	if (s->verdict == SPLIT_SLOW_STEPS)
		buf_addf(out, "its steps take %s, those", TIME(s->ns));
	else
		buf_addf(out,
			 "the others wait for it in communication. It spends %s of a step outside "
			 "of "
			 "that,",
			 TIME(s->ns));
	buf_addf(out, " %sthe others %s (%s, %.1f %% of a step more).\n",
		 s->verdict == SPLIT_SLOW_STEPS ? "of " : "", TIME(s->others_ns),
		 TIME(s->ns - s->others_ns), percent_of(s->ns - s->others_ns, j->mean.step_ns));
	describe_why(j, out);
}

static void add_lines(struct buf *out, const char *text)
{
	while (text && *text) {
		size_t len = strcspn(text, "\n");

		text_add_printable(out, text, len);
		buf_add_char(out, '\n');
		text += len + (text[len] == '\n');
	}
}

/* "Rank 3", at the beginning of a line. */
static void describe_rank(const struct split_rank *r, struct buf *out)
{
	struct split_row row = {.rank = r, .device = r->devices};
	size_t at = out->len;

	split_row_label(&row, out);
	capitalize_at(out, at);
}

static bool is_judged(const struct split_job *j, const struct split_rank *r)
{
	for (size_t i = 0; i < j->nrows; i++)
		if (j->rows[i].rank == r && j->rows[i].judged)
			return true;
	return false;
}

#define INCOMPLETE_SHOWN 8

/* Before the sentences below, which is not about these, or only about a part of their steps. */
static void describe_incomplete(const struct split_job *j, struct buf *out)
{
	size_t n = 0;

	for (size_t i = 0; i < j->nranks; i++) {
		const struct split_rank *r = j->ranks[i];

		if (split_rank_is_complete(r) || n++ >= INCOMPLETE_SHOWN)
			continue;
		describe_rank(r, out);
		buf_add_str(out, ": ");
		demangle_add_name(
			out, *r->note ? r->note : "its trace does not go to the end of its steps",
			400);
		buf_add_str(out, j->nranks > 1 && !is_judged(j, r)
					 ? ". It is not compared with the others.\n"
					 : ".\n");
	}
	if (n > INCOMPLETE_SHOWN)
		buf_addf(out, "So are the traces of %zu more: %zu of %zu are not complete.\n",
			 n - INCOMPLETE_SHOWN, n, j->nranks);
}

static void describe_notes(const struct split_job *j, struct buf *out)
{
	uint64_t lost = 0, left_out = 0, bare = 0;

	for (size_t i = 0; i < j->nranks; i++) {
		const struct split_rank *r = j->ranks[i];

		lost += r->lost;
		left_out += r->left_out;
		bare += !r->ndevices;
		if (!*r->note || !split_rank_is_complete(r))
			continue;
		describe_rank(r, out);
		buf_add_str(out, ": ");
		demangle_add_name(out, r->note, 400);
		buf_add_char(out, '\n');
	}
	if (lost) {
		words_of(out, lost, "record");
		buf_add_str(out,
			    " could not be recorded and are missing: times are lower bounds.\n");
	}
	if (left_out) {
		words_of(out, left_out, "record");
		buf_add_str(out, " had no place in the trace: ask for fewer steps.\n");
	}
	if (bare) {
		words_of(out, bare, "rank");
		buf_add_str(out, " reported no work of a device");
		buf_add_str(out, bare < j->nranks ? ", and cannot be compared with the others.\n"
						  : ".\n");
	}
	add_lines(out, j->notes);
}

static void describe_answer(const struct split_job *j, struct buf *out)
{
	add_missing(j, out);
	describe_incomplete(j, out);
	describe_split(j, out);
	describe_waiting(j, out);
	split_idle_describe(j, out);
	describe_slowest(j, out);
	describe_notes(j, out);
}

static void describe_job(const struct split_job *j, size_t i, struct buf *out)
{
	const struct split_rank *r = j->jobs[i].ranks[0];

	buf_addf(out, "\nJob %zu of %zu", i + 1, j->njobs);
	if (*r->job || *r->parent) {
		buf_add_str(out, *r->job ? " (" : " (started by ");
		demangle_add_name(out, *r->job ? r->job : r->parent, NAME_COLUMNS);
		buf_add_char(out, ')');
	}
	buf_add_char(out, '\n');
}

/* All answers come first. */
static void describe_jobs(const struct split_job *j, unsigned top, struct buf *out)
{
	buf_addf(out, "These are %zu jobs in one trace. Each is judged by itself.\n", j->njobs);
	add_lines(out, j->notes);
	for (size_t i = 0; i < j->njobs; i++) {
		describe_job(j, i, out);
		describe_answer(&j->jobs[i], out);
	}
	for (size_t i = 0; i < j->njobs; i++) {
		describe_job(j, i, out);
		split_job_tables(&j->jobs[i], top, out);
	}
}

void split_job_text(const struct split_job *j, unsigned top, struct buf *out)
{
	bool several = j->slowest.verdict == SPLIT_SEVERAL_JOBS;

	if (!j->nranks) {
		buf_add_str(out, "There is no trace of a rank.\n");
		return;
	}
	if (several && j->njobs) {
		describe_jobs(j, top, out);
		return;
	}
	if (several)
		buf_add_str(out,
			    "Ranks come more than once: these are several jobs, which cannot "
			    "be distinguished here. Nothing is compared; trace one of them with "
			    "--pids or --job-id.\n");
	describe_answer(j, out);
	split_job_tables(j, top, out);
}
