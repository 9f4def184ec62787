/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What monitors' windows tell the daemon: sums, marks, and what took the time. */
#include "activities.h"
#include "recorder/activity_busy.h"
#include "recorder/activity_histogram.h"
#include "recorder/activity_send.h"
#include "recorder/activity_top.h"

#include <pthread.h>
#include <stdint.h>

#define SECOND 1000000000ull

/* Reports that are due at this moment of the monotonic clock. */
static void tick(struct stage *s, uint64_t ns)
{
	activities_tick(s->a, ns);
}

TEST(activity_metrics, sums_by_kind_and_device)
{
	struct stage s;

	stage_open(&s);
	stage_start(&s, 100, "Kernel,API,MemCpy,Communication,RuntimeAPI", "");
	tick(&s, 1000);
	ACTIVITY(&s, ACTIVITY_MEMCPY, 200, 230, .flag = 2, ON_DEVICE(1, 0));
	ACTIVITY(&s, ACTIVITY_KERNEL, 300, 350, ON_DEVICE(1, 2));
	ACTIVITY(&s, ACTIVITY_KERNEL, 320, 420, ON_DEVICE(0, 2));
	ACTIVITY(&s, ACTIVITY_KERNEL, 500, 510, ON_DEVICE(1, 3));
	ACTIVITY(&s, ACTIVITY_API, 300, 301, ON_HOST(77, 8));
	ACTIVITY(&s, ACTIVITY_API, 300, 303, ON_HOST(77, 9));
	ACTIVITY(&s, ACTIVITY_RUNTIME_API, 300, 305, ON_HOST(77, 9));
	ACTIVITY(&s, ACTIVITY_COMMUNICATION, 600, 640, ON_DEVICE(1, 3));
	stage_tell(&s);
	tick(&s, 2000);
	CHECK_STR(stage_next(&s, "data"), "");
	tick(&s, SECOND + 1000);
	/* by the number of the kind, then by device */
	CHECK_STR(stage_next(&s, "data"), "{\"deviceId\":0,\"duration\":100,\"kind\":\"Kernel\","
					  "\"timestamp\":1700000001000001000}");
	CHECK_STR(stage_next(&s, "data"), "{\"deviceId\":1,\"duration\":60,\"kind\":\"Kernel\","
					  "\"timestamp\":1700000001000001000}");
	CHECK_STR(stage_next(&s, "data"), "{\"deviceId\":-1,\"duration\":4,\"kind\":\"API\","
					  "\"timestamp\":1700000001000001000}");
	CHECK_STR(stage_next(&s, "data"), "{\"deviceId\":1,\"duration\":30,\"kind\":\"MemCpy\","
					  "\"timestamp\":1700000001000001000}");
	CHECK_STR(stage_next(&s, "data"), "{\"deviceId\":1,\"duration\":40,\"kind\":"
					  "\"Communication\",\"timestamp\":1700000001000001000}");
	CHECK_STR(stage_next(&s, "data"), "{\"deviceId\":-1,\"duration\":5,\"kind\":\"RuntimeAPI\","
					  "\"timestamp\":1700000001000001000}");
	CHECK_STR(stage_next(&s, "data"), "");
	/* nothing happened: nothing is sent */
	tick(&s, 2 * SECOND + 1000);
	CHECK_STR(stage_next(&s, "data"), "");
	stage_close(&s);
}

