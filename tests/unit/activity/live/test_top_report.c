/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What took the time of an interval, as `sonde top` is told. */
#include "activities.h"
#include "activity/live/busy.h"
#include "activity/live/daemon_queue.h"
#include "activity/live/histogram.h"
#include "activity/live/top_report.h"

#include <pthread.h>
#include <stdint.h>

#define SECOND 1000000000ull

/* Reports that are due at this moment of the monotonic clock. */
static void tick(struct stage *s, uint64_t ns)
{
	activities_tick(s->a, ns);
}

TEST(activity_top, tells_devices_and_rows)
{
	struct stage s;

	stage_open(&s);
	stage_start(&s, 100, "Kernel,MemCpy,Communication,API,Marker", "REPORT_INTERVAL_S=60\n");
	stage_name(&s, 1, "MatMul");
	stage_name(&s, 2, "AllReduce");
	stage_name(&s, 3, "step start");
	tick(&s, 1000);
	ACTIVITY(&s, ACTIVITY_KERNEL, 1000, 2000, .name = 1, ON_DEVICE(1, 2));
	ACTIVITY(&s, ACTIVITY_KERNEL, 1500, 2500, .name = 1, ON_DEVICE(1, 3));
	ACTIVITY(&s, ACTIVITY_COMMUNICATION, 2400, 3000, .name = 2, ON_DEVICE(1, 4));
	ACTIVITY(&s, ACTIVITY_MEMCPY, 5000, 5100, .flag = 2, ON_DEVICE(0, 4));
	ACTIVITY(&s, ACTIVITY_API, 1000, 9000, .name = 1, ON_HOST(77, 8));
	for (uint64_t i = 0; i < 5; i++)
		MARK(&s, ACTIVITY_MARK_INSTANT, 1000 + i * 100, i, .name = 3, ON_HOST(77, 8));
	RECORD(&s.recs, REC_MONITOR, rec_monitor, 5, .kind = MONITOR_LOST, .window = 1, .value = 9);
	stage_tell(&s);
	tick(&s, SECOND);
	CHECK_STR(stage_next(&s, FABRIC_TOP), "");
	/* what ended before this has come, too */
	ACTIVITY(&s, ACTIVITY_API, 2 * SECOND, 2 * SECOND + 1000, .name = 1, ON_HOST(77, 8));
	stage_tell(&s);
	tick(&s, 2 * SECOND + 2000);
	tick(&s, 3 * SECOND);
	json_t *top = stage_top(&s);
	CHECK_INT(number_in(top, "pid"), 77);
	CHECK_INT(number_in(top, "rank"), 3);
	CHECK_INT(number_in(top, "from"), AT(100));
	CHECK_INT(number_in(top, "to"), AT(1500001000)); /* a quarter of an interval earlier */
	CHECK_INT(number_in(top, "lost"), 9);
	CHECK_INT(number_in(top, "interval_s"), 2);
	CHECK(json_is_string(json_object_get(top, "host")));
	json_t *devices = json_object_get(top, "devices"), *rows = json_object_get(top, "rows");
	CHECK_INT(json_array_size(devices), 2);
	json_t *d = json_array_get(devices, 0);
	CHECK(number_in(d, "device") == 0 && number_in(d, "busy_ns") == 100 &&
	      number_in(d, "copy_ns") == 100 && number_in(d, "kernel_ns") == 0);
	d = json_array_get(devices, 1);
	CHECK(number_in(d, "device") == 1 && number_in(d, "busy_ns") == 2000 &&
	      number_in(d, "kernel_ns") == 1500 && number_in(d, "comm_ns") == 600);
	CHECK_INT(json_array_size(rows), 4);
	json_t *r = json_array_get(rows, 0); /* the host's call has the most time */
	CHECK_STR(json_string_value(json_object_get(r, "kind")), "API");
	CHECK_INT(number_in(r, "device"), -1);
	r = json_array_get(rows, 1);
	CHECK_STR(json_string_value(json_object_get(r, "name")), "MatMul");
	CHECK(number_in(r, "calls") == 2 && number_in(r, "total_ns") == 2000 &&
	      number_in(r, "min_ns") == 1000 && number_in(r, "p99_ns") == 1000);
	CHECK_STR(json_string_value(json_object_get(json_array_get(rows, 3), "name")), "HtoD");
	CHECK_INT(number_in(json_object_get(top, "others"), "calls"), 0);
	CHECK_INT(number_in(top, "names"), 4);
	CHECK_INT(number_in(json_object_get(top, "steps"), "count"), 4);
	CHECK_INT(number_in(json_object_get(top, "steps"), "mean_ns"), 100);
	json_decref(top);
	stage_close(&s);
}

