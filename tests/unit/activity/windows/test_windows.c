/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Which activities reach a window, and what becomes of windows. */
#include "activities.h"
#include "activity/windows/names.h"
#include "tmpdir.h"

#include <dirent.h>
#include <stdint.h>

/* --- what a window gets, seen through its metrics --- */

/* What the next report says. */
static void expect_kernel(struct stage *s, long long duration)
{
	static uint64_t now_s = 1000;
	char want[64];

	activities_tick(s->a, now_s * 1000000000);
	now_s += 100;
	activities_tick(s->a, now_s * 1000000000);
	snprintf(want, sizeof(want), "\"duration\":%lld,\"kind\":\"Kernel\"", duration);
	const char *got = stage_next(s, "data");
	if (duration ? !strstr(got, want) : *got)
		fprintf(stderr, "got %s, want %s\n", got, want);
	CHECK(duration ? strstr(got, want) != NULL : !*got);
	while (stage_take(s))
		;
}

static void kernel(struct stage *s, uint64_t from, uint64_t ns, uint64_t name_)
{
	ACTIVITY(s, ACTIVITY_KERNEL, from, from + ns, .name = name_, ON_DEVICE(0, 2));
	stage_tell(s);
}

TEST(activity_windows, kinds_and_times_that_are_not_meant)
{
	struct stage s;

	stage_open(&s);
	kernel(&s, 10, 1, 0); /* there is no window */
	stage_start(&s, 100, "Kernel", "");
	ACTIVITY(&s, ACTIVITY_API, 200, 300, ON_HOST(77, 1));
	ACTIVITY(&s, 0, 200, 300, ON_HOST(77, 1));
	ACTIVITY(&s, ACTIVITY_EXTERNAL, 200, 300, ON_HOST(77, 1));
	ACTIVITY(&s, 255, 200, 300, ON_HOST(77, 1));
	kernel(&s, 80, 19, 0); /* ended before */
	kernel(&s, 80, 20, 0); /* just not */
	kernel(&s, 90, 13, 0);
	/* a beginning that the vendor did not fill in; an end before the beginning */
	ACTIVITY(&s, ACTIVITY_KERNEL, 0, 5000, ON_DEVICE(0, 2));
	ACTIVITY(&s, ACTIVITY_KERNEL, 400, 300, ON_DEVICE(0, 2));
	/* an end that nobody can know yet */
	RECORD(&s.recs, REC_ACTIVITY, rec_activity, 500, .kind = ACTIVITY_KERNEL, .start_ns = 400,
	       .end_ns = 1ull << 62, ON_DEVICE(0, 2));
	RECORD(&s.recs, REC_ACTIVITY, rec_activity, 500, .kind = ACTIVITY_KERNEL, .start_ns = 400,
	       .end_ns = UINT64_MAX, ON_DEVICE(0, 2));
	stage_tell(&s);
	expect_kernel(&s, 33);
	stage_close(&s);
}

TEST(activity_windows, filter)
{
	struct stage s;

	stage_open(&s);
	stage_name(&s, 1, "MatMul_1");
	stage_name(&s, 2, "Add");
	stage_start(&s, 100, "Kernel,API", "NPU_MONITOR_FILTER=Kernel:MatMul,Sub\n");
	for (unsigned i = 0; i < 3; i++) {
		kernel(&s, 200, 10, 1);
		kernel(&s, 200, 100, 2);
		kernel(&s, 200, 1000, 0);
		ACTIVITY(&s, ACTIVITY_API, 200, 300, .name = 1, ON_HOST(77, 1));
	}
	expect_kernel(&s, 30);
	/* another one, while it runs */
	stage_monitor(&s, 300, MONITOR_CHANGE, 1,
		      stage_order(&s, "Kernel", "NPU_MONITOR_FILTER=Kernel:Add\n"));
	kernel(&s, 200, 10, 1);
	kernel(&s, 200, 100, 2);
	expect_kernel(&s, 100);
	/* none */
	stage_monitor(&s, 300, MONITOR_CHANGE, 1, stage_order(&s, "Kernel", ""));
	kernel(&s, 200, 10, 1);
	kernel(&s, 200, 100, 2);
	expect_kernel(&s, 110);
	stage_close(&s);
}

