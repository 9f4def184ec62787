/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The split of a rank as JSON (summary.json in its directory), and back. */
#include "activity/steps/idle_text.h"
#include "activity/steps/job_summary.h"
#include "activity/steps/step_split.h"
#include "base/mem.h"
#include "formats/json_value.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FORMAT "sonde-steps"
#define VERSION 1
#define MAX_TEXT (4 * REC_MAX_NAME) /* what is no character becomes three bytes */

/* --- out --- */

static json_t *times_json(const struct split_times *t)
{
	json_t *o = json_object();

	put_number(o, "step_ns", t->step_ns);
	for (unsigned p = 0; p < SPLIT_PARTS; p++) {
		char key[32];

		snprintf(key, sizeof(key), "%s_ns", split_part_name((enum split_part)p));
		put_number(o, key, t->part_ns[p]);
	}
	put_number(o, "all_communication_ns", t->comm_ns);
	return o;
}

static json_t *steps_json(const struct split_rank *r)
{
	json_t *list = json_array();

	for (size_t i = 0; i < r->nsteps; i++) {
		const struct split_step *s = &r->steps[i];
		json_t *o = json_object();

		put_known(o, "step", s->number != SPLIT_NO_NUMBER, s->number);
		put_number(o, "start_ns", s->start_ns);
		put_number(o, "end_ns", s->end_ns);
		put_bool(o, "whole", s->whole);
		json_array_append_new(list, o);
	}
	return list;
}

static json_t *devices_json(const struct split_rank *r)
{
	json_t *list = json_array();

	for (size_t i = 0; i < r->ndevices; i++) {
		json_t *o = json_object(), *steps = json_array();

		put_number(o, "device", r->devices[i].device);
		json_object_set_new(o, "all", times_json(&r->devices[i].all));
		for (size_t k = 0; k < r->nsteps; k++)
			json_array_append_new(steps, times_json(&r->devices[i].steps[k]));
		json_object_set_new(o, "steps", steps);
		json_array_append_new(list, o);
	}
	return list;
}

static json_t *kernels_json(const struct split_rank *r)
{
	json_t *list = json_array();

	for (size_t i = 0; i < r->nkernels; i++) {
		const struct split_kernel *k = &r->kernels[i];
		json_t *o = json_object();

		put_text(o, "name", k->name);
		put_text(o, "part", split_part_name(k->part));
		put_number(o, "calls", k->calls);
		put_number(o, "total_ns", k->total_ns);
		put_number(o, "mean_ns", k->total_ns / k->calls);
		put_number(o, "p99_ns", k->p99_ns);
		put_number(o, "max_ns", k->max_ns);
		json_array_append_new(list, o);
	}
	return list;
}

json_t *split_rank_json(const struct split_rank *r)
{
	json_t *o = json_object();

	put_text(o, "format", FORMAT);
	put_number(o, "version", VERSION);
	put_known(o, "rank", r->rank >= 0, (uint64_t)(uint32_t)r->rank);
	put_number(o, "pid", r->pid);
	put_text(o, "host", r->host);
	put_text(o, "request", r->request);
	put_text(o, "job", r->job);
	put_text(o, "parent", r->parent);
	put_text(o, "note", r->note);
	put_known(o, "world_size", r->world, r->world);
	put_known(o, "local_world_size", r->local_world, r->local_world);
	put_bool(o, "ranks_chosen", r->chosen);
	put_bool(o, "complete", split_rank_is_complete(r));
	put_bool(o, "ended_by_request", r->ended);
	put_number(o, "not_run", r->waiting);
	put_known(o, "not_run_since_ns", r->waiting_ns, r->waiting_ns);
	put_text(o, "not_run_first", r->waiting_for);
	put_number(o, "lost", r->lost);
	put_number(o, "left_out", r->left_out);
	put_number(o, "after_ns", r->after_ns);
	json_object_set_new(o, "steps", steps_json(r));
	json_object_set_new(o, "devices", devices_json(r));
	json_object_set_new(o, "kernels", kernels_json(r));
	put_number(o, "other_names", r->other_names);
	put_number(o, "other_calls", r->other_calls);
	put_number(o, "other_ns", r->other_ns);
	json_object_set_new(o, "idle", split_idle_json(&r->idle));
	return o;
}

/* --- in: anybody may have written it --- */

static bool get_number(const json_t *o, const char *key, uint64_t *out)
{
	const json_t *v = json_object_get(o, key);

	if (!json_is_integer(v) || json_integer_value(v) < 0)
		return false;
	*out = (uint64_t)json_integer_value(v);
	return true;
}

static bool get_small(const json_t *o, const char *key, uint64_t max, uint64_t *out)
{
	return get_number(o, key, out) && *out <= max;
}