/* The source is waited for; but not for ever. */
TEST(activity_top, a_source_that_is_silent_has_nothing_to_tell)
{
	struct stage s;

	stage_open(&s);
	stage_start(&s, 100, "Kernel", "");
	for (uint64_t ns = 0; ns <= 4 * SECOND; ns += SECOND / 10)
		tick(&s, ns);
	CHECK_STR(stage_next(&s, FABRIC_TOP), "");
	tick(&s, 4 * SECOND + 100);
	json_t *top = stage_top(&s);
	CHECK_INT(number_in(top, "from"), AT(100));
	CHECK_INT(number_in(top, "to"), AT(1000000100));
	CHECK_INT(json_array_size(json_object_get(top, "rows")), 0);
	json_decref(top);
	/* what comes now goes on from there */
	ACTIVITY(&s, ACTIVITY_KERNEL, 3 * SECOND / 2, 5 * SECOND / 2, ON_DEVICE(0, 2));
	stage_tell(&s);
	tick(&s, 41 * SECOND / 10);
	top = stage_top(&s);
	CHECK_INT(number_in(top, "from"), AT(1000000100));
	CHECK_INT(number_in(top, "to"), AT(2250000000));
	CHECK_INT(number_in(json_array_get(json_object_get(top, "devices"), 0), "busy_ns"),
		  750000000);
	json_decref(top);
	stage_close(&s);
}

static json_t *first_device(const json_t *top)
{
	return json_array_get(json_object_get(top, "devices"), 0);
}

/*
 * A device that is always busy, told by a source that comes when it likes, in pieces of 0.05 to 2
 * seconds: it is never busier than the time, and all of the time is told once.
 */
TEST(activity_top, a_device_is_never_busy_for_longer_than_the_interval)
{
	static const unsigned pieces[] = {1000, 50, 1950, 400, 600, 1700, 300, 2000, 1000, 1000};
	const uint64_t ms = SECOND / 1000;
	uint64_t now = SECOND, until = 0, sum = 0;
	struct stage s;

	stage_open(&s);
	stage_start(&s, now, "Kernel,Communication", "REPORT_INTERVAL_S=60\n");
	for (unsigned i = 0; i < 30; i++) {
		for (uint64_t end = now + pieces[i % 10] * ms; now + 10 * ms <= end;
		     now += 10 * ms) {
			ACTIVITY(&s, ACTIVITY_KERNEL, now, now + 10 * ms, ON_DEVICE(0, 2));
			ACTIVITY(&s, ACTIVITY_COMMUNICATION, now + 5 * ms, now + 10 * ms,
				 ON_DEVICE(0, 3));
		}
		stage_tell(&s);
		activities_flush(s.a); /* somebody wants to read files: no reason to report */
		tick(&s, now + 10 * ms);
		if (pieces[(i + 1) % 10] > 500) /* the source pauses */
			tick(&s, now + 300 * ms);
		while (*stage_next(&s, FABRIC_TOP)) {
			json_t *top = json_loads(s.payload, 0, NULL), *d = first_device(top);
			uint64_t from = (uint64_t)number_in(top, "from");
			uint64_t to = (uint64_t)number_in(top, "to");

			CHECK(from == (until ? until : (uint64_t)AT(1000000000)));
			CHECK(to - from >= SECOND && to - from <= 4 * SECOND);
			CHECK_INT(number_in(d, "busy_ns"), to - from);
			CHECK_INT(number_in(d, "kernel_ns"), to - from);
			CHECK(number_in(d, "comm_ns") > (long long)(to - from) * 49 / 100);
			CHECK(number_in(d, "comm_ns") < (long long)(to - from) * 51 / 100);
			CHECK_INT(number_in(d, "late_ns"), 0);
			until = to;
			sum += to - from;
			json_decref(top);
		}
	}
	CHECK(sum > now - 2 * SECOND);
	stage_close(&s);
}

