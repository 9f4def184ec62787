/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "report/activities.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "activity/read/totals.h"
#include "activity/show/show.h"
#include "activity/steps/files.h"
#include "base/mem.h"
#include "formats/json_value.h"
#include "unwind/symbols/demangle.h"

#define MOST_CELLS 200000u /* of all rows together: more steps become one */
#define PIECES 600u /* of time, where there are no steps */
#define MOST_KERNELS 3000u
#define MOST_NAME 300u
#define TEXT_TOP 25

/* What a row has of each step or piece. */
struct cells {
	struct column number, start, length, part[SPLIT_PARTS], comm;
};

struct cell {
	uint64_t number, start_ns;
	struct split_times times;
};

static void add_cell(struct cells *c, const struct cell *one)
{
	column_add(&c->number, one->number);
	column_add(&c->start, one->start_ns);
	column_add(&c->length, one->times.step_ns);
	for (unsigned p = 0; p < SPLIT_PARTS; p++)
		column_add(&c->part[p], one->times.part_ns[p]);
	column_add(&c->comm, one->times.comm_ns);
}

static void put_cells(struct pack *pack, const char *prefix, struct cells *c)
{
	char name[48];

	pack_put(pack, prefix, "number", &c->number);
	pack_put(pack, prefix, "start", &c->start);
	pack_put(pack, prefix, "length", &c->length);
	for (unsigned p = 0; p < SPLIT_PARTS; p++) {
		snprintf(name, sizeof(name), "%s", split_part_name((enum split_part)p));
		pack_put(pack, prefix, name, &c->part[p]);
	}
	pack_put(pack, prefix, "all_communication", &c->comm);
}

static json_t *row_json(struct pack *pack, const char *prefix, const char *label, int32_t rank,
			uint32_t device)
{
	json_t *row = json_object();

	put_text(row, "prefix", prefix);
	json_object_set_new(row, "label", pack_value(pack, REDACT_WORDS, label));
	json_object_set_new(row, "rank", rank >= 0 ? json_integer(rank) : json_null());
	json_object_set_new(row, "device",
			    device == ACTIVITY_NOWHERE ? json_null() : json_integer(device));
	return row;
}

static void add_kernel(json_t *list, struct pack *pack, const char *name, const char *part,
		       const uint64_t numbers[4])
{
	struct buf shown = {0};

	demangle_add_name(&shown, *name ? name : "(no name)", MOST_NAME);
	json_t *k = json_object();
	json_object_set_new(k, "name", pack_value(pack, REDACT_KERNEL, buf_str(&shown)));
	put_text(k, "part", part);
	put_number(k, "calls", numbers[0]);
	put_number(k, "total_ns", numbers[1]);
	put_number(k, "p99_ns", numbers[2]);
	put_number(k, "max_ns", numbers[3]);
	json_array_append_new(list, k);
	buf_release(&shown);
}

/* The first paragraph of the text is the answer. */
static void put_answer(json_t *one, struct pack *pack, struct buf *text)
{
	const char *s = buf_str(text), *end = strstr(s, "\n\n");
	struct buf answer = {0};

	for (const char *p = s; *p && (!end || p < end); p++)
		buf_add_char(&answer, *p == '\n' ? ' ' : *p);
	json_object_set_new(one, "answer", pack_long(pack, REDACT_WORDS, &answer));
	json_object_set_new(one, "text",
			    pack_long(pack, REDACT_WORDS, pack->redact ? &answer : text));
	buf_release(&answer);
}

static json_t *new_activity(struct pack *pack, const char *command, const char *path)
{
	json_t *one = json_object();

	put_text(one, "command", command);
	json_object_set_new(one, "title", pack_value(pack, REDACT_PATH, path));
	return one;
}

/* --- traces of steps --- */

static uint64_t first_start(const struct split_job *j)
{
	uint64_t first = UINT64_MAX;

	for (size_t i = 0; i < j->nranks; i++)
		if (j->ranks[i]->nsteps && j->ranks[i]->steps[0].start_ns < first)
			first = j->ranks[i]->steps[0].start_ns;
	return first;
}

