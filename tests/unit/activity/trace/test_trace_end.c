/* SPDX-License-Identifier: MulanPSL-2.0 */
/* nputrace: a trace that somebody has ended before its last step. */
#include "activities.h"
#include "activity/trace/trace.h"
#include "tmpdir.h"

#define MS 1000000ull

static struct stage st;

static void begin(const char *more)
{
	static const char *const names[] = {"launch", "late launch", "kernel", "late kernel"};

	stage_open(&st);
	for (unsigned i = 0; i < 4; i++)
		stage_name(&st, i + 1, names[i]);
	stage_trace(&st, 10 * MS, more);
}

static void step_begins(uint64_t ns, uint64_t number)
{
	RECORD(&st.recs, REC_MONITOR, rec_monitor, ns, .kind = MONITOR_STEP, .window = 1,
	       .value = number, .rank = 3);
	stage_tell(&st);
}

/* At that time, and its kernel some time later. */
static void launch(uint64_t ns, uint64_t kernel_ns, uint64_t id, bool late)
{
	ACTIVITY(&st, ACTIVITY_RUNTIME_API, ns, ns + MS / 10, .name = 1 + late, .correlation = id,
		 ON_HOST(77, 7));
	ACTIVITY(&st, ACTIVITY_KERNEL, kernel_ns, kernel_ns + 5 * MS, .name = 3 + late,
		 .correlation = id, ON_DEVICE(1, 2));
	stage_tell(&st);
}

static void finish(void)
{
	stage_stop(&st, 400 * MS);
	stage_close(&st);
}

/* --- what it left --- */

/* How many events have this name; *out_us: how long the last of them is. */
static unsigned events(const json_t *trace, const char *name, double *out_us)
{
	const json_t *e;
	unsigned n = 0;
	size_t i;

	json_array_foreach(json_object_get(trace, "traceEvents"), i, e)
	{
		const char *is = json_string_value(json_object_get(e, "name"));
		const char *phase = json_string_value(json_object_get(e, "ph"));

		if (!is || strcmp(is, name) || !phase || strcmp(phase, "X"))
			continue;
		n++;
		if (out_us)
			*out_us = json_number_value(json_object_get(e, "dur"));
	}
	return n;
}

/* Its note; *out_us: the length of the step, which is there. */
static const char *note(const char *step, double *out_us)
{
	static char text[512];
	json_t *trace = stage_load("trace.json"), *about = json_object_get(trace, "sonde");

	snprintf(text, sizeof(text), "%s", json_string_value(json_object_get(about, "note")));
	CHECK(json_is_false(json_object_get(about, "complete")));
	CHECK_INT(events(trace, step, out_us), 1);
	json_decref(trace);
	return text;
}

/* --- */

TEST(activity_trace_end, in_its_second_step)
{
	double us;

	begin("PROFILE_ANALYSE=true");
	step_begins(100 * MS, 5);
	launch(101 * MS, 110 * MS, 1, false);
	step_begins(200 * MS, 6);
	launch(210 * MS, 270 * MS, 2, false); /* runs when it has ended */
	stage_monitor(&st, 250 * MS, MONITOR_END, 1, "");
	launch(260 * MS, 280 * MS, 3, true);
	step_begins(300 * MS, 7); /* nobody waits for that any more */
	finish();
	CHECK_STR(note("ProfilerStep#6", &us),
		  "ended by request in step 6; steps 5 to 6 were asked for");
	CHECK_INT(us, 50000);
	json_t *trace = stage_load("trace.json"), *rank = stage_load("summary.json");
	CHECK_INT(events(trace, "launch", NULL), 2);
	CHECK_INT(events(trace, "kernel", NULL), 2);
	CHECK_INT(events(trace, "late launch", NULL) + events(trace, "late kernel", NULL), 0);
	CHECK_INT(events(trace, "ProfilerStep#7", NULL), 0);
	const json_t *steps = json_object_get(rank, "steps");
	CHECK_INT(json_array_size(steps), 2);
	CHECK(json_is_true(json_object_get(json_array_get(steps, 0), "whole")));
	CHECK(json_is_false(json_object_get(json_array_get(steps, 1), "whole")));
	CHECK(json_is_false(json_object_get(rank, "complete")));
	CHECK_STR(json_string_value(json_object_get(rank, "note")), note("ProfilerStep#5", &us));
	json_decref(trace);
	json_decref(rank);
}