/* Rows and devices are of the same time: a call that ended behind the interval is in the next. */
TEST(activity_top, rows_take_no_more_time_than_their_device)
{
	const uint64_t ms = SECOND / 1000;
	uint64_t now = SECOND;
	long long calls = 0, reports = 0;
	struct stage s;

	stage_open(&s);
	stage_start(&s, now, "Kernel", "REPORT_INTERVAL_S=60\n");
	for (unsigned piece = 0; piece < 6; piece++) {
		for (unsigned i = 0; i < 100; i++, now += 10 * ms)
			ACTIVITY(&s, ACTIVITY_KERNEL, now, now + 10 * ms, ON_DEVICE(0, 2));
		stage_tell(&s);
		tick(&s, now + 10 * ms);
		tick(&s, now + 300 * ms); /* the source pauses */
		while (*stage_next(&s, FABRIC_TOP)) {
			json_t *top = json_loads(s.payload, 0, NULL);
			json_t *row = json_array_get(json_object_get(top, "rows"), 0);

			CHECK_INT(number_in(row, "total_ns"),
				  number_in(first_device(top), "kernel_ns"));
			calls += number_in(row, "calls");
			reports++;
			json_decref(top);
		}
	}
	CHECK_INT(reports, 3);
	CHECK_INT(calls, 550); /* half a second waits for the next report */
	stage_close(&s);
}

/* Calls that go on at either end of the interval count whole once, and in shares with their part. */
TEST(activity_top, shares_are_of_the_time_inside_the_interval)
{
	const uint64_t ms = SECOND / 1000;
	uint64_t now = SECOND;
	long long cut = 0, reports = 0;
	struct stage s;

	stage_open(&s);
	stage_start(&s, now, "Kernel", "REPORT_INTERVAL_S=60\n");
	for (unsigned piece = 0; piece < 6; piece++) {
		for (unsigned i = 0; i < 13; i++, now += 77 * ms)
			ACTIVITY(&s, ACTIVITY_KERNEL, now, now + 77 * ms, ON_DEVICE(0, 2));
		stage_tell(&s);
		tick(&s, now + 10 * ms);
		tick(&s, now + 300 * ms);
		while (*stage_next(&s, FABRIC_TOP)) {
			json_t *top = json_loads(s.payload, 0, NULL);
			json_t *row = json_array_get(json_object_get(top, "rows"), 0);

			CHECK_INT(number_in(row, "inside_ns"),
				  number_in(first_device(top), "kernel_ns"));
			cut += number_in(row, "inside_ns") != number_in(row, "total_ns");
			reports++;
			json_decref(top);
		}
	}
	CHECK(reports > 1 && cut > 0);
	stage_close(&s);
}

/* Of a kernel that began before the interval only the part inside counts; what comes for a time
 * that has been told is late, and said to be. */
TEST(activity_top, what_comes_too_late_is_told_apart)
{
	struct stage s;

	stage_open(&s);
	stage_start(&s, 100, "Kernel", "REPORT_INTERVAL_S=60\n");
	ACTIVITY(&s, ACTIVITY_KERNEL, 50, 2 * SECOND, ON_DEVICE(0, 2));
	stage_tell(&s);
	tick(&s, 2 * SECOND);
	CHECK_STR(stage_next(&s, FABRIC_TOP), "");
	tick(&s, 2 * SECOND + SECOND / 4); /* nothing more comes */
	json_t *top = stage_top(&s);
	CHECK_INT(number_in(top, "to"), AT(1500000000));
	CHECK_INT(number_in(first_device(top), "busy_ns"), 1500000000 - 100);
	json_decref(top);
	ACTIVITY(&s, ACTIVITY_KERNEL, 200, 1000200, ON_DEVICE(0, 3)); /* long ago */
	ACTIVITY(&s, ACTIVITY_KERNEL, SECOND, 1600000000, ON_DEVICE(0, 4)); /* half of it is */
	ACTIVITY(&s, ACTIVITY_KERNEL, 3 * SECOND, 4 * SECOND, ON_DEVICE(0, 2));
	stage_tell(&s);
	tick(&s, 4 * SECOND);
	top = stage_top(&s);
	CHECK_INT(number_in(top, "from"), AT(1500000000));
	CHECK_INT(number_in(top, "to"), AT(3500000000));
	CHECK_INT(number_in(first_device(top), "busy_ns"), SECOND); /* 1.5 to 2, 3 to 3.5 */
	CHECK_INT(number_in(first_device(top), "late_ns"), 501000000);
	CHECK_INT(number_in(json_array_get(json_object_get(top, "rows"), 0), "calls"), 3);
	json_decref(top);
	/* a clock that runs ahead tells nothing about the future */
	ACTIVITY(&s, ACTIVITY_KERNEL, 5 * SECOND, 100 * SECOND, ON_DEVICE(0, 2));
	stage_tell(&s);
	tick(&s, 6 * SECOND);
	top = stage_top(&s);
	CHECK_INT(number_in(top, "to"), AT(5500000000));
	CHECK_INT(number_in(first_device(top), "busy_ns"), SECOND);
	json_decref(top);
	stage_close(&s);
}