/* Marks are tested by their beginning; all that belongs to it goes with it. */
TEST(activity_windows, filter_of_marks)
{
	struct stage s;

	stage_open(&s);
	stage_name(&s, 1, "loader");
	stage_name(&s, 2, "step");
	stage_start(&s, 100, "Marker", "NPU_MONITOR_FILTER=Marker:step\n");
	for (uint64_t i = 1; i < 3; i++) {
		MARK(&s, ACTIVITY_MARK_START_DEVICE, 200, i, .name = i, ON_HOST(77, 8));
		MARK(&s, ACTIVITY_MARK_START_DEVICE, 230, i, ON_DEVICE(1, 2));
		MARK(&s, ACTIVITY_MARK_END_DEVICE, 240, i, ON_HOST(77, 8));
		MARK(&s, ACTIVITY_MARK_END_DEVICE, 290, i, ON_DEVICE(1, 2));
	}
	MARK(&s, ACTIVITY_MARK_END, 300, 77, ON_HOST(77, 8)); /* of nobody */
	MARK(&s, ACTIVITY_MARK_START_DEVICE, 300, 78, ON_DEVICE(1, 2));
	MARK(&s, ACTIVITY_MARK_END_DEVICE, 300, 78, ON_DEVICE(1, 2));
	stage_stop(&s, 400);
	activities_flush(s.a);
	unsigned n = 0;
	while (*stage_next(&s, "data")) {
		CHECK(strstr(s.payload, "\"name\":\"step\""));
		n++;
	}
	CHECK_INT(n, 2);
	stage_close(&s);
}

TEST(activity_windows, an_order_in_pieces)
{
	struct stage s;
	char piece[2] = "";

	stage_open(&s);
	for (const char *text = stage_order(&s, "Kernel", ""); *text; text++) {
		piece[0] = *text;
		stage_monitor(&s, 90, MONITOR_REQUEST, 1, piece);
	}
	stage_monitor(&s, 100, MONITOR_START, 1, "");
	kernel(&s, 200, 10, 0);
	expect_kernel(&s, 10);
	stage_close(&s);
}

TEST(activity_windows, orders_that_are_none)
{
	struct stage s;
	char piece[1001];

	stage_open(&s);
	memset(piece, 'x', 1000);
	piece[1000] = 0;
	stage_monitor(&s, 100, MONITOR_START, 1, "");
	stage_monitor(&s, 100, MONITOR_START, 2, "NPU_MONITOR_START=perhaps\n");
	stage_monitor(&s, 100, MONITOR_CHANGE, 9, stage_order(&s, "Kernel", ""));
	stage_monitor(&s, 100, MONITOR_STOP, 10, "");
	for (unsigned i = 0; i < 100; i++)
		stage_monitor(&s, 100, MONITOR_REQUEST, 1, piece);
	stage_monitor(&s, 100, MONITOR_START, 3, stage_order(&s, "Kernel", ""));
	RECORD(&s.recs, REC_MONITOR, rec_monitor, 100, .kind = 77, .window = 1);
	kernel(&s, 200, 10, 0);
	expect_kernel(&s, 0);
	/* the next one is carried out; one that cannot be changes nothing */
	stage_start(&s, 100, "Kernel", "");
	stage_monitor(&s, 100, MONITOR_CHANGE, 1, "NPU_MONITOR_START=perhaps\n");
	stage_monitor(&s, 100, MONITOR_CHANGE, 1, "ACTIVITIES_LOG_FILE=/tmp\n");
	kernel(&s, 200, 10, 0);
	expect_kernel(&s, 10);
	stage_close(&s);
}

TEST(activity_windows, several_at_a_time)
{
	struct stage s;

	stage_open(&s);
	stage_start(&s, 100, "Kernel", "");
	stage_monitor(&s, 100, MONITOR_START, 2, stage_order(&s, "API", ""));
	for (uint64_t id = 3; id < 40; id++)
		stage_monitor(&s, 100, MONITOR_START, id, stage_order(&s, "Hccl", ""));
	kernel(&s, 200, 10, 0);
	ACTIVITY(&s, ACTIVITY_API, 200, 205, ON_HOST(77, 1));
	stage_monitor(&s, 210, MONITOR_STOP, 2, "");
	stage_tell(&s);
	activities_tick(s.a, 1000);
	CHECK(strstr(stage_next(&s, "data"), "\"duration\":5,\"kind\":\"API\""));
	CHECK_STR(stage_next(&s, "data"), "");
	/* the same window once more: the first is closed */
	stage_start(&s, 220, "Kernel", "");
	activities_tick(s.a, 2000);
	CHECK(strstr(stage_next(&s, "data"), "\"duration\":10,\"kind\":\"Kernel\""));
	stage_close(&s);
}

