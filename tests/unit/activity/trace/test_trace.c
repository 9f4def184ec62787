/* SPDX-License-Identifier: MulanPSL-2.0 */
/* nputrace: what is in the trace of some steps, and in which files. */
#include "activities.h"
#include "activity/trace/trace.h"
#include "base/fs.h"
#include "tmpdir.h"

#include <dirent.h>
#include <pthread.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define MS 1000000ull
#define HASH_NAMES 40

/* --- a process that traces --- */

static struct stage st;

static void begin(const char *more)
{
	char name[32];

	stage_open(&st);
	for (unsigned i = 1; i < HASH_NAMES; i++) {
		snprintf(name, sizeof(name), "n%u", i);
		stage_name(&st, i, name);
	}
	stage_trace(&st, 10 * MS, more);
}

static void step_begins(uint64_t ns, uint64_t number)
{
	RECORD(&st.recs, REC_MONITOR, rec_monitor, ns, .kind = MONITOR_STEP, .window = 1,
	       .value = number, .rank = 3);
	stage_tell(&st);
}

static void api(uint64_t name, uint64_t from, uint64_t id)
{
	ACTIVITY(&st, ACTIVITY_RUNTIME_API, from, from + MS / 10, .name = name, .correlation = id,
		 ON_HOST(77, 7));
	stage_tell(&st);
}

static void kernel(uint64_t name, uint64_t from, uint64_t to, uint64_t id)
{
	ACTIVITY(&st, ACTIVITY_KERNEL, from, to, .name = name, .correlation = id, ON_DEVICE(1, 2));
	stage_tell(&st);
}

static void finish(void)
{
	stage_stop(&st, 400 * MS);
	stage_close(&st);
}

/* --- what it left --- */

static const json_t *event(const json_t *trace, const char *name, const char *phase)
{
	const json_t *list = json_object_get(trace, "traceEvents"), *found = NULL, *e;
	size_t i;

	json_array_foreach(list, i, e)
	{
		const char *n = json_string_value(json_object_get(e, "name"));
		const char *ph = json_string_value(json_object_get(e, "ph"));

		if (n && !strcmp(n, name) && ph && !strcmp(ph, phase))
			found = e;
	}
	return found;
}

/* "n1 n4 …": which of the names have an event with an extent, or an instant. */
static const char *names_in(const json_t *trace)
{
	static char text[512];
	char name[16];

	text[0] = '\0';
	for (unsigned i = 1; i < HASH_NAMES; i++) {
		snprintf(name, sizeof(name), "n%u", i);
		if (event(trace, name, "X") || event(trace, name, "i"))
			snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%s",
				 *text ? " " : "", name);
	}
	return text;
}

static const char *names(void)
{
	json_t *trace = stage_load("trace.json");
	const char *text = names_in(trace);

	json_decref(trace);
	return text;
}

static const json_t *at(const json_t *o, const char *a, const char *b)
{
	return json_object_get(json_object_get(o, a), b);
}

/* --- the steps --- */

/* See the drawing in activity/trace/trace.c. */
static void some_steps(void)
{
	step_begins(20 * MS, 4);
	api(1, 25 * MS, 1); /* launched before, runs in it */
	api(2, 60 * MS, 0); /* in step 4, launches nothing */
	kernel(20, 30 * MS, 40 * MS, 9); /* over before it begins */
	step_begins(100 * MS, 5);
	kernel(21, 95 * MS, 120 * MS, 1); /* launched by n1 */
	api(3, 101 * MS, 2);
	kernel(22, 120 * MS, 150 * MS, 2);
	kernel(23, 160 * MS, 170 * MS, 77); /* nobody knows who launched it: by its time */
	step_begins(200 * MS, 6);
	api(4, 290 * MS, 3); /* runs after the last step */
	step_begins(300 * MS, 7);
	kernel(24, 305 * MS, 325 * MS, 3); /* told before its launch is fine, too */
	api(5, 301 * MS, 4);
	kernel(25, 325 * MS, 330 * MS, 4);
	kernel(26, 331 * MS, 332 * MS, 78);
	step_begins(390 * MS, 8);
}