static bool get_text(const json_t *o, const char *key, char **out)
{
	const char *v = json_string_value(json_object_get(o, key));

	if (!v || strlen(v) > MAX_TEXT)
		return false;
	split_rank_set(out, xstrdup(v));
	return true;
}

/* What older traces have not. */
static bool get_text_if(const json_t *o, const char *key, char **out)
{
	return !json_object_get(o, key) || get_text(o, key, out);
}

static bool get_if(const json_t *o, const char *key, uint64_t max, uint64_t *out)
{
	const json_t *v = json_object_get(o, key);

	return !v || json_is_null(v) || get_small(o, key, max, out);
}

/* How far it got, and of how many it is one. */
static bool get_end(const json_t *o, struct split_rank *r)
{
	uint64_t world = 0, local_world = 0;

	r->chosen = json_is_true(json_object_get(o, "ranks_chosen"));
	r->ended = json_is_true(json_object_get(o, "ended_by_request"));
	if (!get_if(o, "world_size", INT32_MAX, &world) ||
	    !get_if(o, "local_world_size", INT32_MAX, &local_world))
		return false;
	r->world = (uint32_t)world;
	r->local_world = (uint32_t)local_world;
	return get_if(o, "not_run", INT64_MAX, &r->waiting) &&
	       get_if(o, "not_run_since_ns", INT64_MAX, &r->waiting_ns) &&
	       get_text_if(o, "not_run_first", &r->waiting_for);
}

static bool get_step(const json_t *o, uint64_t from, struct split_step *out)
{
	out->number = SPLIT_NO_NUMBER;
	out->whole = json_is_true(json_object_get(o, "whole"));
	return (json_is_null(json_object_get(o, "step")) || get_number(o, "step", &out->number)) &&
	       get_number(o, "start_ns", &out->start_ns) && get_number(o, "end_ns", &out->end_ns) &&
	       out->start_ns >= from && out->end_ns >= out->start_ns;
}

/* Room for the elements of a list, and their number; NULL: it is none, or too long. */
static void *new_list(const json_t *list, size_t max, size_t size, size_t *out_n)
{
	*out_n = json_array_size(list);
	return json_is_array(list) && *out_n <= max ? xcalloc(*out_n + 1, size) : NULL;
}

static bool get_steps(const json_t *list, struct split_rank *r)
{
	size_t n;

	r->steps = new_list(list, SPLIT_MAX_STEPS, sizeof(*r->steps), &n);
	if (!r->steps)
		return false;
	for (size_t i = 0; i < n; i++) {
		if (!get_step(json_array_get(list, i), i ? r->steps[i - 1].end_ns : 0,
			      &r->steps[i]))
			return false;
		r->nsteps++;
		r->whole_steps += r->steps[i].whole;
	}
	return true;
}

/* The parts must add up: readers of the answer rely on it. */
static bool get_times(const json_t *o, uint64_t step_ns, struct split_times *t)
{
	uint64_t left = step_ns;

	for (unsigned p = 0; p < SPLIT_PARTS; p++) {
		char key[32];

		snprintf(key, sizeof(key), "%s_ns", split_part_name((enum split_part)p));
		if (!get_small(o, key, left, &t->part_ns[p]))
			return false;
		left -= t->part_ns[p];
	}
	t->step_ns = step_ns;
	return !left && get_small(o, "all_communication_ns", step_ns, &t->comm_ns) &&
	       t->comm_ns >= t->part_ns[SPLIT_COMM];
}

static bool get_device(const json_t *o, const struct split_rank *r, struct split_device *d)
{
	const json_t *steps = json_object_get(o, "steps");
	uint64_t number;

	if (!get_small(o, "device", UINT32_MAX, &number) || json_array_size(steps) != r->nsteps)
		return false;
	d->device = (uint32_t)number;
	d->steps = xcalloc(r->nsteps + 1, sizeof(*d->steps));
	for (size_t i = 0; i < r->nsteps; i++) {
		uint64_t ns = r->steps[i].end_ns - r->steps[i].start_ns;

		if (!get_times(json_array_get(steps, i), ns, &d->steps[i]))
			return false;
		if (r->steps[i].whole)
			split_times_add(&d->all, &d->steps[i]);
	}
	return true;
}

static bool get_devices(const json_t *list, struct split_rank *r)
{
	size_t n;

	r->devices = new_list(list, SPLIT_MAX_DEVICES, sizeof(*r->devices), &n);
	if (!r->devices)
		return false;
	for (size_t i = 0; i < n; i++) {
		r->ndevices++; /* also of one that is wrong, what it has is freed */
		if (!get_device(json_array_get(list, i), r, &r->devices[i]))
			return false;
	}
	return true;
}

