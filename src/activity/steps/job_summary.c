/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "activity/steps/job_summary.h"

#include "base/compare.h"
#include "base/containers/hmap.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define NOTABLE_PERCENT 2 /* differences of less are the noise of clocks and machines */
#define SPREADS 2 /* times the usual deviation of the others: less is noise, too */

void split_job_add(struct split_job *j, struct split_rank *r)
{
	*XPUSH(j->ranks, j->nranks, j->cap) = r;
}

void split_job_note(struct split_job *j, const char *line)
{
	char *notes = j->notes ? xasprintf("%s%s\n", j->notes, line) : xasprintf("%s\n", line);

	free(j->notes);
	j->notes = notes;
}

void split_row_label(const struct split_row *row, struct buf *out)
{
	if (row->rank->rank >= 0)
		buf_addf(out, "rank %d", row->rank->rank);
	else
		buf_addf(out, "process %u", row->rank->pid);
	if (row->rank->ndevices > 1)
		buf_addf(out, " (device %u)", row->device->device);
}

double split_overlap(const struct split_times *t)
{
	if (!t->comm_ns)
		return -1;
	return 100.0 * (double)(t->comm_ns - t->part_ns[SPLIT_COMM]) / (double)t->comm_ns;
}

/* --- rows --- */

static int by_rank(const void *a, const void *b)
{
	const struct split_rank *x = *(struct split_rank *const *)a;
	const struct split_rank *y = *(struct split_rank *const *)b;

	if (x->rank != y->rank) /* those that are not known last */
		return (uint32_t)x->rank < (uint32_t)y->rank ? -1 : 1;
	int host = strcmp(x->host, y->host);
	if (host)
		return host;
	return x->pid < y->pid ? -1 : x->pid > y->pid;
}

static struct split_times mean_of(struct split_times sum, uint64_t n)
{
	uint64_t rest;

	if (!n)
		return (struct split_times){0};
	sum.comm_ns /= n;
	rest = sum.step_ns /= n;
	/* Rounding must not make them more than the whole. */
	for (unsigned p = 0; p < SPLIT_IDLE; p++)
		rest -= sum.part_ns[p] /= n;
	sum.part_ns[SPLIT_IDLE] = rest;
	if (sum.comm_ns < sum.part_ns[SPLIT_COMM])
		sum.comm_ns = sum.part_ns[SPLIT_COMM];
	return sum;
}

/* Without a device: the steps are all that is known of it. */
static struct split_times bare_steps(const struct split_rank *r)
{
	struct split_times all = {0};

	for (size_t s = 0; s < r->nsteps; s++)
		if (r->steps[s].whole)
			all.step_ns += r->steps[s].end_ns - r->steps[s].start_ns;
	all.part_ns[SPLIT_IDLE] = all.step_ns;
	return all;
}

static void make_rows(struct split_job *j)
{
	size_t n = 0;

	for (size_t i = 0; i < j->nranks; i++)
		n += j->ranks[i]->ndevices ? j->ranks[i]->ndevices : 1;
	j->rows = xcalloc(n + 1, sizeof(*j->rows));
	for (size_t i = 0; i < j->nranks; i++) {
		const struct split_rank *r = j->ranks[i];
		size_t devices = r->ndevices ? r->ndevices : 1;

		for (size_t k = 0; k < devices; k++) {
			struct split_row *row = &j->rows[j->nrows++];

			row->rank = r;
			row->device = r->ndevices ? &r->devices[k] : NULL;
			row->steps = r->whole_steps;
			row->mean =
				mean_of(row->device ? row->device->all : bare_steps(r), row->steps);
		}
	}
}

/* --- what they have in common --- */

/* Numbers of steps, the last one not in it. */
struct range {
	uint64_t from, to;
};

/* A device that waits for work that was launched in a step is not idle in it, though it looks so.
 */
static bool is_comparable(const struct split_rank *r, size_t step)
{
	const struct split_step *s = &r->steps[step];

	return s->whole && s->number != SPLIT_NO_NUMBER &&
	       (!r->waiting_ns || s->end_ns <= r->waiting_ns);
}

static struct range comparable_steps(const struct split_rank *r)
{
	struct range own = {0};

	for (size_t i = 0; i < r->nsteps; i++) {
		if (!is_comparable(r, i))
			continue;
		if (!own.to)
			own.from = r->steps[i].number;
		own.to = r->steps[i].number + 1;
	}
	return own;
}

/* Empty: all have the same steps, or they share none. A rank has others where it was ended by request, or
 * where devices were not recorded from the same moment on. */
static struct range common_steps(const struct split_job *j)
{
	struct range all = {0, UINT64_MAX}, first = {0};
	bool differ = false;