TEST(activity_trace, exactly_the_steps)
{
	begin("");
	some_steps();
	finish();
	CHECK_STR(names(), "n3 n4 n22 n23 n24");
	json_t *trace = stage_load("trace.json");
	const json_t *s = event(trace, "ProfilerStep#5", "X");
	CHECK(s && event(trace, "ProfilerStep#6", "X") && !event(trace, "ProfilerStep#7", "X"));
	CHECK(!event(trace, "ProfilerStep#4", "X"));
	CHECK_INT(json_number_value(json_object_get(s, "dur")), 100000);
	CHECK_INT(json_integer_value(at(trace, "distributedInfo", "rank")), 3);
	CHECK_STR(json_string_value(at(trace, "sonde", "request")), "4711");
	CHECK_INT(json_integer_value(at(trace, "sonde", "start_step")), 5);
	CHECK_INT(json_integer_value(at(trace, "sonde", "stop_step")), 7);
	CHECK(json_is_true(at(trace, "sonde", "complete")));
	CHECK_STR(json_string_value(
			  json_object_get(at(trace, "sonde", "asked"), "ACTIVITIES_ITERATIONS")),
		  "2");
	json_decref(trace);
	CHECK(!stage_left(".tmp"));
	struct stat info;
	CHECK(stat(stage_left("_sonde"), &info) == 0 && (info.st_mode & 0777) == (0750 & 0777));
}

static int count_rows(void *arg, int n, char **values, char **columns)
{
	(void)n;
	(void)columns;
	*(long *)arg = strtol(values[0], NULL, 10);
	return 0;
}

TEST(activity_trace, the_db_has_the_same)
{
	DIR *d;
	struct dirent *e;
	sqlite3 *db = NULL;
	long rows = -1;

	begin("");
	some_steps();
	finish();
	d = opendir(stage_left("_sonde"));
	while ((e = readdir(d)))
		if (strstr(e->d_name, ".db")) {
			char path[4096];

			snprintf(path, sizeof(path), "%s/%s", stage_left("_sonde"), e->d_name);
			CHECK_INT(sqlite3_open(path, &db), SQLITE_OK);
		}
	closedir(d);
	CHECK(db);
	CHECK_INT(
		sqlite3_exec(db, "SELECT count(*) FROM COMPUTE_TASK_INFO", count_rows, &rows, NULL),
		SQLITE_OK);
	CHECK_INT(rows, 3);
	CHECK_INT(sqlite3_exec(db, "SELECT count(*) FROM CANN_API", count_rows, &rows, NULL),
		  SQLITE_OK);
	CHECK_INT(rows, 2);
	sqlite3_close(db);
}

/* The device is busy in the steps with what was launched before, too, and after them. */
TEST(activity_trace, summary_of_the_steps)
{
	begin("PROFILE_ANALYSE=true");
	some_steps();
	finish();
	json_t *o = stage_load("summary.json");
	json_t *steps = json_object_get(json_array_get(json_object_get(o, "devices"), 0), "steps");
	CHECK_INT(json_array_size(steps), 2);
	CHECK_INT(number_in(json_array_get(steps, 0), "compute_ns"), 60 * MS);
	CHECK_INT(number_in(json_array_get(steps, 0), "idle_ns"), 40 * MS);
	CHECK_INT(number_in(json_array_get(steps, 1), "idle_ns"), 100 * MS);
	CHECK_INT(number_in(o, "after_ns"), 20 * MS);
	CHECK_INT(json_array_size(json_object_get(o, "kernels")), 3);
	json_decref(o);
	char path[4096];
	snprintf(path, sizeof(path), "%s/summary.txt", stage_left("_sonde"));
	CHECK(access(path, R_OK) == 0);
	CHECK(access(tmpfile_path("out/summary_4711.txt"), R_OK) == 0);
	CHECK(access(tmpfile_path("out/summary_4711.json"), R_OK) == 0);
}

TEST(activity_trace, the_next_step)
{
	begin("PROFILE_START_STEP=-1\nACTIVITIES_ITERATIONS=1");
	api(1, 15 * MS, 1);
	step_begins(20 * MS, 4);
	api(2, 25 * MS, 2);
	step_begins(30 * MS, 5);
	api(3, 35 * MS, 3);
	finish();
	CHECK_STR(names(), "n2");
	json_t *trace = stage_load("trace.json");
	CHECK_INT(json_integer_value(at(trace, "sonde", "start_step")), 4);
	CHECK_INT(json_integer_value(at(trace, "sonde", "stop_step")), 5);
	json_decref(trace);
}