TEST(activity_windows, processes_are_apart)
{
	struct stage s;
	struct buf batch = {0}, recs = {0};

	stage_open(&s);
	stage_proc(&s, 4000000000u, 78);
	stage_start(&s, 100, "Kernel", "");
	RECORD(&recs, REC_ACTIVITY, rec_activity, 500, .kind = ACTIVITY_KERNEL, .start_ns = 400,
	       .end_ns = 401, ON_DEVICE(0, 2));
	add_run(&batch, 4000000000u, 7, &recs);
	add_run(&batch, 5, 7, &recs); /* nobody */
	stage_frame(&s, FRAME_BATCH, batch.data, batch.len);
	kernel(&s, 200, 10, 0);
	expect_kernel(&s, 10);
	stage_proc(&s, 0, 79); /* the same number once more */
	kernel(&s, 200, 10, 0);
	expect_kernel(&s, 0);
	stage_end(&s);
	stage_end(&s);
	buf_release(&batch);
	buf_release(&recs);
	stage_close(&s);
}

/*
 * A number in every name of a kernel: those that are used stay, and what the filter said about one
 * that has gone is not said about the one that comes in its place.
 */
TEST(activity_windows, endless_names)
{
	struct stage s;
	char name[32];
	uint64_t last = NAMES_MAX + NAMES_MAX / 2, kept = 0;

	stage_open(&s);
	stage_name(&s, 1, "always");
	stage_start(&s, 100, "Kernel,Marker", "NPU_MONITOR_FILTER=Kernel:k,always;Marker:open\n");
	stage_name(&s, 2, "open");
	MARK(&s, ACTIVITY_MARK_START, 150, 1, .name = 2, ON_HOST(77, 8));
	for (uint64_t i = 10; i <= last; i++) {
		snprintf(name, sizeof(name), "%c%llu", i % 3 ? 'k' : 'x', (unsigned long long)i);
		stage_name(&s, i, name);
		kept += i % 3 != 0;
		ACTIVITY(&s, ACTIVITY_KERNEL, 200, i % 3 ? 201 : 205, .name = i, ON_DEVICE(0, 2));
		ACTIVITY(&s, ACTIVITY_KERNEL, 200, 210, .name = 1, ON_DEVICE(0, 2));
		if (i % 1000 == 0)
			stage_tell(&s);
	}
	MARK(&s, ACTIVITY_MARK_END, 300, 1, ON_HOST(77, 8));
	stage_stop(&s, 400);
	activities_flush(s.a);
	unsigned long long total = 0, marks = 0;
	while (*stage_next(&s, "data")) {
		json_t *o = json_loads(s.payload, 0, NULL);
		const char *text = json_string_value(json_object_get(o, "name"));
		if (text && !strcmp(text, "open"))
			marks++;
		else
			total += (unsigned long long)number_in(o, "duration");
		json_decref(o);
	}
	CHECK_INT(total, (last - 9) * 10 + kept);
	CHECK_INT(marks, 1);
	stage_close(&s);
}

/* --- files --- */

/* The lines of the only file in the directory. */
static unsigned read_lines(const char *dir, char lines[][512], unsigned max)
{
	struct dirent *e;
	DIR *d = opendir(dir);
	unsigned n = 0;

	if (!d)
		return 0;
	while ((e = readdir(d)))
		if (strstr(e->d_name, ".jsonl")) {
			char path[4096];
			snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
			FILE *f = fopen(path, "r");
			while (f && n < max && fgets(lines[n], 512, f))
				n++;
			fclose(f);
		}
	closedir(d);
	return n;
}

static void start_jsonl(struct stage *s, const char *dir)
{
	char more[600];

	snprintf(more, sizeof(more), "NPU_MONITOR_LOG_FILE=%.500s\nNPU_MONITOR_EXPORT_TYPE=Jsonl\n",
		 dir);
	stage_start(s, 100, "Kernel,Marker", more);
}