TEST(activity_metrics, marks_of_every_sort)
{
	struct stage s;

	stage_open(&s);
	stage_start(&s, 100, "Marker", "");
	stage_name(&s, 1, "step 1");
	stage_name(&s, 2, "loader");
	MARK(&s, ACTIVITY_MARK_START_DEVICE, 200, 10, .name = 1, ON_HOST(77, 8));
	MARK(&s, ACTIVITY_MARK_START_DEVICE, 230, 10, ON_DEVICE(1, 2));
	MARK(&s, ACTIVITY_MARK_END_DEVICE, 240, 10, ON_HOST(77, 8));
	MARK(&s, ACTIVITY_MARK_END_DEVICE, 290, 10, ON_DEVICE(1, 2));
	MARK(&s, ACTIVITY_MARK_START, 300, 11, .name = 1, .detail = 2, ON_HOST(77, 8));
	MARK(&s, ACTIVITY_MARK_END, 310, 11, ON_HOST(77, 8));
	MARK(&s, ACTIVITY_MARK_INSTANT, 320, 12, .name = 2, ON_HOST(77, 8));
	stage_stop(&s, 400);
	activities_flush(s.a);
	CHECK_STR(stage_next(&s, "data"),
		  "{\"deviceId\":4294967295,\"domain\":\"default\",\"duration\":40,\"kind\":"
		  "\"Marker\",\"name\":\"step 1\",\"timestamp\":1700000000000000200}");
	CHECK_STR(stage_next(&s, "data"),
		  "{\"deviceId\":1,\"domain\":\"default\",\"duration\":60,\"kind\":\"Marker\","
		  "\"name\":\"step 1\",\"timestamp\":1700000000000000230}");
	CHECK_STR(stage_next(&s, "data"),
		  "{\"deviceId\":-1,\"domain\":\"loader\",\"duration\":10,\"kind\":\"Marker\","
		  "\"name\":\"step 1\",\"timestamp\":1700000000000000300}");
	CHECK_STR(stage_next(&s, "data"),
		  "{\"deviceId\":-1,\"domain\":\"default\",\"duration\":0,\"kind\":\"Marker\","
		  "\"name\":\"loader\",\"timestamp\":1700000000000000320}");
	CHECK_STR(stage_next(&s, "data"), "");
	stage_close(&s);
}

/* The tool of before threw away what had come since the last report. */
TEST(activity_metrics, the_last_report_is_not_lost)
{
	struct stage s;

	for (int killed = 0; killed < 2; killed++) {
		stage_open(&s);
		stage_start(&s, 100, "Kernel", "REPORT_INTERVAL_S=3600\n");
		ACTIVITY(&s, ACTIVITY_KERNEL, 200, 250, ON_DEVICE(0, 2));
		stage_tell(&s);
		tick(&s, 1000);
		if (killed)
			stage_end(&s);
		else
			stage_stop(&s, 300);
		tick(&s, 2000);
		CHECK(strstr(stage_next(&s, "data"), "\"duration\":50,\"kind\":\"Kernel\""));
		stage_close(&s);
	}
}

TEST(activity_metrics, the_interval_changes_while_it_runs)
{
	struct stage s;

	stage_open(&s);
	stage_start(&s, 100, "Kernel", "REPORT_INTERVAL_S=0\n"); /* 60 */
	tick(&s, SECOND);
	ACTIVITY(&s, ACTIVITY_KERNEL, 200, 250, ON_DEVICE(0, 2));
	stage_tell(&s);
	tick(&s, 60 * SECOND);
	CHECK_STR(stage_next(&s, "data"), "");
	tick(&s, 61 * SECOND);
	CHECK(strstr(stage_next(&s, "data"), "Kernel"));
	stage_monitor(&s, 300, MONITOR_CHANGE, 1, stage_order(&s, "Kernel", "REPORT_INTERVAL_S=5"));
	stage_monitor(&s, 301, MONITOR_CHANGE, 1, stage_order(&s, "Kernel", "REPORT_INTERVAL_S=0"));
	ACTIVITY(&s, ACTIVITY_KERNEL, 200, 250, ON_DEVICE(0, 2));
	stage_tell(&s);
	tick(&s, 65 * SECOND);
	CHECK_STR(stage_next(&s, "data"), "");
	tick(&s, 66 * SECOND);
	CHECK(strstr(stage_next(&s, "data"), "Kernel"));
	/* so does that of what `sonde top` is told */
	stage_monitor(&s, 302, MONITOR_CHANGE, 1, stage_order(&s, "Kernel", "REPORT_INTERVAL_S=1"));
	stage_monitor(&s, 303, MONITOR_CHANGE, 1, stage_order(&s, "Kernel", "REPORT_INTERVAL_S=0"));
	ACTIVITY(&s, ACTIVITY_KERNEL, 200, 250, ON_DEVICE(0, 2));
	stage_tell(&s);
	tick(&s, 70 * SECOND);
	json_t *top = stage_top(&s);
	CHECK_INT(number_in(top, "interval_s"), 1);
	json_decref(top);
	stage_close(&s);
}

