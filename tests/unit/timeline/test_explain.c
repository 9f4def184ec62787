/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What passes through a timeline is counted: work, functions, steps of either kind, allocations. */
#include "timeline/explain.h"

#include <string.h>

#include "test.h"

#define MS 1000000ull
#define T0 1794723775000000000ull
#define PID 900

struct made {
	struct timeline *t;
	struct timeline_options o;
	struct timeline_process *p;
	struct timeline_track *device, *python;
	struct split_job job;
};

static void begin(struct made *m, uint64_t from_ns, uint64_t to_ns)
{
	struct err err = {0};

	*m = (struct made){.o = {.path = "/dev/null", .from_ns = from_ns, .to_ns = to_ns}};
	m->o.explain = explain_new(from_ns, to_ns);
	CHECK_INT(timeline_new(&m->o, &m->t, &err), 0);
	m->p = timeline_process(m->t, NULL, PID, 3, NULL);
	m->device = timeline_track(m->p, &(struct timeline_place){.group = GROUP_DEVICE}, "d");
	m->python = timeline_track(m->p, &(struct timeline_place){.group = GROUP_PYTHON, .id = PID},
				   "MainThread");
}

/* Work in the last 2 of 10 ms. */
static void work(struct made *m, unsigned steps)
{
	struct timeline_event e = {.name = "gemm", .role = ROLE_COMPUTE};

	for (unsigned i = 0; i < steps; i++)
		timeline_slice(m->device, T0 + i * 10 * MS + 8 * MS, T0 + (i + 1) * 10 * MS, &e);
}

static const struct split_rank *finish(struct made *m)
{
	struct timeline_counts counts;

	CHECK_INT(timeline_close(m->t, &counts, NULL), 0);
	if (!explain_finish(m->o.explain, &m->job))
		return NULL;
	CHECK_INT(m->job.nranks, 1);
	CHECK_INT(m->job.ranks[0]->rank, 3);
	return m->job.ranks[0];
}

static uint64_t us_of(const struct split_rank *r, enum idle_why why)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < r->idle.nreasons; i++)
		if (r->idle.reasons[i].why == why)
			sum += r->idle.reasons[i].ns;
	return sum / 1000;
}

TEST(explain, functions_by_category_and_arguments)
{
	struct made m;
	struct chrome_arg args[] = {{.key = "file", .type = CHROME_TEXT, .text = "/srv/train.py"},
				    {.key = "line", .type = CHROME_INT, .i = 18}};
	struct timeline_event f = {
		.name = "train", .category = "python_function", .args = args, .nargs = 2};

	begin(&m, 0, 0);
	work(&m, 2);
	timeline_begin(m.python, T0, &f);
	timeline_end(m.python, T0 + 18 * MS);
	timeline_note_step(m.p, 1, T0, T0 + 10 * MS);
	timeline_note_step(m.p, 2, T0 + 10 * MS, T0 + 20 * MS);
	timeline_note_step(m.p, 2, T0 + 10 * MS, T0 + 20 * MS); /* of another file */
	const struct split_rank *r = finish(&m);
	CHECK_INT(r->nsteps, 2);
	CHECK_INT(us_of(r, IDLE_PYTHON), 16000);
	CHECK_STR(r->idle.reasons[0].where, "train (train.py:18)");
	split_job_release(&m.job);
}

TEST(explain, a_trace_that_was_cut)
{
	struct made m;

	begin(&m, 0, 0);
	work(&m, 1);
	timeline_note_step(m.p, 1, T0, T0 + 10 * MS);
	timeline_note_step(m.p, 2, T0 + 10 * MS, T0 + 30 * MS);
	timeline_note_cut(m.p);
	const struct split_rank *r = finish(&m);
	CHECK_INT(r->nsteps, 2);
	CHECK_INT(r->whole_steps, 1);
	CHECK_INT(r->idle.ns, 8 * MS); /* not the step in which it was killed */
	split_job_release(&m.job);
}

/* Steps of a recording of memory count where devices were observed; its allocations are bursts. */
TEST(explain, a_recording_of_memory)
{
	struct made m;

	begin(&m, 0, 0);
	work(&m, 4);
	for (unsigned i = 0; i < 6; i++) {
		timeline_note_step(m.p, 1 + i, T0 + i * 10 * MS, 0);
		timeline_note_step(m.p, 1 + i, 0, T0 + (i + 1) * 10 * MS);
	}
	for (unsigned i = 0; i <= 30; i++)
		timeline_note_allocation(m.p, T0 + 12 * MS + i * 100000);
	timeline_note_allocation(m.p, T0 + 22 * MS); /* alone it takes no time that is known */
	const struct split_rank *r = finish(&m);
	CHECK_INT(r->nsteps,
		  3); /* the first begins before the first work, the last two are not seen */
	CHECK_INT(r->steps[0].number, 2);
	CHECK_INT(us_of(r, IDLE_ALLOCATION), 3000);
	CHECK_INT(us_of(r, IDLE_UNKNOWN), 21000);
	split_job_release(&m.job);
}

TEST(explain, a_part_of_the_time)
{
	struct made m;

	begin(&m, T0 + 10 * MS, T0 + 30 * MS);
	work(&m, 4);
	for (unsigned i = 0; i < 4; i++)
		timeline_note_step(m.p, 1 + i, T0 + i * 10 * MS, T0 + (i + 1) * 10 * MS);
	const struct split_rank *r = finish(&m);
	CHECK_INT(r->nsteps, 2);
	CHECK_INT(r->steps[0].number, 2);
	CHECK_INT(r->devices[0].all.part_ns[SPLIT_COMPUTE], 4 * MS);
	split_job_release(&m.job);
}

TEST(explain, without_steps_all_of_the_time)
{
	struct made m;

	begin(&m, 0, 0);
	work(&m, 3);
	const struct split_rank *r = finish(&m);
	CHECK_INT(r->nsteps, 1);
	CHECK(r->steps[0].number == SPLIT_NO_NUMBER);
	CHECK_INT(r->steps[0].end_ns - r->steps[0].start_ns, 22 * MS);
	CHECK_INT(us_of(r, IDLE_UNKNOWN), 16000);
	split_job_release(&m.job);
}

TEST(explain, without_work_of_a_device)
{
	struct made m;
	struct timeline_event f = {.name = "f", .role = ROLE_PYTHON, .thread = PID};

	begin(&m, 0, 0);
	timeline_slice(m.python, T0, T0 + MS, &f);
	CHECK(!finish(&m));
	split_job_release(&m.job);
}