	for (size_t i = 0; i < j->nranks; i++) {
		const struct split_rank *r = j->ranks[i];
		struct range own = comparable_steps(r);

		if (own.from == own.to || !(r->ended || split_rank_is_complete(r)))
			continue;
		differ |= !split_rank_is_complete(r) ||
			  (first.to && (own.from != first.from || own.to != first.to));
		first = own;
		all.from = own.from > all.from ? own.from : all.from;
		all.to = own.to < all.to ? own.to : all.to;
	}
	return differ && all.from < all.to ? all : (struct range){0};
}

/* Makes the mean that of these steps; false: it has none of them. */
static bool keep_steps(struct split_row *row, struct range common)
{
	const struct split_rank *r = row->rank;
	struct split_times sum = {0};
	uint32_t n = 0;

	for (size_t i = 0; i < r->nsteps; i++) {
		uint64_t ns = r->steps[i].end_ns - r->steps[i].start_ns;
		struct split_times bare = {.step_ns = ns, .part_ns = {[SPLIT_IDLE] = ns}};

		if (!is_comparable(r, i) || r->steps[i].number < common.from ||
		    r->steps[i].number >= common.to)
			continue;
		split_times_add(&sum, row->device ? &row->device->steps[i] : &bare);
		n++;
	}
	if (!n)
		return false;
	row->mean = mean_of(sum, n);
	row->steps = n;
	return true;
}

/*
 * A trace that was cut lacks what the device's library had not reported yet: its device looks idle.
 * So does one of which nothing was reported at all, among others that have. Who was ended by
 * request has reported everything, but only some steps: those are compared that all have.
 */
static void choose_rows(struct split_job *j)
{
	struct split_times sum = {0}, some = {0};
	struct range common = common_steps(j);
	uint64_t judged = 0, counted = 0;
	bool devices = false;

	for (size_t i = 0; i < j->nrows; i++)
		devices |= j->rows[i].device != NULL;
	for (size_t i = 0; i < j->nrows; i++) {
		struct split_row *row = &j->rows[i];

		row->judged =
			(split_rank_is_complete(row->rank) || (row->rank->ended && common.to)) &&
			(row->device || !devices) && (!common.to || keep_steps(row, common));
		if (row->judged && common.to && row->steps > j->slowest.common)
			j->slowest.common = row->steps;
		if (row->judged) {
			split_times_add(&sum, &row->mean);
			judged++;
		}
		if (row->rank->whole_steps) {
			split_times_add(&some, &row->mean);
			counted++;
		}
	}
	j->mean = judged ? mean_of(sum, judged) : mean_of(some, counted);
}

/* --- who is slowest --- */

/* In a step; the name is compared as text, since ranks have their own. */
static uint64_t kernel_ns_of(const struct split_row *row, const struct split_kernel *k)
{
	for (size_t i = 0; i < row->rank->nkernels; i++) {
		const struct split_kernel *own = &row->rank->kernels[i];

		if (own->part == k->part && !strcmp(own->name, k->name))
			return own->total_ns / row->rank->whole_steps; /* judged: it has some */
	}
	return 0;
}

COMPARE_VALUES(by_value, uint64_t)

/* The median of a value of all judged rows but one. */
static uint64_t median_of_others(const struct split_job *j, size_t but, const uint64_t *values)
{
	uint64_t *v = xcalloc(j->nrows, sizeof(*v)), median = 0;
	size_t n = 0;

	for (size_t i = 0; i < j->nrows; i++)
		if (i != but && j->rows[i].judged)
			v[n++] = values[i];
	if (n) {
		qsort(v, n, sizeof(*v), by_value);
		median = n % 2 ? v[n / 2] : v[n / 2 - 1] + (v[n / 2] - v[n / 2 - 1]) / 2;
	}
	free(v);
	return median;
}

/*
 * The row with the most of it (its step, or what of it is no communication), and how much time a
 * step that explains: 0 if it is no more than noise, by the time of a step or by how far the others
 * are from each other.
 */
static uint64_t excess_of(const struct split_job *j, bool without_comm, struct split_slowest *s,
			  uint64_t *v)
{
	s->row = j->nrows;
	for (size_t i = 0; i < j->nrows; i++) {
		const struct split_times *mean = &j->rows[i].mean;

		v[i] = mean->step_ns - (without_comm ? mean->part_ns[SPLIT_COMM] : 0);
		if (j->rows[i].judged && (s->row == j->nrows || v[i] > v[s->row]))
			s->row = i;
	}
	s->ns = v[s->row];
	s->others_ns = median_of_others(j, s->row, v);
	if (s->ns <= s->others_ns)
		return 0;
	uint64_t more = s->ns - s->others_ns;
	for (size_t i = 0; i < j->nrows; i++)
		v[i] = v[i] > s->others_ns ? v[i] - s->others_ns : s->others_ns - v[i];
	bool notable = more * 100 > j->mean.step_ns * NOTABLE_PERCENT &&
		       more >= SPREADS * median_of_others(j, s->row, v);
	return notable ? more : 0;
}