static bool get_part(const json_t *o, enum split_part *out)
{
	const char *name = json_string_value(json_object_get(o, "part"));

	for (unsigned p = 0; name && p < SPLIT_IDLE; p++)
		if (!strcmp(name, split_part_name((enum split_part)p))) {
			*out = (enum split_part)p;
			return true;
		}
	return false;
}

static bool get_kernels(const json_t *list, struct split_rank *r)
{
	size_t n;

	r->kernels = new_list(list, SPLIT_MAX_KERNELS, sizeof(*r->kernels), &n);
	if (!r->kernels)
		return false;
	for (size_t i = 0; i < n; i++) {
		const json_t *o = json_array_get(list, i);
		struct split_kernel *k = &r->kernels[i];

		r->nkernels++;
		if (!get_text(o, "name", &k->name) || !get_part(o, &k->part) ||
		    !get_small(o, "calls", UINT32_MAX, &k->calls) || !k->calls ||
		    !get_small(o, "total_ns", INT64_MAX / 2, &k->total_ns) ||
		    !get_small(o, "p99_ns", k->total_ns, &k->p99_ns) ||
		    !get_small(o, "max_ns", k->total_ns, &k->max_ns))
			return false;
	}
	return true;
}

static uint64_t idle_ns_of(const struct split_rank *r)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < r->ndevices; i++)
		sum += r->devices[i].all.part_ns[SPLIT_IDLE];
	return sum;
}

static bool get_rank(const json_t *o, struct split_rank *r)
{
	const json_t *rank = json_object_get(o, "rank");
	uint64_t v = 0, pid;

	if (!json_is_null(rank) && !get_small(o, "rank", INT32_MAX, &v))
		return false;
	r->rank = json_is_null(rank) ? -1 : (int32_t)v;
	if (!get_small(o, "pid", UINT32_MAX, &pid))
		return false;
	r->pid = (uint32_t)pid;
	return get_text(o, "host", &r->host) && get_text(o, "request", &r->request) &&
	       get_text_if(o, "job", &r->job) && get_text_if(o, "parent", &r->parent) &&
	       get_text(o, "note", &r->note) && get_end(o, r) && get_number(o, "lost", &r->lost) &&
	       get_number(o, "left_out", &r->left_out) && get_number(o, "after_ns", &r->after_ns) &&
	       get_number(o, "other_names", &r->other_names) &&
	       get_number(o, "other_calls", &r->other_calls) &&
	       get_small(o, "other_ns", INT64_MAX / 2, &r->other_ns) &&
	       get_steps(json_object_get(o, "steps"), r) &&
	       get_devices(json_object_get(o, "devices"), r) &&
	       get_kernels(json_object_get(o, "kernels"), r) &&
	       split_idle_read(json_object_get(o, "idle"), r->nsteps, idle_ns_of(r), &r->idle);
}

struct split_rank *split_rank_read(const char *text, size_t len, struct err *err)
{
	json_t *root = json_loadb(text, len, 0, NULL);
	const char *format = json_string_value(json_object_get(root, "format"));
	struct split_rank *r = split_rank_new();
	uint64_t version;
	int code = 0;

	if (!format || strcmp(format, FORMAT) || !get_number(root, "version", &version))
		code = err_set(err, -EINVAL, "it is no summary of a trace");
	else if (version != VERSION)
		code = err_set(err, -ENOTSUP, "it is of another version of sonde");
	else if (!get_rank(root, r))
		code = err_set(err, -EINVAL, "the summary is damaged");
	if (code < 0) {
		split_rank_free(r);
		r = NULL;
	}
	json_decref(root);
	return r;
}

/* The answer about a job as JSON: the same as in words, and everything that its ranks have
 * reported. */

#define MOST_MISSING 65536 /* numbers in the list: a size may be any */

static json_t *mean_json(const struct split_times *t)
{
	json_t *o = times_json(t);

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

static json_t *sums_json(const struct split_job *j)
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

static json_t *waiting_json(const struct split_job *j)
{
	struct split_waiting w = split_job_waiting(j);
	json_t *o;

	if (!w.steps)
		return json_null();
	o = json_object();
	put_number(o, "steps", w.steps);
	put_number(o, "communication_ns", w.comm_ns);
	put_number(o, "waiting_ns", w.waiting_ns);
	put_row(o, &j->rows[w.last]);
	put_number(o, "last_steps", w.last_steps);
	return o;
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
	json_object_set_new(o, "waiting", waiting_json(j));
	json_object_set_new(o, "idle", split_idle_job_json(j));
	json_object_set_new(o, "rows", rows_json(j));
	json_object_set_new(o, "kernels", sums_json(j));
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