/* Steps of a row, `together` of them as one. */
static void put_steps(struct pack *pack, const char *prefix, const struct split_row *row,
		      uint64_t base_ns, size_t together)
{
	const struct split_rank *r = row->rank;
	struct cells cells = {0};

	for (size_t i = 0; i < r->nsteps; i += together) {
		struct cell c = {0};

		c.number = r->steps[i].number == SPLIT_NO_NUMBER ? 0 : r->steps[i].number;
		c.start_ns = r->steps[i].start_ns - base_ns;
		for (size_t k = i; k < i + together && k < r->nsteps; k++) {
			struct split_times idle = {.step_ns = r->steps[k].end_ns -
							      r->steps[k].start_ns};

			idle.part_ns[SPLIT_IDLE] = idle.step_ns;
			split_times_add(&c.times, row->device ? &row->device->steps[k] : &idle);
		}
		add_cell(&cells, &c);
	}
	put_cells(pack, prefix, &cells);
}

static json_t *steps_rows(const struct split_job *j, unsigned number, struct pack *pack)
{
	json_t *rows = json_array();
	uint64_t base = first_start(j), cells = 0;

	for (size_t i = 0; i < j->nrows; i++)
		cells += j->rows[i].rank->nsteps;
	for (size_t i = 0; i < j->nrows; i++) {
		const struct split_row *row = &j->rows[i];
		char prefix[48];
		struct buf label = {0};

		snprintf(prefix, sizeof(prefix), "a%u.%zu.", number, i);
		put_steps(pack, prefix, row, base, (size_t)(cells / MOST_CELLS) + 1);
		split_row_label(row, &label);
		json_t *o = row_json(pack, prefix, buf_str(&label), row->rank->rank,
				     row->device ? row->device->device : ACTIVITY_NOWHERE);
		put_bool(o, "slowest",
			 j->slowest.row == i && (j->slowest.verdict == SPLIT_SLOW_STEPS ||
						 j->slowest.verdict == SPLIT_WAITED_FOR));
		json_object_set_new(o, "host", pack_value(pack, REDACT_HOST, row->rank->host));
		put_number(o, "together", (uint64_t)(cells / MOST_CELLS) + 1);
		json_array_append_new(rows, o);
		buf_release(&label);
	}
	return rows;
}

/* Whether there are steps: of a trace, or of a recording of `sonde record`, as the command finds them. */
static bool read_steps(struct split_job *job, const char *path)
{
	struct err err = {0};
	size_t steps = 0;

	if (split_job_add_host(job, NULL, path, NULL, &err) < 0)
		return false;
	for (size_t i = 0; i < job->nranks; i++)
		steps += job->ranks[i]->nsteps;
	return steps > 0;
}

static int add_trace(json_t *list, unsigned number, const char *path, struct pack *pack)
{
	struct split_job job = {0};
	struct buf text = {0};

	if (!read_steps(&job, path)) {
		split_job_release(&job);
		return 0;
	}
	split_job_judge(&job);
	json_t *one = new_activity(pack, "sonde activity summary", path);
	for (size_t i = 0; i < job.nranks; i++)
		redact_learn(pack->redact, REDACT_HOST, job.ranks[i]->host,
			     strlen(job.ranks[i]->host));
	json_t *kernels = json_array();
	for (size_t i = 0; i < job.nsums && i < MOST_KERNELS; i++) {
		const struct split_sum *s = &job.sums[i];

		add_kernel(kernels, pack, s->name, split_part_name(s->part),
			   (const uint64_t[]){s->calls, s->total_ns, s->p99_ns, 0});
	}
	split_job_text(&job, TEXT_TOP, &text);
	put_answer(one, pack, &text);
	put_text(one, "by", "step");
	json_object_set_new(one, "rows", steps_rows(&job, number, pack));
	json_object_set_new(one, "kernels", kernels);
	json_array_append_new(list, one);
	buf_release(&text);
	split_job_release(&job);
	return 1;
}

/* --- files of activities --- */