/* Among the parts that count for the verdict, the one that is longer by the most. */
static void find_part(const struct split_job *j, struct split_slowest *s, uint64_t *v)
{
	bool first = true;

	for (enum split_part p = 0; p < SPLIT_PARTS; p++) {
		if (p == SPLIT_COMM && s->verdict == SPLIT_WAITED_FOR)
			continue;
		for (size_t i = 0; i < j->nrows; i++)
			v[i] = j->rows[i].mean.part_ns[p];
		uint64_t own = v[s->row], others = median_of_others(j, s->row, v);

		if (!first && (int64_t)(own - others) <= (int64_t)(s->why_ns - s->why_others_ns))
			continue;
		first = false;
		s->why = p;
		s->why_ns = own;
		s->why_others_ns = others;
	}
}

#define COMPARED_KERNELS 50 /* those that take the most time */

static void find_kernel(const struct split_job *j, struct split_slowest *s, uint64_t *v)
{
	const struct split_rank *r = j->rows[s->row].rank;
	uint64_t most_ns = 0;
	unsigned compared = 0;

	for (size_t i = 0; i < r->nkernels && compared < COMPARED_KERNELS; i++) {
		const struct split_kernel *k = &r->kernels[i];

		if (k->part != s->why)
			continue;
		compared++;
		uint64_t own = k->total_ns / r->whole_steps;
		for (size_t row = 0; row < j->nrows; row++)
			v[row] = j->rows[row].judged ? kernel_ns_of(&j->rows[row], k) : 0;
		uint64_t others = median_of_others(j, s->row, v);
		if (own <= others || own - others <= most_ns)
			continue;
		most_ns = own - others;
		s->kernel = k->name;
		s->kernel_ns = own;
		s->kernel_others_ns = others;
	}
}

static void find_slowest(struct split_job *j)
{
	struct split_slowest *s = &j->slowest;
	size_t counted = 0;

	for (size_t i = 0; i < j->nrows; i++)
		counted += j->rows[i].judged;
	if (counted < 2)
		return;
	struct split_slowest longer = *s, waited = *s;
	uint64_t *v = xcalloc(j->nrows, sizeof(*v)); /* a value of each row */
	uint64_t by_steps = excess_of(j, false, &longer, v);
	/* Without communication nobody waits. */
	uint64_t by_waiting = j->mean.comm_ns ? excess_of(j, true, &waited, v) : 0;
	longer.verdict = SPLIT_SLOW_STEPS;
	waited.verdict = SPLIT_WAITED_FOR;
	if (!by_steps && !by_waiting) {
		s->verdict = SPLIT_EVEN;
		free(v);
		return;
	}
	/* What explains more time: a step that is a little longer does not hide that all wait for
	 * another rank. What makes its own steps longer is of both, and is reported as that. */
	bool same = longer.row == waited.row;
	*s = by_waiting > by_steps + (same ? by_steps / 2 : 0) ? waited : longer;
	find_part(j, s, v);
	if (s->why != SPLIT_IDLE)
		find_kernel(j, s, v);
	free(v);
}

/* --- kernels of all ranks --- */

static int by_total(const void *a, const void *b)
{
	const struct split_sum *x = a, *y = b;

	if (x->total_ns != y->total_ns)
		return x->total_ns > y->total_ns ? -1 : 1;
	return strcmp(x->name, y->name);
}

static struct split_sum *sum_of(struct split_job *j, struct hmap *index, size_t *cap,
				const struct split_kernel *k)
{
	uint64_t key = XXH64(k->name, strlen(k->name), k->part);
	uint64_t at = hmap_get(index, key);

	if (at == HMAP_NONE) {
		j->sums = xgrow(j->sums, cap, j->nsums + 1, sizeof(*j->sums));
		j->sums[j->nsums] = (struct split_sum){.name = k->name, .part = k->part};
		at = j->nsums++;
		hmap_put(index, key, at);
	}
	return &j->sums[at];
}

static void sum_kernels(struct split_job *j)
{
	struct hmap index = {0};
	size_t cap = 0;

	for (size_t i = 0; i < j->nranks; i++) {
		const struct split_rank *r = j->ranks[i];

		j->busy_ns += r->other_ns;
		for (size_t n = 0; n < r->nkernels; n++) {
			const struct split_kernel *k = &r->kernels[n];
			struct split_sum *s = sum_of(j, &index, &cap, k);

			j->busy_ns += k->total_ns;
			s->calls += k->calls;
			s->total_ns += k->total_ns;
			if (!s->ranks++ || k->p99_ns > s->p99_ns) {
				s->p99_ns = k->p99_ns;
				s->p99_rank = r->rank;
			}
		}
	}
	hmap_release(&index);
	if (j->nsums)
		qsort(j->sums, j->nsums, sizeof(*j->sums), by_total);
}

