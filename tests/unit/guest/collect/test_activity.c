/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Activities and the monitor's words: what they become in the ring. */
#include "guest/collect/collect.h"

#include "guest/runtime/guest.h"
#include "jobs.h"

#include <pthread.h>

#define WALL_MINUS_MONO 1700000000000000000ll

static int64_t true_difference(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec - (int64_t)hand_now();
}

static void session(uint32_t want, uint32_t max_segs)
{
	job_session(want, max_segs, 0);
	job_page->wall_minus_mono_ns = true_difference();
}

static void run(uint32_t want, void (*fn)(void))
{
	session(want, 64);
	job_wait(job_start(fn));
	while (job_look())
		;
	CHECK_INT(job_ends[0].damaged, 0);
	CHECK_INT(job_ends[0].lost_events, 0);
}

static const struct rec_activity *activity(size_t i)
{
	CHECK_INT(job_record(i)->type, REC_ACTIVITY);
	CHECK(rec_check(job_record(i), job_record(i)->size));
	return (const struct rec_activity *)job_record(i);
}

static const struct rec_monitor *monitor(size_t i)
{
	CHECK_INT(job_record(i)->type, REC_MONITOR);
	CHECK(rec_check(job_record(i), job_record(i)->size));
	return (const struct rec_monitor *)job_record(i);
}

static uint64_t name_at(size_t i, const char *text, size_t want_len)
{
	size_t len;
	const struct rec_name *r = (const struct rec_name *)job_record(i);

	CHECK_INT(r->head.type, REC_NAME);
	const char *got = rec_text(&r->head, &len);
	CHECK_INT(len, want_len);
	CHECK(!memcmp(got, text, len));
	CHECK(r->hash != 0);
	return r->hash;
}

static size_t count_type(uint8_t type)
{
	size_t n = 0;

	for (size_t i = 0; i < job_nevents; i++)
		n += job_record(i)->type == type;
	return n;
}

static void fields_job(void)
{
	struct collect_activity a = {
		.start_ns = (uint64_t)guest.page->wall_minus_mono_ns + 1001,
		.end_ns = (uint64_t)guest.page->wall_minus_mono_ns + 2002,
		.correlation = 0x1234567890abcdef,
		.amount = 77,
		.more = 88,
		.name = "hcom_allReduce_",
		.detail = "group_0",
		.more_text = "RING",
		.where = {3, 9},
		.kind = ACTIVITY_COMMUNICATION,
		.flag = 5,
		.place = ACTIVITY_ON_DEVICE,
		.async = 1,
		.data_type = 65535,
	};

	collect_activity(&a);
	a.more_text = NULL;
	a.name = "";
	a.detail = NULL;
	collect_activity(&a);
}

/* guest.page is not there before the process has joined. */
static void joined_fields_job(void)
{
	collect_monitor(MONITOR_START, 1, 0, -1, NULL, 0);
	fields_job();
}

TEST(collect_activity, fields)
{
	run(0, joined_fields_job);
	CHECK_INT(job_nevents, 6);
	uint64_t name = name_at(1, "hcom_allReduce_", 15), group = name_at(2, "group_0", 7);
	uint64_t algorithm = name_at(3, "RING", 4);
	CHECK(name != group && group != algorithm && name != algorithm);
	const struct rec_activity *a = activity(4);
	CHECK_INT(a->start_ns, 1001);
	CHECK_INT(a->end_ns, 2002);
	CHECK(a->head.time_ns >= job_record(3)->time_ns);
	CHECK(a->correlation == 0x1234567890abcdef && a->amount == 77);
	CHECK(a->name == name && a->detail == group && a->more == algorithm);
	CHECK(a->where[0] == 3 && a->where[1] == 9);
	CHECK(a->kind == ACTIVITY_COMMUNICATION && a->flag == 5 && a->async == 1);
	CHECK(a->place == ACTIVITY_ON_DEVICE && a->data_type == 65535);
	a = activity(5);
	CHECK(a->name == 0 && a->detail == 0 && a->more == 88);
	job_cleanup();
}

static char longer[6000];

static void tell(const char *name)
{
	struct collect_activity a = {.kind = ACTIVITY_KERNEL, .name = name};

	collect_activity(&a);
}

static void names_job(void)
{
	memset(longer, 'n', sizeof(longer) - 1);
	for (int i = 0; i < 3; i++) {
		tell("one");
		tell(longer);
		tell("two");
		tell(longer + 500); /* the same text, once it is cut */
		tell(longer + sizeof(longer) - 1 - REC_MAX_NAME); /* the same, and not cut */
	}
}

TEST(collect_activity, a_name_is_told_once)
{
	run(0, names_job);
	memset(longer, 'n', sizeof(longer) - 1);
	CHECK_INT(count_type(REC_NAME), 3);
	CHECK_INT(count_type(REC_ACTIVITY), 15);
	uint64_t one = name_at(0, "one", 3), cut = name_at(2, longer, REC_MAX_NAME);
	CHECK_INT(job_record(2)->flags, REC_F_TEXT_CUT);
	CHECK(activity(1)->name == one && activity(3)->name == cut);
	CHECK(activity(6)->name == cut && activity(7)->name == cut && activity(8)->name == one);
	job_cleanup();
}

