/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Who has the buffers of Ascend's library, and when: bounds, threads, a forked child. */
#include "device/ascend/activity/mspti.h"

#include "fake_mspti.h"
#include "guest/collect/collect.h"
#include "jobs.h"

#include <pthread.h>

#define ALL UINT32_MAX

static void run(void (*fn)(void))
{
	job_session(0, 256, 0);
	job_follow(job_start(fn));
	CHECK_INT(job_ends[0].lost_events, 0);
	CHECK_INT(job_ends[0].damaged, 0);
}

static size_t told(void)
{
	size_t n = 0;

	for (size_t i = 0; i < job_nevents; i++)
		n += job_record(i)->type == REC_ACTIVITY;
	return n;
}

static void put_kernel(uint64_t i)
{
	FAKE_PUT((struct mspti_kernel){ACTIVITY_KERNEL, i, i + 1, 0, 0, i, "AI_CORE", "MatMul", 0});
}

static long mapped_kib(void)
{
	long pages = 0;
	FILE *f = fopen("/proc/self/statm", "r");

	CHECK(f && fscanf(f, "%ld", &pages) == 1);
	fclose(f);
	return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static void buffers_job(void)
{
	uint8_t *out[MSPTI_BUFFERS + 1];
	size_t size, most;

	mspti_use(&fake_fns);
	for (int round = 0; round < 3; round++) {
		long before = mapped_kib();
		CHECK_INT(mspti_source.start(ALL), 0);
		for (unsigned i = 0; i < MSPTI_BUFFERS; i++) {
			fake.request(&out[i], &size, &most);
			CHECK(out[i] && (uintptr_t)out[i] % 8 == 0);
			CHECK(size == MSPTI_BUFFER_BYTES && most == 0);
			out[i][0] = out[i][size - 1] = 1;
		}
		fake.request(&out[MSPTI_BUFFERS], &size, &most);
		CHECK(!out[MSPTI_BUFFERS] && size == 1);
		CHECK_INT(mspti_source.lost(), 1);
		fake.complete(NULL, 1, 0); /* as the library does, later */
		for (unsigned i = 0; i < MSPTI_BUFFERS; i++)
			fake.complete(out[i], size, 0);
		fake.complete(out[0], size, 8); /* for the second time: it is not ours any more */
		fake.complete((uint8_t *)out, size, 8);
		for (unsigned i = 0; i < 100; i++) {
			fake.request(&out[0], &size, &most);
			CHECK(out[0]);
			fake.complete(out[0], size, 0);
		}
		CHECK_INT(mspti_source.lost(), 1);
		mspti_source.stop();
		CHECK(mapped_kib() < before + (round ? 8192 : 65536));
		fake.request(&out[0], &size, &most);
		CHECK(!out[0]);
		CHECK_INT(mspti_source.lost(), 1);
	}
}

TEST(mspti_buffers, buffers_are_bounded)
{
	run(buffers_job);
	CHECK_INT(told(), 0);
	job_cleanup();
}

static void dropped_job(void)
{
	mspti_use(&fake_fns);
	fake.dropped = 100; /* of somebody before */
	CHECK_INT(mspti_source.start(ALL), 0);
	CHECK_INT(mspti_source.lost(), 0);
	fake.dropped = 5;
	CHECK_INT(mspti_source.lost(), 5);
	fake.dropped = 2;
	mspti_source.stop();
	CHECK_INT(mspti_source.lost(), 7);
}

TEST(mspti_buffers, dropped_by_the_library)
{
	run(dropped_job);
	job_cleanup();
}

/* --- threads --- */

#define THREADS 4
#define BUFFERS 20
#define RECORDS 2000

static void *fill_and_complete(void *arg)
{
	uint8_t *b;
	size_t size, most;

	for (int i = 0; i < BUFFERS; i++) {
		fake.request(&b, &size, &most);
		CHECK(b);
		for (uint64_t k = 0; k < RECORDS; k++) {
			struct mspti_kernel r = {ACTIVITY_KERNEL, k, k, 0, 0, k, "t", "n", 0};
			memcpy(b + k * sizeof(r), &r, sizeof(r));
		}
		fake.complete(b, size, RECORDS * sizeof(struct mspti_kernel));
	}
	return arg;
}

static void threads_job(void)
{
	pthread_t t[THREADS];

	mspti_use(&fake_fns);
	CHECK_INT(mspti_source.start(ALL), 0);
	for (int i = 0; i < THREADS; i++)
		CHECK_INT(pthread_create(&t[i], NULL, fill_and_complete, NULL), 0);
	for (int i = 0; i < 10; i++)
		mspti_source.flush();
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	mspti_source.stop();
	CHECK_INT(mspti_source.lost(), 0);
}

TEST(mspti_buffers, several_threads_at_once)
{
	run(threads_job);
	CHECK_INT(told(), THREADS * BUFFERS * RECORDS);
	job_cleanup();
}

static void *complete_later(void *arg)
{
	usleep(50000);
	fake.complete(arg, MSPTI_BUFFER_BYTES, sizeof(struct mspti_kernel));
	return NULL;
}

static void later_job(void)
{
	pthread_t t;
	uint8_t *b;
	size_t size, most;
	struct mspti_kernel r = {ACTIVITY_KERNEL, 1, 2, 0, 0, 3, "t", "n", 0};

	mspti_use(&fake_fns);
	CHECK_INT(mspti_source.start(ALL), 0);
	fake.request(&b, &size, &most);
	memcpy(b, &r, sizeof(r));
	CHECK_INT(pthread_create(&t, NULL, complete_later, b), 0);
	mspti_source.flush();
	/* The library's other thread has told it. */
	collect_monitor(MONITOR_LOST, 1, 0, -1, NULL, 0);
	pthread_join(t, NULL);
	/* One that never comes, as far as anybody can tell: nothing hangs, nothing is unmapped. */
	fake.request(&b, &size, &most);
	memcpy(b, &r, sizeof(r));
	mspti_source.flush();
	mspti_source.stop();
	collect_monitor(MONITOR_STOP, 1, 0, -1, NULL, 0);
	b[sizeof(r)] = 1;
	fake.complete(b, size, sizeof(r));
	CHECK_INT(mspti_source.lost(), 1);
}

TEST(mspti_buffers, buffers_that_come_late)
{
	run(later_job);
	CHECK_INT(told(), 1);
	CHECK_INT(job_nevents, 5);
	CHECK_INT(job_record(2)->type, REC_ACTIVITY);
	CHECK_INT(job_record(3)->type, REC_MONITOR);
	job_cleanup();
}

/* --- a forked child --- */

static void fork_job(void)
{
	collect_monitor(MONITOR_START, 1, 0, -1, NULL, 0); /* the first process of the recording */
	mspti_use(&fake_fns);
	CHECK_INT(mspti_source.start(ALL), 0);
	put_kernel(1);
	pid_t pid = fork();
	if (pid == 0) {
		fake.buffer[fake.valid] = 0; /* the library may go on writing */
		fake_retire();
		put_kernel(2);
		CHECK(!fake.buffer);
		mspti_source.flush();
		mspti_source.stop();
		fake.subscribed = false;
		/* Its own monitor begins anew. */
		CHECK_INT(mspti_source.start(ALL), 0);
		fake.size = 0;
		put_kernel(3);
		mspti_source.stop();
		exit(0);
	}
	int status;
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK_INT(status, 0);
	mspti_source.stop();
}

TEST(mspti_buffers, forked_child)
{
	run(fork_job);
	CHECK_INT(told(), 2);
	for (size_t i = 0; i < job_nevents; i++) {
		const struct rec_activity *a = (const struct rec_activity *)job_record(i);
		if (a->head.type == REC_ACTIVITY)
			CHECK_INT(a->correlation, job_events[i].proc ? 3 : 1);
	}
	job_cleanup();
}