/* --- several jobs in one trace: a request without --job-id goes to all processes of a node --- */

/* Those of a list that is in the order of its ranks; a process that does not know its rank is none of the others. */
static bool has_twice(struct split_rank *const *ranks, size_t n)
{
	for (size_t i = 1; i < n; i++)
		if (ranks[i]->rank >= 0 && ranks[i]->rank == ranks[i - 1]->rank)
			return true;
	return false;
}

/* Ranks come more than once, or say themselves that they are of different jobs. In order of ranks.
 */
static bool is_several_jobs(const struct split_job *j)
{
	const char *first = NULL;

	for (size_t i = 0; i < j->nranks; i++) {
		const char *job = j->ranks[i]->job;

		if (first && *job && strcmp(first, job))
			return true;
		first = *job ? job : first;
	}
	return has_twice(j->ranks, j->nranks);
}

typedef const char *(*key_fn)(const struct split_rank *r);

static const char *job_of(const struct split_rank *r)
{
	return r->job;
}

static const char *parent_of(const struct split_rank *r)
{
	return r->parent;
}

static struct split_job *group_of(struct split_job *j, size_t from, size_t *cap,
				  const struct split_rank *r, key_fn key)
{
	for (size_t i = from; i < j->njobs; i++)
		if (!strcmp(key(j->jobs[i].ranks[0]), key(r)))
			return &j->jobs[i];
	j->jobs = xgrow(j->jobs, cap, j->njobs + 1, sizeof(*j->jobs));
	j->jobs[j->njobs] = (struct split_job){.part = true};
	return &j->jobs[j->njobs++];
}

/* Each group whose ranks are not all different becomes several. */
static void divide_groups(struct split_job *j, key_fn key)
{
	struct split_job *old = j->jobs;
	size_t n = j->njobs, cap = 0;

	j->jobs = NULL;
	j->njobs = 0;
	for (size_t i = 0; i < n; i++) {
		size_t from = j->njobs;
		bool whole = !has_twice(old[i].ranks, old[i].nranks) && key != job_of;

		if (whole) {
			*XPUSH(j->jobs, j->njobs, cap) = old[i];
			continue;
		}
		for (size_t k = 0; k < old[i].nranks; k++)
			split_job_add(group_of(j, from, &cap, old[i].ranks[k], key),
				      old[i].ranks[k]);
		free(old[i].ranks);
	}
	free(old);
}

/* If every process were a job of its own, their ranks would all be the same. */
static bool is_told_apart(const struct split_job *j)
{
	bool several = j->ranks[0]->rank == j->ranks[j->nranks - 1]->rank;

	for (size_t i = 0; i < j->njobs; i++) {
		if (has_twice(j->jobs[i].ranks, j->jobs[i].nranks))
			return false;
		several |= j->jobs[i].nranks > 1 || *j->jobs[i].ranks[0]->job;
	}
	return several;
}

/*
 * Makes and judges j->jobs: by what ranks say their job is, then by who has started them. There are
 * none if a rank would still come twice, or if every process of different ranks would be a job.
 */
static void judge_jobs(struct split_job *j)
{
	j->jobs = xcalloc(1, sizeof(*j->jobs));
	j->njobs = 1;
	j->jobs[0].part = true;
	for (size_t i = 0; i < j->nranks; i++)
		split_job_add(&j->jobs[0], j->ranks[i]);
	divide_groups(j, job_of);
	divide_groups(j, parent_of);
	if (is_told_apart(j)) {
		for (size_t i = 0; i < j->njobs; i++) {
			j->jobs[i].gathered = j->gathered;
			split_job_judge(&j->jobs[i]);
		}
		return;
	}
	for (size_t i = 0; i < j->njobs; i++)
		split_job_release(&j->jobs[i]);
	free(j->jobs);
	j->jobs = NULL;
	j->njobs = 0;
}

void split_job_judge(struct split_job *j)
{
	if (j->nranks)
		qsort(j->ranks, j->nranks, sizeof(*j->ranks), by_rank);
	make_rows(j);
	choose_rows(j);
	sum_kernels(j);
	if (!j->part && is_several_jobs(j)) {
		j->slowest.verdict = SPLIT_SEVERAL_JOBS;
		judge_jobs(j);
	} else {
		find_slowest(j);
	}
}

void split_job_release(struct split_job *j)
{
	for (size_t i = 0; i < j->njobs; i++)
		split_job_release(&j->jobs[i]);
	free(j->jobs);
	for (size_t i = 0; i < j->nranks && !j->part; i++)
		split_rank_free(j->ranks[i]);
	free(j->ranks);
	free(j->rows);
	free(j->sums);
	free(j->notes);
	*j = (struct split_job){0};
}