/* Takes datagrams while the recorder sends, as a daemon does, until the one that sums up. */
static void *drain(void *arg)
{
	struct stage *s = arg;
	struct pollfd p = {.fd = s->fd, .events = POLLIN};
	uintptr_t marks = 0;

	while (poll(&p, 1, 10000) > 0)
		while (*stage_next(s, "data")) {
			marks++;
			if (!strncmp(s->payload, "{\"count\":", 9))
				return (void *)marks;
		}
	return NULL;
}

TEST(activity_metrics, a_flood_of_marks_is_told_as_one)
{
	struct stage s;
	pthread_t daemon;
	void *marks;

	stage_open(&s);
	CHECK(pthread_create(&daemon, NULL, drain, &s) == 0);
	stage_start(&s, 100, "Marker", "");
	for (uint64_t i = 0; i < 10123; i++)
		MARK(&s, ACTIVITY_MARK_INSTANT, 200 + i, i, ON_HOST(77, 8));
	stage_stop(&s, 300);
	for (uint64_t now = SECOND; now < 100 * SECOND; now += SECOND)
		tick(&s, now);
	CHECK(pthread_join(daemon, &marks) == 0);
	CHECK_INT((uintptr_t)marks, 10001);
	CHECK(!strncmp(s.payload, "{\"count\":123,\"deviceId\":-1,", 27));
	stage_close(&s);
}

TEST(activity_metrics, any_bytes_make_valid_json)
{
	struct stage s;
	char name[1024];

	memset(name, '"', sizeof(name));
	name[3] = '\xff';
	name[sizeof(name) - 1] = 0;
	stage_open(&s);
	stage_start(&s, 100, "Marker,Kernel", "");
	stage_name(&s, 1, name);
	stage_name(&s, 2, "a\xc3(\x01\\");
	for (uint64_t i = 0; i < 70; i++) {
		char other[1024];
		snprintf(other, sizeof(other), "%llu%.1000s", (unsigned long long)i, name);
		stage_name(&s, 100 + i, other);
		ACTIVITY(&s, ACTIVITY_KERNEL, 200, 210, .name = 100 + i, ON_DEVICE(0, 2));
	}
	MARK(&s, ACTIVITY_MARK_INSTANT, 320, 12, .name = 1, .detail = 2, ON_HOST(77, 8));
	stage_stop(&s, 400);
	activities_flush(s.a);
	unsigned n = 0;
	while (stage_take(&s)) {
		json_t *o = json_loads(s.payload, 0, NULL);
		CHECK(o != NULL && strlen(s.payload) <= TOP_MAX_BYTES);
		if (json_object_get(o, "domain"))
			CHECK_STR(json_string_value(json_object_get(o, "domain")),
				  "a\xef\xbf\xbd(\x01\\");
		json_decref(o);
		n++;
	}
	CHECK_INT(n, 3);
	stage_close(&s);
}

/* --- the daemon is away, or slow --- */

TEST(activity_metrics, a_daemon_that_comes_later_gets_what_waits)
{
	struct senders *all = senders_new();
	char where[64];
	struct sockaddr_un address;
	socklen_t len;
	char got[256];

	int n = snprintf(where, sizeof(where), "@sonde-unit-late-%d", (int)getpid());
	struct order_text at = {where, (size_t)n};
	struct sender *to = senders_find(all, &at);
	CHECK(to && senders_find(all, &at) == to);
	sender_put(to, "data", "{1}", 3);
	senders_tick(all, SECOND);
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
	CHECK(fabric_abstract_address(where + 1, &address, &len) == 0);
	CHECK(bind(fd, (struct sockaddr *)&address, len) == 0);
	senders_tick(all, SECOND + 1); /* not at once */
	CHECK(recv(fd, got, sizeof(got), 0) < 0);
	senders_tick(all, 3 * SECOND);
	CHECK_INT(recv(fd, got, sizeof(got), 0), 43);
	CHECK_INT(sender_lost(to), 0);
	/* away again, and back */
	close(fd);
	sender_put(to, "data", "{2}", 3);
	senders_tick(all, 4 * SECOND);
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
	CHECK(bind(fd, (struct sockaddr *)&address, len) == 0);
	senders_tick(all, 6 * SECOND);
	CHECK_INT(recv(fd, got, sizeof(got), 0), 43);
	senders_free(all);
	close(fd);
}