TEST(activity_trace, a_time_instead_of_steps)
{
	begin("ACTIVITIES_ITERATIONS=0\nACTIVITIES_DURATION_MSECS=50\nPROFILE_START_STEP=-1");
	api(1, 12 * MS, 1);
	step_begins(20 * MS, 4);
	kernel(20, 30 * MS, 35 * MS, 1);
	api(2, 61 * MS, 2);
	finish();
	CHECK_STR(names(), "n1 n20");
	json_t *o = stage_load("summary.json");
	json_t *step = json_array_get(json_object_get(o, "steps"), 0);
	CHECK_INT(number_in(step, "end_ns") - number_in(step, "start_ns"), 50 * MS);
	CHECK(json_is_null(json_object_get(step, "step")) &&
	      json_is_true(json_object_get(step, "whole")));
	json_decref(o);
}

/* Making ready takes a while: the guest tells when the time begins. */
TEST(activity_trace, a_time_that_begins_later)
{
	begin("ACTIVITIES_ITERATIONS=0\nACTIVITIES_DURATION_MSECS=50\nPROFILE_START_STEP=-1");
	api(1, 12 * MS, 1);
	step_begins(40 * MS, 0);
	api(2, 41 * MS, 2);
	api(3, 91 * MS, 3);
	step_begins(92 * MS, 1);
	api(4, 93 * MS, 4);
	finish();
	CHECK_STR(names(), "n2");
}

TEST(activity_trace, killed_in_a_step)
{
	begin("PROFILE_ANALYSE=true");
	step_begins(100 * MS, 5);
	api(1, 110 * MS, 1);
	kernel(20, 120 * MS, 130 * MS, 1);
	step_begins(200 * MS, 6);
	api(2, 210 * MS, 2);
	stage_end(&st);
	stage_close(&st);
	CHECK_STR(names(), "n1 n2 n20");
	json_t *trace = stage_load("trace.json");
	CHECK(json_is_false(at(trace, "sonde", "complete")));
	CHECK(strstr(json_string_value(at(trace, "sonde", "note")), "killed"));
	json_decref(trace);
	json_t *o = stage_load("summary.json"), *steps = json_object_get(o, "steps");
	CHECK_INT(json_array_size(steps), 2);
	CHECK(json_is_true(json_object_get(json_array_get(steps, 0), "whole")));
	CHECK(json_is_false(json_object_get(json_array_get(steps, 1), "whole")));
	json_decref(o);
}

/* Its steps are over, and what the device did in them was still on its way. */
TEST(activity_trace, killed_after_the_last_step)
{
	begin("");
	step_begins(100 * MS, 5);
	api(1, 110 * MS, 1);
	step_begins(200 * MS, 6);
	step_begins(300 * MS, 7);
	stage_end(&st);
	stage_close(&st);
	json_t *trace = stage_load("trace.json");
	CHECK(json_is_true(at(trace, "sonde", "complete")));
	CHECK_STR(json_string_value(at(trace, "sonde", "note")),
		  "the process was killed or ended after the last step: what its device had not "
		  "reported is missing");
	json_decref(trace);
}

static void *lift_limit(void *arg)
{
	usleep(250000);
	CHECK_INT(setrlimit(RLIMIT_NOFILE, arg), 0);
	return NULL;
}

/* There is no descriptor left, and a moment later there are some. */
TEST(activity_trace, descriptors_come_back)
{
	struct rlimit limit, none;
	pthread_t thread;

	begin("");
	some_steps();
	CHECK_INT(getrlimit(RLIMIT_NOFILE, &limit), 0);
	none = (struct rlimit){3, limit.rlim_max};
	CHECK_INT(pthread_create(&thread, NULL, lift_limit, &limit), 0);
	CHECK_INT(setrlimit(RLIMIT_NOFILE, &none), 0);
	finish();
	pthread_join(thread, NULL);
	CHECK(stage_left("_sonde") && !stage_left(".tmp") && !stage_left(".error.txt"));
}

TEST(activity_trace, nothing_without_a_step)
{
	begin("");
	step_begins(20 * MS, 4);
	api(1, 25 * MS, 1);
	finish();
	CHECK(!stage_left("_sonde") && !stage_left(".tmp"));
}

TEST(activity_trace, nothing_without_a_place)
{
	begin("ACTIVITIES_LOG_FILE=relative/out");
	some_steps();
	finish();
	CHECK(!stage_left("_sonde"));
	CHECK(access("relative", F_OK) < 0);
}

