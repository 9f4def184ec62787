/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "activity/steps/several.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

/* Those of a list that is in the order of its ranks; who does not know its rank is no other. */
static bool has_twice(struct split_rank *const *ranks, size_t n)
{
	for (size_t i = 1; i < n; i++)
		if (ranks[i]->rank >= 0 && ranks[i]->rank == ranks[i - 1]->rank)
			return true;
	return false;
}

bool split_job_is_several(const struct split_job *j)
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
static void divide(struct split_job *j, key_fn key)
{
	struct split_job *old = j->jobs;
	size_t n = j->njobs, cap = 0;

	j->jobs = NULL;
	j->njobs = 0;
	for (size_t i = 0; i < n; i++) {
		size_t from = j->njobs;
		bool whole = !has_twice(old[i].ranks, old[i].nranks) && key != job_of;

		if (whole) {
			j->jobs = xgrow(j->jobs, &cap, j->njobs + 1, sizeof(*j->jobs));
			j->jobs[j->njobs++] = old[i];
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

void split_job_part(struct split_job *j)
{
	j->jobs = xcalloc(1, sizeof(*j->jobs));
	j->njobs = 1;
	j->jobs[0].part = true;
	for (size_t i = 0; i < j->nranks; i++)
		split_job_add(&j->jobs[0], j->ranks[i]);
	divide(j, job_of);
	divide(j, parent_of);
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