/* What its device waits for is what ran in the same place of the step before. */
TEST(activity_trace_end, launches_that_do_not_run)
{
	begin("");
	step_begins(100 * MS, 5);
	launch(101 * MS, 110 * MS, 1, false);
	launch(102 * MS, 120 * MS, 2, true);
	step_begins(200 * MS, 6);
	launch(201 * MS, 210 * MS, 3, false);
	for (uint64_t i = 0; i < 4; i++) /* two, each with a call inside it */
		ACTIVITY(&st, ACTIVITY_RUNTIME_API, (202 + i) * MS, (204 + i) * MS, .name = 2,
			 .correlation = 4 + i / 2, ON_HOST(77, 7));
	stage_monitor(&st, 250 * MS, MONITOR_END, 1, "");
	stage_tell(&st);
	finish();
	json_t *rank = stage_load("summary.json");
	CHECK_INT(json_integer_value(json_object_get(rank, "not_run")), 2);
	CHECK_STR(json_string_value(json_object_get(rank, "not_run_first")), "late kernel");
	CHECK(json_is_true(json_object_get(rank, "ended_by_request")));
	json_decref(rank);
}

/* The rings of the job's threads and of ours are read one after the other. */
TEST(activity_trace_end, a_later_step_was_told_before)
{
	double us;

	begin("");
	step_begins(100 * MS, 5);
	step_begins(260 * MS, 6);
	stage_monitor(&st, 250 * MS, MONITOR_END, 1, "");
	finish();
	CHECK_STR(note("ProfilerStep#5", &us),
		  "ended by request in step 5; steps 5 to 6 were asked for");
	CHECK_INT(us, 150000);
}

TEST(activity_trace_end, its_last_step_had_ended_by_then)
{
	begin("");
	step_begins(100 * MS, 5);
	stage_monitor(&st, 250 * MS, MONITOR_END, 1, "");
	step_begins(150 * MS, 6);
	step_begins(200 * MS, 7);
	finish();
	json_t *trace = stage_load("trace.json"), *about = json_object_get(trace, "sonde");
	CHECK(json_is_true(json_object_get(about, "complete")));
	CHECK_STR(json_string_value(json_object_get(about, "note")), "");
	CHECK_INT(json_integer_value(json_object_get(about, "stop_step")), 7);
	json_decref(trace);
}

TEST(activity_trace_end, before_its_first_step)
{
	begin("");
	stage_monitor(&st, 50 * MS, MONITOR_END, 1, "");
	stage_monitor(&st, 50 * MS, MONITOR_END, 2, ""); /* nobody's */
	finish();
	CHECK(!stage_left("_sonde"));
}

TEST(activity_trace_end, in_its_only_step)
{
	double us;

	begin("ACTIVITIES_ITERATIONS=1");
	step_begins(100 * MS, 5);
	stage_monitor(&st, 250 * MS, MONITOR_END, 1, "");
	finish();
	CHECK_STR(note("ProfilerStep#5", &us), "ended by request in step 5, before its end");
}

/* What its device had not told by then is missing. */
TEST(activity_trace_end, and_killed_afterwards)
{
	double us;

	begin("");
	step_begins(100 * MS, 5);
	stage_monitor(&st, 250 * MS, MONITOR_END, 1, "");
	stage_tell(&st);
	stage_end(&st);
	stage_close(&st);
	CHECK_STR(note("ProfilerStep#5", &us),
		  "ended by request in step 5; steps 5 to 6 were asked for; the process was killed "
		  "or ended before the last step of the trace had ended");
}

TEST(activity_trace_end, a_time_instead_of_steps)
{
	double us;

	begin("ACTIVITIES_ITERATIONS=0\nACTIVITIES_DURATION_MSECS=300");
	step_begins(20 * MS, 0);
	launch(30 * MS, 40 * MS, 1, false);
	stage_monitor(&st, 120 * MS, MONITOR_END, 1, "");
	launch(130 * MS, 140 * MS, 2, true);
	finish();
	CHECK_STR(note("trace", &us), "ended by request after 100 ms; 300 ms were asked for");
	CHECK_INT(us, 100000);
	json_t *trace = stage_load("trace.json");
	CHECK_INT(events(trace, "kernel", NULL), 1);
	CHECK_INT(events(trace, "late kernel", NULL) + events(trace, "late launch", NULL), 0);
	json_decref(trace);
}
