/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The answer about a job as JSON: the same as in words, and everything that its ranks have told. */
#include <string.h>

#include "activity/steps/job.h"
#include "activity/steps/missing.h"
#include "formats/json_value.h"

#define MOST_MISSING 65536 /* numbers in the list: a size may be any */

static json_t *mean_json(const struct split_times *t)
{
	json_t *o = json_object();

	put_number(o, "step_ns", t->step_ns);
	put_number(o, "compute_ns", t->part_ns[SPLIT_COMPUTE]);
	put_number(o, "communication_ns", t->part_ns[SPLIT_COMM]);
	put_number(o, "copy_ns", t->part_ns[SPLIT_COPY]);
	put_number(o, "idle_ns", t->part_ns[SPLIT_IDLE]);
	put_number(o, "all_communication_ns", t->comm_ns);
	json_object_set_new(o, "overlap_percent",
			    t->comm_ns ? json_real(split_overlap(t)) : json_null());
	return o;
}

static void put_row(json_t *o, const struct split_row *row)
{
	put_known(o, "rank", row->rank->rank >= 0, (uint64_t)(uint32_t)row->rank->rank);
	put_number(o, "pid", row->rank->pid);
	put_text(o, "host", row->rank->host);
	put_known(o, "device", row->device, row->device ? row->device->device : 0);
}

static json_t *rows_json(const struct split_job *j)
{
	json_t *list = json_array();

	for (size_t i = 0; i < j->nrows; i++) {
		json_t *o = json_object();

		put_row(o, &j->rows[i]);
		put_number(o, "steps", j->rows[i].steps);
		put_bool(o, "judged", j->rows[i].judged);
		json_object_set_new(o, "mean", mean_json(&j->rows[i].mean));
		json_array_append_new(list, o);
	}
	return list;
}

static json_t *slowest_json(const struct split_job *j)
{
	static const char *const verdicts[] = {
		[SPLIT_NOT_JUDGED] = "not judged",
		[SPLIT_SEVERAL_JOBS] = "several jobs",
		[SPLIT_EVEN] = "even",
		[SPLIT_SLOW_STEPS] = "longer steps",
		[SPLIT_WAITED_FOR] = "others wait",
	};
	const struct split_slowest *s = &j->slowest;
	json_t *o = json_object();

	put_text(o, "verdict", verdicts[s->verdict]);
	put_known(o, "common_steps", s->common, s->common);
	if (s->verdict < SPLIT_SLOW_STEPS)
		return o;
	put_row(o, &j->rows[s->row]);
	put_number(o, "ns", s->ns);
	put_number(o, "others_ns", s->others_ns);
	put_text(o, "why", split_part_name(s->why));
	put_number(o, "why_ns", s->why_ns);
	put_number(o, "why_others_ns", s->why_others_ns);
	put_text(o, "kernel", s->kernel);
	put_known(o, "kernel_ns", s->kernel, s->kernel_ns);
	put_known(o, "kernel_others_ns", s->kernel, s->kernel_others_ns);
	return o;
}

static json_t *kernels_json(const struct split_job *j)
{
	json_t *list = json_array();

	for (size_t i = 0; i < j->nsums; i++) {
		const struct split_sum *s = &j->sums[i];
		json_t *o = json_object();

		put_text(o, "name", s->name);
		put_text(o, "part", split_part_name(s->part));
		put_number(o, "ranks", s->ranks);
		put_number(o, "calls", s->calls);
		put_number(o, "total_ns", s->total_ns);
		put_number(o, "mean_ns", s->total_ns / s->calls);
		put_number(o, "p99_ns", s->p99_ns);
		put_known(o, "p99_rank", s->p99_rank >= 0, (uint64_t)(uint32_t)s->p99_rank);
		json_object_set_new(
			o, "share",
			json_real(j->busy_ns ? (double)s->total_ns / (double)j->busy_ns : 0));
		json_array_append_new(list, o);
	}
	return list;
}

static json_t *missing_json(const struct split_job *j)
{
	json_t *list = json_array();
	struct split_gap gap = {0};

	while (split_gap_next(j, &gap))
		for (uint32_t r = gap.from; r < gap.to; r++) {
			if (json_array_size(list) >= MOST_MISSING)
				return list;
			json_array_append_new(list, json_integer(r));
		}
	return list;
}

static void put_answer(json_t *o, const struct split_job *j)
{
	json_object_set_new(o, "missing", missing_json(j));
	json_object_set_new(o, "mean", mean_json(&j->mean));
	json_object_set_new(o, "slowest", slowest_json(j));
	json_object_set_new(o, "rows", rows_json(j));
	json_object_set_new(o, "kernels", kernels_json(j));
}

static json_t *jobs_json(const struct split_job *j)
{
	json_t *list = json_array();

	for (size_t i = 0; i < j->njobs; i++) {
		json_t *o = json_object();

		put_text(o, "job", j->jobs[i].ranks[0]->job);
		put_text(o, "parent", j->jobs[i].ranks[0]->parent);
		put_answer(o, &j->jobs[i]);
		json_array_append_new(list, o);
	}
	return list;
}

json_t *split_job_json(const struct split_job *j)
{
	json_t *o = json_object(), *ranks = json_array();
	struct buf notes = {0};

	if (j->notes)
		buf_add_str(&notes, j->notes);
	put_text(o, "request", j->nranks ? j->ranks[0]->request : NULL);
	put_answer(o, j);
	json_object_set_new(o, "jobs", jobs_json(j));
	json_object_set_new(o, "notes", lines_value(&notes));
	for (size_t i = 0; i < j->nranks; i++) {
		json_t *rank = split_rank_json(j->ranks[i]);

		if (*j->ranks[i]->dir)
			put_text(rank, "directory", j->ranks[i]->dir);
		json_array_append_new(ranks, rank);
	}
	json_object_set_new(o, "ranks", ranks);
	buf_release(&notes);
	return o;
}