TEST(activity_windows, jsonl)
{
	struct stage s;
	char lines[16][512];
	const char *dir = tmpfile_path("out");

	stage_open(&s);
	start_jsonl(&s, dir);
	stage_name(&s, 1, "MatMul");
	stage_name(&s, 2, "KERNEL_AICORE");
	ACTIVITY(&s, ACTIVITY_KERNEL, 200, 210, .name = 1, .detail = 2, .correlation = 103,
		 ON_DEVICE(1, 2));
	MARK(&s, ACTIVITY_MARK_INSTANT, 300, 10, .name = 1, ON_HOST(77, 88));
	stage_tell(&s);
	activities_tick(s.a, 2000000000);
	CHECK_INT(read_lines(dir, lines, 16), 2);
	CHECK_STR(lines[0], "{\"correlationId\":103,\"deviceId\":1,\"endNs\":1700000000000000210,"
			    "\"kind\":\"Kernel\",\"name\":\"MatMul\",\"startNs\":"
			    "1700000000000000200,\"streamId\":2,\"type\":\"KERNEL_AICORE\"}\n");
	CHECK_STR(lines[1], "{\"domain\":\"default\",\"endNs\":1700000000000000300,\"id\":10,"
			    "\"kind\":\"Marker\",\"name\":\"MatMul\",\"processId\":77,"
			    "\"sourceKind\":\"Host\",\"startNs\":1700000000000000300,"
			    "\"threadId\":88}\n");
	/* `sonde top` is told as well */
	activities_tick(s.a, 6000000000);
	json_t *top = stage_top(&s);
	CHECK_INT(json_array_size(json_object_get(top, "rows")), 1);
	json_decref(top);
	stage_monitor(&s, 400, MONITOR_STOP, 1, "{\"group_name_0\":{}}");
	stage_tell(&s);
	unsigned n = read_lines(dir, lines, 16);
	CHECK(n >= 3);
	CHECK_STR(lines[2], "{\"kind\":\"parallel_group_info\",\"value\":"
			    "\"{\\\"group_name_0\\\":{}}\"}\n");
	stage_close(&s);
}

/* A process that goes on in this session: if the recorder ends before they are in a file they count as lost. */
TEST(activity_windows, what_comes_before_its_window_is_not_written_yet)
{
	struct stage s;
	char lines[16][512], more[600];
	const char *dir = tmpfile_path("out");

	stage_open(&s);
	for (unsigned i = 0; i < 3; i++)
		kernel(&s, 200, 10, 0);
	activities_tick(s.a, 1000000000);
	CHECK_INT(activities_written(s.a), 0);
	snprintf(more, sizeof(more), "NPU_MONITOR_LOG_FILE=%.500s\nNPU_MONITOR_EXPORT_TYPE=Jsonl\n",
		 dir);
	const char *text = stage_order(&s, "Kernel", more);
	TEXT_RECORD(&s.recs, REC_MONITOR, rec_monitor, 300, text, strlen(text),
		    .kind = MONITOR_START, .window = 1, .rank = 3, .value = 100);
	stage_tell(&s);
	CHECK_INT(activities_written(s.a), 0);
	activities_tick(s.a, 2000000000);
	CHECK_INT(activities_written(s.a), 3);
	CHECK_INT(read_lines(dir, lines, 16), 3);
	stage_close(&s);
}

TEST(activity_windows, groups_in_pieces)
{
	struct stage s;
	char lines[16][512], piece[REC_MAX_TEXT + 1];
	const char *dir = tmpfile_path("out");

	stage_open(&s);
	start_jsonl(&s, dir);
	kernel(&s, 200, 10, 0);
	stage_monitor(&s, 250, MONITOR_GROUPS, 1, "of before");
	memset(piece, ' ', REC_MAX_TEXT);
	piece[0] = '[';
	piece[REC_MAX_TEXT] = 0;
	stage_monitor(&s, 300, MONITOR_GROUPS, 1, piece);
	stage_monitor(&s, 300, MONITOR_GROUPS, 1, "7]");
	stage_stop(&s, 400);
	unsigned n = read_lines(dir, lines, 16);
	CHECK(n >= 2 && strstr(lines[1], "\"value\":\"[  "));
	stage_close(&s);
}

TEST(activity_windows, a_directory_that_cannot_be)
{
	struct stage s;

	stage_open(&s);
	start_jsonl(&s, "/proc/nobody/can/write/here");
	for (unsigned i = 0; i < 100; i++)
		kernel(&s, 200, 10, 0);
	activities_tick(s.a, 2000000000);
	stage_stop(&s, 400);
	stage_proc(&s, 0, INT32_MAX); /* nobody */
	start_jsonl(&s, "relative/and/its/process/is/not/there");
	kernel(&s, 200, 10, 0);
	activities_tick(s.a, 4000000000);
	stage_end(&s);
	stage_close(&s);
}