static void put_pieces(struct pack *pack, const char *prefix, const struct sum_rank *r,
		       const struct sum_device *d, uint64_t base_ns)
{
	uint64_t piece = (r->last_ns - r->first_ns) / PIECES + 1;
	size_t at[SPLIT_IDLE] = {0};
	struct cells cells = {0};

	for (uint64_t from = r->first_ns; from < r->last_ns; from += piece) {
		uint64_t to = from + piece < r->last_ns ? from + piece : r->last_ns;
		struct cell c = {.start_ns = from - base_ns, .times = {.step_ns = to - from}};
		uint64_t busy = 0;

		for (unsigned p = 0; p < SPLIT_IDLE; p++) {
			c.times.part_ns[p] = spans_within(&d->work[p], from, to, &at[p]);
			busy += c.times.part_ns[p];
		}
		c.times.part_ns[SPLIT_IDLE] = to - from > busy ? to - from - busy : 0;
		c.times.comm_ns = c.times.part_ns[SPLIT_COMM];
		add_cell(&cells, &c);
	}
	put_cells(pack, prefix, &cells);
}

static json_t *pieces_rows(const struct activity_sum *s, unsigned number, struct pack *pack)
{
	json_t *rows = json_array();
	uint64_t base = UINT64_MAX;

	for (size_t i = 0; i < s->nranks; i++)
		if (s->ranks[i].ndevices && s->ranks[i].first_ns < base)
			base = s->ranks[i].first_ns;
	for (size_t i = 0; i < s->nranks; i++) {
		const struct sum_rank *r = &s->ranks[i];

		for (size_t d = 0; d < r->ndevices; d++) {
			char prefix[48], label[64];

			snprintf(prefix, sizeof(prefix), "a%u.%zu.%zu.", number, i, d);
			if (r->rank >= 0)
				snprintf(label, sizeof(label), "rank %d (device %u)", r->rank,
					 r->devices[d].device);
			else
				snprintf(label, sizeof(label), "process %u (device %u)", r->pid,
					 r->devices[d].device);
			put_pieces(pack, prefix, r, &r->devices[d], base);
			json_array_append_new(
				rows, row_json(pack, prefix, label, r->rank, r->devices[d].device));
		}
	}
	return rows;
}

static const char *part_of_name(const struct sum_name *n)
{
	const struct activity like = {ACTIVITY_EMPTY, .kind = n->kind, .place = ACTIVITY_ON_DEVICE};

	return split_part_name(split_part_of(&like));
}

static int add_files(json_t *list, unsigned number, const char *path, struct pack *pack,
		     struct err *err)
{
	struct activity_paths paths = {0};
	struct activity_sum sum = {0};
	struct buf text = {0};
	char *word = (char *)(uintptr_t)path;
	int r = activity_paths_find(&paths, &word, 1, err);

	for (size_t i = 0; r == 0 && i < paths.n; i++)
		r = activity_sum_file(&sum, paths.list[i], err);
	if (r == 0) {
		json_t *one = new_activity(pack, "sonde activity show", path);
		json_t *kernels = json_array();

		activity_sum_finish(&sum);
		for (size_t i = 0; i < sum.nnames && json_array_size(kernels) < MOST_KERNELS; i++) {
			const struct sum_name *n = &sum.names[i];

			if (!sum_is_work(n)) /* calls and marks of the host are no kernels */
				continue;
			add_kernel(kernels, pack, n->name, part_of_name(n),
				   (const uint64_t[]){n->calls, n->total_ns, sum_p99_ns(n),
						      n->max_ns});
		}
		activity_show_text(&sum, TEXT_TOP, &text);
		put_answer(one, pack, &text);
		put_text(one, "by", "time");
		json_object_set_new(one, "rows", pieces_rows(&sum, number, pack));
		json_object_set_new(one, "kernels", kernels);
		json_array_append_new(list, one);
	}
	activity_sum_release(&sum);
	activity_paths_release(&paths);
	buf_release(&text);
	return r < 0 ? r : 1;
}

int activities_add(json_t *list, unsigned number, const char *path, struct pack *pack,
		   struct err *err)
{
	int n = add_trace(list, number, path, pack);

	return n ? n : add_files(list, number, path, pack, err);
}