/* Texts that differ in any byte, or only in their length, have hashes of their own. */
static void hashes_job(void)
{
	char text[40];

	for (size_t len = 1; len < sizeof(text); len++)
		for (size_t at = 0; at <= len; at++) {
			memset(text, 'x', len);
			text[len] = '\0';
			if (at < len)
				text[at] = 'y';
			tell(text);
		}
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

TEST(collect_activity, hashes_differ)
{
	static uint64_t hashes[2000];
	size_t n = 0;

	run(0, hashes_job);
	for (size_t i = 0; i < job_nevents; i++)
		if (job_record(i)->type == REC_NAME && n < 2000)
			hashes[n++] = ((const struct rec_name *)job_record(i))->hash;
	CHECK_INT(n, 39 * 42 / 2);
	qsort(hashes, n, sizeof(hashes[0]), by_value);
	for (size_t i = 1; i < n; i++)
		CHECK(hashes[i] != hashes[i - 1]);
	job_cleanup();
}

/* More texts than anybody remembers: each use still finds its name told before. */
#define MANY 40000

static void many_job(void)
{
	char text[32];

	for (int round = 0; round < 2; round++)
		for (int i = 0; i < MANY; i++) {
			snprintf(text, sizeof(text), "step %d", i);
			tell(text);
			tell("kernel");
		}
}

TEST(collect_activity, more_names_than_room)
{
	session(0, 1024);
	job_follow(job_start(many_job));
	CHECK_INT(job_ends[0].lost_events, 0);
	CHECK_INT(count_type(REC_ACTIVITY), 4 * MANY);
	size_t names = count_type(REC_NAME);
	CHECK(names > MANY && names < 3 * MANY);
	uint64_t told = 0;
	for (size_t i = 0; i < job_nevents; i++) {
		if (job_record(i)->type == REC_NAME)
			told = ((const struct rec_name *)job_record(i))->hash;
		else if (i && told == activity(i)->name)
			told = 0;
	}
	CHECK_INT(told, 0); /* no name without its use */
	job_cleanup();
}

static void fork_job(void)
{
	tell("of both");
	pid_t pid = fork();
	if (pid == 0) {
		tell("of both");
		exit(0);
	}
	int status;
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK_INT(status, 0);
	tell("of both");
}

TEST(collect_activity, a_forked_child_tells_again)
{
	unsigned names[JOB_MAX_PROCS] = {0};

	run(0, fork_job);
	CHECK_INT(job_nprocs, 2);
	for (size_t i = 0; i < job_nevents; i++)
		names[job_events[i].proc] += job_record(i)->type == REC_NAME;
	CHECK_INT(names[0], 1);
	CHECK_INT(names[1], 1);
	job_cleanup();
}

/* --- threads: whoever uses a name, the record with its text is earlier --- */

#define THREADS 4
#define ROUNDS 20000

static void *thread_main(void *arg)
{
	char text[32];

	(void)arg;
	for (int i = 0; i < ROUNDS; i++) {
		snprintf(text, sizeof(text), "name %d", i);
		tell(text);
	}
	return NULL;
}

static void threads_job(void)
{
	pthread_t t[THREADS];

	for (int i = 0; i < THREADS; i++)
		CHECK_INT(pthread_create(&t[i], NULL, thread_main, NULL), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
}

TEST(collect_activity, names_come_first)
{
	uint64_t *seen = calloc(1 << 17, sizeof(*seen));

	CHECK(seen);
	session(0, 1024);
	job_follow(job_start(threads_job));
	CHECK_INT(job_ends[0].lost_events, 0);
	CHECK_INT(count_type(REC_ACTIVITY), THREADS * ROUNDS);
	for (size_t i = 0; i < job_nevents; i++) {
		bool is_name = job_record(i)->type == REC_NAME;
		uint64_t hash = is_name ? ((const struct rec_name *)job_record(i))->hash
					: activity(i)->name;
		size_t at = hash % (1 << 17);
		while (seen[at] && seen[at] != hash)
			at = (at + 1) % (1 << 17);
		CHECK(is_name || seen[at] == hash);
		seen[at] = hash;
	}
	free(seen);
	job_cleanup();
}

/* --- no room --- */

#define FLOOD 200000

static void flood_job(void)
{
	char text[32];

	for (int i = 0; i < FLOOD; i++) {
		snprintf(text, sizeof(text), "name %d", i % 500);
		tell(text);
	}
}

TEST(collect_activity, loss_is_counted_once)
{
	session(0, 16);
	job_wait(job_start(flood_job)); /* nobody reads meanwhile */
	while (job_look())
		;
	size_t told = count_type(REC_ACTIVITY);
	CHECK(told > 1000 && told < FLOOD);
	CHECK_INT(told + job_ends[0].lost_events, FLOOD);
	job_cleanup();
}

/* --- time --- */

static void clock_job(void)
{
	collect_monitor(MONITOR_START, 1, 0, -1, NULL, 0);
	struct collect_activity a = {.start_ns = (uint64_t)true_difference() + hand_now()};
	a.end_ns = 12; /* nobody has filled it in */
	collect_activity(&a);
}

/* Somebody has set the clock since the recording began: an activity of now is one of now. */
TEST(collect_activity, clock_was_set)
{
	job_session(0, 64, 0);
	job_page->wall_minus_mono_ns = WALL_MINUS_MONO / 2;
	job_wait(job_start(clock_job));
	while (job_look())
		;
	const struct rec_activity *a = activity(1);
	CHECK(a->start_ns <= a->head.time_ns + 1000000);
	CHECK(a->start_ns + 10000000000ull > a->head.time_ns);
	CHECK_INT(a->end_ns, 0);
	job_cleanup();
}

static void exact_job(void)
{
	collect_monitor(MONITOR_START, 1, 0, -1, NULL, 0);
	for (int i = 0; i < 3; i++) {
		struct collect_activity a = {.start_ns = 1800000000123456789ull,
					     .end_ns = 1800000000123456790ull};
		collect_activity(&a);
		usleep(120000); /* the clock is looked at again */
	}
}

/* A difference that is a little off, as two looks at two clocks are, changes no number. */
TEST(collect_activity, the_vendors_numbers_come_back)
{
	job_session(0, 64, 0);
	job_page->wall_minus_mono_ns = true_difference() + 300000;
	job_wait(job_start(exact_job));
	while (job_look())
		;
	for (size_t i = 1; i < 4; i++) {
		CHECK(activity(i)->start_ns + (uint64_t)job_page->wall_minus_mono_ns ==
		      1800000000123456789ull);
		CHECK(activity(i)->end_ns + (uint64_t)job_page->wall_minus_mono_ns ==
		      1800000000123456790ull);
	}
	job_cleanup();
}

/* --- the monitor --- */

static char order[3000];

static void monitor_job(void)
{
	memset(order, 'o', sizeof(order));
	collect_monitor(MONITOR_START, 1, 2, 3, "short", 5);
	collect_monitor(MONITOR_CHANGE, 1, 2, 3, order, sizeof(order));
	collect_monitor(MONITOR_GROUPS, 1, 0, -1, order, REC_MAX_TEXT + 1);
	collect_monitor(MONITOR_STEP, 1, 42, -1, NULL, 0);
	collect_monitor(MONITOR_STOP, 1, 0, -1, NULL, 0);
}

static void check_monitor(size_t i, uint8_t kind, size_t len)
{
	CHECK_INT(monitor(i)->kind, kind);
	CHECK_INT(monitor(i)->len, len);
	CHECK_INT(monitor(i)->window, 1);
	for (size_t at = 0; at < len && kind != MONITOR_START; at++)
		CHECK_INT(monitor(i)->text[at], 'o');
}

TEST(collect_activity, words_of_the_monitor)
{
	run(0, monitor_job);
	CHECK_INT(job_nevents, 9);
	check_monitor(0, MONITOR_START, 5);
	CHECK(!memcmp(monitor(0)->text, "short", 5));
	CHECK(monitor(0)->value == 2 && monitor(0)->rank == 3);
	check_monitor(1, MONITOR_REQUEST, REC_MAX_TEXT);
	check_monitor(2, MONITOR_REQUEST, REC_MAX_TEXT);
	check_monitor(3, MONITOR_REQUEST, sizeof(order) - 2 * REC_MAX_TEXT);
	check_monitor(4, MONITOR_CHANGE, 0);
	check_monitor(5, MONITOR_GROUPS, REC_MAX_TEXT);
	check_monitor(6, MONITOR_GROUPS, 1);
	check_monitor(7, MONITOR_STEP, 0);
	CHECK_INT(monitor(7)->value, 42);
	check_monitor(8, MONITOR_STOP, 0);
	job_cleanup();
}

/* Also while the memory of the process is not traced. */
TEST(collect_activity, deferred)
{
	run(WANT_DEFERRED, joined_fields_job);
	CHECK_INT(count_type(REC_ACTIVITY), 2);
	CHECK_INT(count_type(REC_MONITOR), 1);
	job_cleanup();
}

static void patient_job(void)
{
	flood_job();
	collect_monitor(MONITOR_STOP, 1, 0, -1, NULL, 0); /* there is no room for a while */
}

TEST(collect_activity, the_end_waits_for_room)
{
	session(0, 16);
	pid_t pid = job_start(patient_job);
	usleep(300000); /* the rings are full by now */
	job_follow(pid);
	CHECK_INT(count_type(REC_MONITOR), 1);
	CHECK_INT(count_type(REC_ACTIVITY) + job_ends[0].lost_events, FLOOD);
	job_cleanup();
}
