/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What monitors' windows tell the daemon: sums, marks, and what took the time. */
#include "activities.h"
#include "activity/live/daemon_queue.h"
#include "activity/live/top_report.h"

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
	/* an instant takes no time, and is none of the times of ranges */
	MARK(&s, ACTIVITY_MARK_INSTANT, 320, 12, .name = 2, ON_HOST(77, 8));
	MARK(&s, ACTIVITY_MARK_INSTANT_DEVICE, 330, 13, .name = 2, ON_HOST(77, 8));
	MARK(&s, ACTIVITY_MARK_INSTANT_DEVICE, 340, 13, ON_DEVICE(1, 2));
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
	while (*stage_next(&s, FABRIC_TOP))
		;
	ACTIVITY(&s, ACTIVITY_KERNEL, 69 * SECOND, 70 * SECOND, ON_DEVICE(0, 2));
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
	for (uint64_t i = 0; i < 10123; i++) {
		MARK(&s, ACTIVITY_MARK_START, 200 + i, i, ON_HOST(77, 8));
		MARK(&s, ACTIVITY_MARK_END, 201 + i, i, ON_HOST(77, 8));
	}
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
	MARK(&s, ACTIVITY_MARK_START, 320, 12, .name = 1, .detail = 2, ON_HOST(77, 8));
	MARK(&s, ACTIVITY_MARK_END, 330, 12, ON_HOST(77, 8));
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
	struct request_text at = {where, (size_t)n};
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
	struct request_text at = {"/nonexistent/sonde", 18};
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
		struct request_text t = {bad[i], strlen(bad[i])};
		CHECK(!senders_find(all, &t));
	}
	senders_free(all);
}