TEST(activity_trace, what_is_left_of_killed_recorders_goes)
{
	char stale[4096], *host = trace_host_name();

	snprintf(stale, sizeof(stale), "%s/out", tmpdir());
	mkdir(stale, 0750);
	/* No process has a number so high. */
	snprintf(stale, sizeof(stale), "%s/out/.%s_1_2_sonde.999999999.tmp", tmpdir(), host);
	CHECK(mkdir(stale, 0750) == 0);
	free(host);
	begin("");
	some_steps();
	finish();
	CHECK(stage_left("_sonde") && !stage_left(".tmp"));
}

TEST(activity_trace, what_has_no_place_is_counted)
{
	trace_max_activities = 3;
	begin("PROFILE_ANALYSE=true");
	some_steps();
	finish();
	json_t *trace = stage_load("trace.json");
	CHECK(json_integer_value(at(trace, "sonde", "left_out")) > 0);
	CHECK(strstr(json_string_value(at(trace, "sonde", "note")), "had no place"));
	json_decref(trace);
}

/* --- what was asked for --- */

TEST(activity_trace, host_or_device_alone)
{
	begin("PROFILE_ACTIVITIES=CPU");
	some_steps();
	finish();
	CHECK_STR(names(), "n3 n4");
}

/* Launches still decide. */
TEST(activity_trace, device_alone)
{
	begin("PROFILE_ACTIVITIES=NPU");
	some_steps();
	finish();
	CHECK_STR(names(), "n22 n23 n24");
}

static void some_marks(void)
{
	step_begins(100 * MS, 5);
	MARK(&st, ACTIVITY_MARK_START, 110 * MS, 1, .name = 1, .detail = 30, ON_HOST(77, 7));
	MARK(&st, ACTIVITY_MARK_END, 120 * MS, 1, ON_HOST(77, 7));
	MARK(&st, ACTIVITY_MARK_INSTANT, 130 * MS, 2, .name = 2, .detail = 31, ON_HOST(77, 7));
	MARK(&st, ACTIVITY_MARK_INSTANT, 130 * MS, 3, .name = 3, ON_HOST(77, 7));
	MARK(&st, ACTIVITY_MARK_INSTANT, 90 * MS, 4, .name = 4, ON_HOST(77, 7));
	TEXT_RECORD(&st.recs, REC_MARK, rec_mark, 131 * MS, "n5", 2, .kind = MARK_INSTANT);
	stage_tell(&st);
	step_begins(300 * MS, 7);
}

TEST(activity_trace, marks_only_if_asked_for)
{
	begin("");
	some_marks();
	finish();
	CHECK_STR(names(), "");
}

TEST(activity_trace, marks)
{
	begin("PROFILE_MSPROF_TX=true");
	some_marks();
	finish();
	CHECK_STR(names(), "n1 n2 n3");
}

TEST(activity_trace, marks_of_domains)
{
	begin("PROFILE_MSPROF_TX=true\nPROFILE_MSTX_DOMAIN_INCLUDE=n30,default\n"
	      "PROFILE_MSTX_DOMAIN_EXCLUDE=n30");
	some_marks();
	finish();
	CHECK_STR(names(), "n1 n3");
}

TEST(activity_trace, marks_of_all_but_a_domain)
{
	begin("PROFILE_MSPROF_TX=true\nPROFILE_MSTX_DOMAIN_EXCLUDE=n30,default");
	some_marks();
	finish();
	CHECK_STR(names(), "n2");
}

/* Where no library of a device tells marks, those of records are there; pauses of the collector
 * by their length. */
TEST(activity_trace, marks_of_records)
{
	begin("PROFILE_MSPROF_TX=true\nPROFILE_MSTX_DOMAIN_EXCLUDE=python\n"
	      "PROFILE_GC_DETECT_THRESHOLD=5");
	step_begins(100 * MS, 5);
	TEXT_RECORD(&st.recs, REC_MARK, rec_mark, 110 * MS, "n1", 2, .kind = MARK_RANGE_START,
		    .range = 8);
	TEXT_RECORD(&st.recs, REC_MARK, rec_mark, 111 * MS, "gc\0python", 9,
		    .kind = MARK_RANGE_START, .range = 9);
	TEXT_RECORD(&st.recs, REC_MARK, rec_mark, 120 * MS, "", 0, .kind = MARK_RANGE_END,
		    .range = 9);
	TEXT_RECORD(&st.recs, REC_MARK, rec_mark, 121 * MS, "gc\0python", 9,
		    .kind = MARK_RANGE_START, .range = 10);
	TEXT_RECORD(&st.recs, REC_MARK, rec_mark, 122 * MS, "", 0, .kind = MARK_RANGE_END,
		    .range = 10);
	TEXT_RECORD(&st.recs, REC_MARK, rec_mark, 130 * MS, "", 0, .kind = MARK_RANGE_END,
		    .range = 8);
	TEXT_RECORD(&st.recs, REC_MARK, rec_mark, 131 * MS, "n2\0n30", 6, .kind = MARK_INSTANT);
	stage_tell(&st);
	step_begins(300 * MS, 7);
	finish();
	json_t *trace = stage_load("trace.json");
	CHECK_STR(names_in(trace), "n1 n2");
	CHECK_INT(json_number_value(json_object_get(event(trace, "n1", "X"), "dur")), 20000);
	CHECK_INT(json_number_value(json_object_get(event(trace, "gc", "X"), "dur")), 9000);
	json_decref(trace);
}