TEST(activity_metrics, what_waits_is_bounded_and_the_oldest_go)
{
	struct senders *all = senders_new();
	struct order_text at = {"/nonexistent/sonde", 18};
	struct sender *to = senders_find(all, &at);
	char big[60000] = "";

	for (unsigned i = 0; i < SENDER_MAX_WAITING + 5; i++)
		sender_put(to, "data", "{}", 2);
	CHECK_INT(sender_lost(to), 5);
	for (unsigned i = 0; i < 200; i++)
		sender_put(to, FABRIC_TOP, big, sizeof(big));
	CHECK(sender_lost(to) > SENDER_MAX_WAITING);
	sender_put(to, FABRIC_TOP, big, 0);
	senders_free(all);
	/* nowhere to go */
	all = senders_new();
	for (unsigned i = 0; i < 3; i++) {
		static const char *const bad[] = {"", "relative", "@"};
		struct order_text t = {bad[i], strlen(bad[i])};
		CHECK(!senders_find(all, &t));
	}
	senders_free(all);
}

/* --- sondeTop --- */

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
	tick(&s, 2 * SECOND + 1000);
	json_t *top = stage_top(&s);
	CHECK_INT(number_in(top, "pid"), 77);
	CHECK_INT(number_in(top, "rank"), 3);
	CHECK_INT(number_in(top, "from"), AT(100));
	CHECK_INT(number_in(top, "to"), AT(2000001000));
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

/* An interval in which nothing was told is joined with the next; but not for ever. */
TEST(activity_top, intervals_without_news_are_joined)
{
	struct stage s;

	stage_open(&s);
	stage_start(&s, 100, "Kernel", "");
	tick(&s, 1000);
	tick(&s, SECOND + 1000);
	tick(&s, 2 * SECOND + 1000);
	CHECK_STR(stage_next(&s, FABRIC_TOP), "");
	ACTIVITY(&s, ACTIVITY_KERNEL, 200, 250, ON_DEVICE(0, 2));
	stage_tell(&s);
	tick(&s, 3 * SECOND + 1000);
	json_t *top = stage_top(&s);
	CHECK_INT(number_in(top, "from"), AT(100));
	json_decref(top);
	for (unsigned i = 4; i < 7; i++)
		tick(&s, i * SECOND + 1000);
	top = stage_top(&s);
	CHECK_INT(number_in(top, "from"), AT(3000001000));
	CHECK_INT(json_array_size(json_object_get(top, "rows")), 0);
	json_decref(top);
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

	busy_add(&b, 100, 200);
	busy_add(&b, 150, 250);
	busy_add(&b, 50, 60);
	CHECK_INT(busy_take(&b), 160);
	CHECK_INT(busy_take(&b), 0);
	busy_add(&b, 55, 105); /* late, between what is known */
	busy_add(&b, 90, 95);
	busy_add(&b, 250, 260);
	busy_add(&b, 300, 300);
	CHECK_INT(busy_take(&b), 50);
	busy_release(&b);
}

/* Against a map of the whole time, in orders of all sorts. */
TEST(activity_busy, is_right_in_any_order)
{
	static uint8_t map[20000];
	struct busy b = {0};
	uint64_t taken = 0, want = 0;
	unsigned seed = 7;

	for (unsigned i = 0; i < 9000; i++) {
		seed = seed * 1103515245 + 12345;
		unsigned from = (seed >> 8) % 19900, len = (seed >> 3) % 20;
		if (i < 3000)
			from = i * 6; /* in order */
		busy_add(&b, from, from + len);
		memset(map + from, 1, len);
		if (i % 777 == 0)
			taken += busy_take(&b);
	}
	taken += busy_take(&b);
	for (unsigned i = 0; i < sizeof(map); i++)
		want += map[i];
	CHECK_INT(taken, want);
	busy_release(&b);
}

TEST(activity_busy, is_bounded)
{
	struct busy b = {0};

	for (uint64_t i = 1; i <= 4 * BUSY_SPANS; i++)
		busy_add(&b, i * 10, i * 10 + 3);
	CHECK_INT(busy_take(&b), 4 * BUSY_SPANS * 3);
	CHECK(b.n <= BUSY_SPANS && b.cap <= 2 * (BUSY_SPANS + BUSY_PENDING));
	busy_add(&b, 10, 20); /* so long ago that it counts as covered */
	CHECK_INT(busy_take(&b), 0);
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
