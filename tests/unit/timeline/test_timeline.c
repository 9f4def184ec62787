/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Slices that come in any order, overlap, or do not end: what the file says about them. */
#include "timeline/timeline.h"

#include "test.h"
#include "tmpdir.h"

#define START 1794723775000000000ull

struct made {
	char path[300];
	struct timeline *t;
	struct timeline_process *p;
	struct timeline_track *k;
};

static void open_timeline(struct made *m, const struct timeline_options *more)
{
	struct timeline_options o = *more;

	snprintf(m->path, sizeof(m->path), "%s/out", tmpdir());
	o.path = m->path;
	CHECK_INT(timeline_new(&o, &m->t, NULL), 0);
	m->p = timeline_process(m->t, NULL, 7, 0, "train.py");
	m->k = timeline_track(m->p, &(struct timeline_place){.group = GROUP_DEVICE}, "compute");
}

static void put(struct made *m, uint64_t start, uint64_t end)
{
	struct timeline_event e = {.name = "k"};

	timeline_slice(m->k, START + start, START + end, &e);
}

static struct timeline_counts close_timeline(struct made *m)
{
	struct timeline_counts c;

	CHECK_INT(timeline_close(m->t, &c, NULL), 0);
	return c;
}

TEST(timeline, nested_slices_share_a_track_in_any_order)
{
	struct made m;

	open_timeline(&m, &(struct timeline_options){0});
	put(&m, 20, 30); /* inside of the next, and before it */
	put(&m, 10, 50);
	put(&m, 50, 60); /* where the one before ends */
	put(&m, 10, 20);
	struct timeline_counts c = close_timeline(&m);
	CHECK_INT(c.slices, 4);
	CHECK_INT(c.tracks, 3); /* process, device, compute */
	CHECK_INT(c.first_ns, START + 10);
	CHECK_INT(c.last_ns, START + 60);
}

TEST(timeline, slices_that_overlap_get_a_track_beside)
{
	struct made m;

	open_timeline(&m, &(struct timeline_options){0});
	put(&m, 10, 50);
	put(&m, 20, 60);
	put(&m, 60, 70); /* fits the first again */
	struct timeline_counts c = close_timeline(&m);
	CHECK_INT(c.slices, 3);
	CHECK_INT(c.tracks, 4);
	CHECK_INT(c.left_out, 0);
}

TEST(timeline, too_many_that_overlap_are_counted)
{
	struct made m;

	open_timeline(&m, &(struct timeline_options){0});
	for (unsigned i = 0; i < 20; i++)
		put(&m, 10 + i, 100 + i);
	struct timeline_counts c = close_timeline(&m);
	CHECK_INT(c.slices + c.left_out, 20);
	CHECK_INT(c.left_out, 4);
}

TEST(timeline, what_comes_much_too_late_is_still_there)
{
	struct made m;

	open_timeline(&m, &(struct timeline_options){0});
	for (unsigned i = 1; i < 1000; i++)
		put(&m, i * 10, i * 10 + 5);
	put(&m, 1, 2);
	struct timeline_counts c = close_timeline(&m);
	CHECK_INT(c.slices, 1000);
	CHECK_INT(c.tracks, 4); /* the late one has a lane of its own */
}

TEST(timeline, time_and_ranks_that_were_not_asked_for)
{
	struct made m;
	bool ranks[2] = {true, false};

	open_timeline(&m, &(struct timeline_options){.from_ns = START + 100,
						     .to_ns = START + 200,
						     .ranks = ranks,
						     .nranks = 2});
	put(&m, 10, 99);
	put(&m, 90, 110);
	put(&m, 201, 300);
	CHECK(!timeline_process(m.t, NULL, 8, 1, NULL));
	CHECK(!timeline_process(m.t, NULL, 9, -1, NULL));
	struct timeline_counts c = close_timeline(&m);
	CHECK_INT(c.slices, 1);
	CHECK_INT(c.outside, 2);
	CHECK_INT(c.processes, 1);
}

TEST(timeline, slices_without_an_end_end_with_the_file)
{
	struct made m;
	struct timeline_event e = {.name = "f"};

	open_timeline(&m, &(struct timeline_options){0});
	timeline_begin(m.k, START, &e);
	timeline_begin(m.k, START + 5, &e);
	timeline_end(m.k, START + 9);
	timeline_end(m.k, START + 8); /* goes back: ends where it can */
	timeline_end(m.k, START + 10); /* nothing is open */
	timeline_begin(m.k, START + 20, &e);
	struct timeline_counts c = close_timeline(&m);
	CHECK_INT(c.slices, 3);
}

TEST(timeline, two_hosts_may_have_the_same_pid)
{
	struct made m;

	open_timeline(&m, &(struct timeline_options){0});
	struct timeline_process *a = timeline_process(m.t, "a", 5, 0, NULL);
	struct timeline_process *b = timeline_process(m.t, "b", 5, 0, NULL);
	CHECK(a != b);
	CHECK(timeline_process(m.t, "a", 5, -1, NULL) == timeline_process(m.t, "a", 5, 3, NULL));
	CHECK(timeline_flow(a, 1) != timeline_flow(b, 1));
	CHECK_INT(timeline_flow(a, 0), 0);
	close_timeline(&m);
}

TEST(timeline, open_slices_are_cut_to_the_time_that_was_asked_for)
{
	struct made m;
	struct timeline_event e = {.name = "f"};

	open_timeline(&m, &(struct timeline_options){.from_ns = START + 10, .to_ns = START + 20});
	timeline_begin(m.k, START, &e); /* still runs at 10 */
	timeline_begin(m.k, START + 1, &e);
	timeline_end(m.k, START + 5); /* over before */
	timeline_begin(m.k, START + 25, &e); /* begins behind it */
	timeline_end(m.k, START + 26);
	timeline_end(m.k, START + 30);
	struct timeline_counts c = close_timeline(&m);
	CHECK_INT(c.slices, 1);
	CHECK_INT(c.first_ns, START + 10);
	CHECK_INT(c.last_ns, START + 20);
}