TEST(activity_top, what_is_missing_is_told)
{
	struct stage s;

	stage_open(&s);
	stage_start(&s, 100, "Kernel,Marker", "");
	for (uint32_t i = 0; i < 260; i++)
		ACTIVITY(&s, ACTIVITY_KERNEL, 200, 210, ON_DEVICE(i, 2));
	for (uint64_t i = 0; i < 3; i++) /* the same id again: the first has no end */
		MARK(&s, ACTIVITY_MARK_START, 300 + i, 7, ON_HOST(77, 8));
	MARK(&s, ACTIVITY_MARK_START | ACTIVITY_MARK_END, 310, 8, ON_HOST(77, 8));
	RECORD(&s.recs, REC_MONITOR, rec_monitor, 5, .kind = MONITOR_LOST, .window = 1, .value = 9);
	stage_tell(&s);
	tick(&s, 5 * SECOND);
	json_t *top = stage_top(&s);
	CHECK_INT(number_in(top, "lost"), 9);
	CHECK_INT(number_in(top, "crowded"), 4);
	CHECK_INT(number_in(top, "incomplete"), 3);
	CHECK_INT(number_in(top, "unsent"), 0);
	CHECK_INT(number_in(top, "unwritten"), 0);
	json_decref(top);
	stage_close(&s);
}

/* Reads as a daemon does, until a report says that others did not come. */
static void *await_unsent(void *arg)
{
	struct stage *s = arg;
	struct pollfd p = {.fd = s->fd, .events = POLLIN};
	uintptr_t unsent = 0;

	while (!unsent && poll(&p, 1, 10000) > 0)
		while (!unsent && *stage_next(s, FABRIC_TOP)) {
			json_t *top = json_loads(s->payload, 0, NULL);
			unsent = (uintptr_t)number_in(top, "unsent");
			json_decref(top);
		}
	return (void *)unsent;
}

TEST(activity_top, reports_that_did_not_reach_the_daemon_are_told)
{
	struct stage s;
	pthread_t daemon;
	void *unsent;

	stage_open(&s);
	stage_start(&s, 100, "Marker", "");
	tick(&s, SECOND);
	close(s.fd);
	for (uint64_t i = 0; i < SENDER_MAX_WAITING + 5000; i++) {
		MARK(&s, ACTIVITY_MARK_START, 400, i, ON_HOST(77, 8));
		MARK(&s, ACTIVITY_MARK_END, 410, i, ON_HOST(77, 8));
		if (i % 5000 == 4999) {
			stage_tell(&s);
			tick(&s, (2 + i / 5000) * SECOND);
		}
	}
	s.fd = stage_listen(&s);
	CHECK(pthread_create(&daemon, NULL, await_unsent, &s) == 0);
	for (uint64_t i = 0; i < 100; i++)
		tick(&s, (20 + i) * SECOND);
	CHECK(pthread_join(daemon, &unsent) == 0);
	CHECK((uintptr_t)unsent >= 5000 && (uintptr_t)unsent < 5100);
	stage_close(&s);
}