/* The monitor tells them as a source tells its marks: that is no reason to leave out others. */
TEST(activity_trace, pauses_of_the_collector)
{
	begin("PROFILE_MSPROF_TX=true\nPROFILE_GC_DETECT_THRESHOLD=5");
	step_begins(100 * MS, 5);
	stage_name(&st, 500, "gc");
	stage_name(&st, 501, "python");
	for (unsigned i = 0; i < 2; i++) {
		MARK(&st, ACTIVITY_MARK_START, (110 + 10 * i) * MS, 50 + i, .name = 500,
		     .detail = 501);
		MARK(&st, ACTIVITY_MARK_END, (114 + 11 * i) * MS, 50 + i);
	}
	TEXT_RECORD(&st.recs, REC_MARK, rec_mark, 131 * MS, "n2", 2, .kind = MARK_INSTANT);
	stage_tell(&st);
	step_begins(300 * MS, 7);
	finish();
	json_t *trace = stage_load("trace.json");
	CHECK_INT(json_number_value(json_object_get(event(trace, "gc", "X"), "dur")), 5000);
	CHECK_STR(names_in(trace), "n2");
	json_decref(trace);
}

/* What the process could not do, and what nobody could see. */
TEST(activity_trace, notes)
{
	begin("PROFILE_WITH_STACK=true");
	step_begins(100 * MS, 5);
	stage_monitor(&st, 101 * MS, MONITOR_NOTE, 1, "PROFILE_X is \xff too much");
	stage_monitor(&st, 101 * MS, MONITOR_NOTE, 2, "PROFILE_Y of another window");
	stage_monitor(&st, 101 * MS, MONITOR_NOTE, 1, "PROFILE_ACTIVITIES the device was busy");
	for (unsigned i = 0; i < 1000; i++) /* it stays small */
		stage_monitor(&st, 102 * MS, MONITOR_NOTE, 1, "PROFILE_X again and again");
	stage_tell(&st);
	step_begins(300 * MS, 7);
	finish();
	json_t *trace = stage_load("trace.json");
	const json_t *refused = at(trace, "sonde", "not_honoured");
	const char *note = json_string_value(at(trace, "sonde", "note"));
	size_t n = json_array_size(refused);
	CHECK(n > 10 && n < 500);
	CHECK_STR(json_string_value(json_array_get(refused, 0)), "PROFILE_X");
	CHECK_STR(json_string_value(json_array_get(refused, n - 1)), "PROFILE_WITH_STACK");
	CHECK(strstr(note, "; --x: is ") && !strstr(note, "PROFILE_") && !strstr(note, "--y"));
	CHECK(strstr(note, "; the device was busy;") != NULL);
	CHECK(!strncmp(note, "no calls of Python for --with-stack: ", 37));
	json_decref(trace);
}