TEST(activity_top, the_rows_with_the_most_time)
{
	struct stage s;
	char name[32];
	long long total = 0;

	stage_open(&s);
	stage_start(&s, 100, "Kernel,API", "");
	for (uint64_t i = 1; i <= 200; i++) {
		snprintf(name, sizeof(name), "k%llu", (unsigned long long)i);
		stage_name(&s, i, name);
		ACTIVITY(&s, ACTIVITY_KERNEL, 1000, 1000 + i, .name = i, ON_DEVICE(0, 2));
		ACTIVITY(&s, ACTIVITY_API, 1000, 101000 + i, .name = i, ON_HOST(77, 1));
	}
	stage_stop(&s, 300);
	activities_flush(s.a);
	json_t *top = stage_top(&s), *rows = json_object_get(top, "rows");
	CHECK_INT(json_array_size(rows), TOP_ROWS);
	for (unsigned i = 0; i < TOP_ROWS; i++) {
		json_t *r = json_array_get(rows, i);
		CHECK((i < TOP_HOST_ROWS) == (number_in(r, "device") < 0));
		total += number_in(r, "total_ns");
	}
	CHECK_STR(json_string_value(json_object_get(json_array_get(rows, TOP_HOST_ROWS), "name")),
		  "k200");
	json_t *others = json_object_get(top, "others");
	CHECK_INT(number_in(others, "calls"), 400 - TOP_ROWS);
	CHECK_INT(total + number_in(others, "total_ns"), 2 * 200 * 201 / 2 + 200 * 100000);
	CHECK_INT(number_in(top, "names"), 400);
	json_decref(top);
	stage_close(&s);
}

/* --- how long a device was busy --- */

TEST(activity_busy, counts_what_overlaps_once)
{
	struct busy b = {0};

	busy_begin(&b, 40);
	busy_add(&b, 100, 200);
	busy_add(&b, 150, 250);
	busy_add(&b, 50, 60);
	busy_add(&b, 30, 45); /* a part of it */
	CHECK_INT(busy_take(&b, 100), 15);
	CHECK_INT(busy_take(&b, 100), 0);
	CHECK_INT(busy_take(&b, 120), 20);
	busy_add(&b, 55, 105); /* that time has been told */
	busy_add(&b, 110, 125);
	busy_add(&b, 250, 260);
	busy_add(&b, 300, 300);
	CHECK_INT(busy_take(&b, 1000), 140);
	busy_release(&b);
}

/* Against a map of the whole time, in orders of all sorts. */
TEST(activity_busy, is_right_in_any_order)
{
	static uint8_t map[30000];
	struct busy b = {0};
	unsigned seed = 7, told = 0;

	for (unsigned i = 0; i < 9000; i++) {
		seed = seed * 1103515245 + 12345;
		unsigned from = told / 2 + (seed >> 8) % 9900, len = (seed >> 3) % 20;
		if (i < 3000)
			from = i * 6; /* in order */
		busy_add(&b, from, from + len);
		memset(map + from, 1, len);
		if (i % 777 && i != 8999)
			continue;
		unsigned until = i == 8999 ? (unsigned)sizeof(map) : told + 1500, want = 0;
		for (unsigned k = told; k < until; k++)
			want += map[k];
		CHECK_INT(busy_take(&b, until), want);
		told = until;
	}
	busy_release(&b);
}

TEST(activity_busy, is_bounded)
{
	struct busy b = {0};

	for (uint64_t i = 1; i <= 4 * BUSY_SPANS; i++)
		busy_add(&b, i * 10, i * 10 + 3);
	busy_add(&b, 15, 20); /* so long ago that it is summed up */
	CHECK_INT(busy_take(&b, 50 * BUSY_SPANS), 4 * BUSY_SPANS * 3);
	CHECK(b.spans.n <= BUSY_SPANS && b.spans.cap <= 2 * (BUSY_SPANS + BUSY_PENDING));
	CHECK_INT(busy_take(&b, 60 * BUSY_SPANS), 0);
	busy_release(&b);
}

TEST(activity_histogram, quantiles_are_close)
{
	struct histogram h = {0};

	CHECK_INT(histogram_quantile(&h, 0.5), 0);
	for (uint64_t i = 1; i <= 1000; i++)
		histogram_add(&h, i * 1000);
	for (unsigned percent = 1; percent <= 100; percent++) {
		double got = (double)histogram_quantile(&h, percent / 100.0);
		double want = percent * 10000.0;
		CHECK(got > want * 0.97 && got < want * 1.03);
	}
	histogram_add(&h, 0);
	histogram_add(&h, UINT64_MAX);
	CHECK_INT(histogram_quantile(&h, 0), 0);
	CHECK(histogram_quantile(&h, 1) > 10000000000000);
	histogram_release(&h);
	for (uint64_t v = 0; v < 5000; v++) {
		struct histogram one = {0};
		histogram_add(&one, v);
		double got = (double)histogram_quantile(&one, 0.99);
		CHECK(got >= (double)v * 0.984 && got <= (double)v * 1.016);
		histogram_release(&one);
	}
}