TEST(activity_trace, memory)
{
	begin("PROFILE_PROFILE_MEMORY=true");
	step_begins(100 * MS, 5);
	RECORD(&st.recs, REC_ALLOC, rec_alloc, 110 * MS, .addr = 1, .size_bytes = 1000, .device = 1,
	       .pool = POOL_PTA);
	RECORD(&st.recs, REC_FREE, rec_free, 111 * MS, .addr = 99, .device = 1, .pool = POOL_PTA);
	RECORD(&st.recs, REC_ALLOC, rec_alloc, 112 * MS, .addr = 1, .size_bytes = 5000, .device = 1,
	       .pool = POOL_HAL);
	RECORD(&st.recs, REC_FREE, rec_free, 120 * MS, .addr = 1, .device = DEV_NONE,
	       .pool = POOL_PTA);
	stage_tell(&st);
	step_begins(300 * MS, 7);
	finish();
	json_t *trace = stage_load("trace.json");
	const json_t *pta = event(trace, "memory PTA, device 1", "C");
	CHECK(pta && json_number_value(at(pta, "args", "bytes")) == 0);
	const json_t *hal = event(trace, "memory HAL, device 1", "C");
	CHECK(hal && json_number_value(at(hal, "args", "bytes")) == 5000);
	json_decref(trace);
	struct buf text = {0};
	char path[4096];
	snprintf(path, sizeof(path), "%s/memory.csv", stage_left("_sonde"));
	CHECK_INT(fs_read_file(path, 1 << 20, &text, NULL), 0);
	CHECK(strstr(buf_str(&text), ",MALLOC,PTA,1,7,0x0000000000000001,1000,1000\n"));
	CHECK(strstr(buf_str(&text), ",FREE,PTA,1,7,0x0000000000000063,N/A,N/A\n"));
	CHECK(strstr(buf_str(&text), ",FREE,PTA,1,7,0x0000000000000001,1000,0\n"));
	buf_release(&text);
}

TEST(activity_trace, calls_of_python)
{
	begin("PROFILE_WITH_STACK=true");
	TEXT_RECORD(&st.recs, REC_PYTHON, rec_python, 5 * MS, "outer\0a.py", 10, .id = 11,
		    .line = 3);
	TEXT_RECORD(&st.recs, REC_PYTHON, rec_python, 5 * MS, "inner\0a.py", 10, .id = 12,
		    .line = 9);
	step_begins(100 * MS, 5);
	RECORD(&st.recs, REC_CALL, rec_call, 110 * MS, .kind = CALL_PYTHON, .place = 11);
	RECORD(&st.recs, REC_CALL, rec_call, 111 * MS, .kind = CALL_PYTHON, .place = 12);
	RECORD(&st.recs, REC_CALL, rec_call, 112 * MS, .kind = CALL_C, .name = 6);
	/* The end of inner is lost. */
	RECORD(&st.recs, REC_CALL, rec_call, 113 * MS, .kind = CALL_C_RETURN, .name = 6);
	RECORD(&st.recs, REC_CALL, rec_call, 120 * MS, .kind = CALL_RETURN, .place = 11);
	stage_tell(&st);
	step_begins(300 * MS, 7);
	finish();
	json_t *trace = stage_load("trace.json");
	const json_t *outer = event(trace, "a.py(3): outer", "X");
	CHECK(outer && json_number_value(json_object_get(outer, "dur")) == 10000);
	CHECK_INT(json_integer_value(json_object_get(outer, "tid")), 7);
	const json_t *inner = event(trace, "a.py(9): inner", "X");
	CHECK(inner && json_number_value(json_object_get(inner, "dur")) == 9000);
	CHECK(json_number_value(json_object_get(event(trace, "n6", "X"), "dur")) == 1000);
	json_decref(trace);
}

TEST(activity_trace, what_the_host_does)
{
	uint64_t now = 100 * MS;

	begin("PROFILE_HOST_SYS=cpu,mem,disk,network,osrt\nPROFILE_L2_CACHE=true");
	step_begins(now, 5);
	for (unsigned i = 0; i < 4; i++)
		activities_tick(st.a, now += 60 * MS);
	step_begins(300 * MS, 7);
	finish();
	json_t *trace = stage_load("trace.json");
	CHECK(event(trace, "memory used", "C"));
	CHECK(event(trace, "disk read", "C") && event(trace, "network in", "C"));
	const json_t *refused = at(trace, "sonde", "not_honoured");
	CHECK_INT(json_array_size(refused), 2);
	CHECK_STR(json_string_value(json_array_get(refused, 0)), "PROFILE_L2_CACHE");
	CHECK_STR(json_string_value(json_array_get(refused, 1)), "PROFILE_HOST_SYS=osrt");
	json_decref(trace);
}

/* What comes from a process may be anything. */
TEST(activity_trace, odd_requests)
{
	begin("PROFILE_ANALYSE=true\nREQUEST_TRACE_ID=../../x\nPROFILE_ANALYSE=true");
	some_steps();
	step_begins(391 * MS, 2);
	finish();
	/* The daemon's own line is the last, and counts. */
	CHECK(access(tmpfile_path("out/summary_4711.txt"), R_OK) == 0);
}
