/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Native stacks of the real producer: equal ones have one id, whoever meets them. */
#include "guest/runtime/guest.h"
#include "jobs.h"

#include <pthread.h>

#define PATHS 12 /* bits: 2^12 different stacks */

static uint32_t ids[1u << 17];

/* The way down is chosen by the bits of `path`; `deep` more frames below. */
static uint32_t left(uint32_t path, unsigned bits, unsigned deep);
static uint32_t right(uint32_t path, unsigned bits, unsigned deep);

static __attribute__((noinline)) uint32_t walk(uint32_t path, unsigned bits, unsigned deep)
{
	uint32_t id;

	if (bits)
		id = path & 1 ? left(path >> 1, bits - 1, deep) : right(path >> 1, bits - 1, deep);
	else if (deep)
		id = walk(0, 0, deep - 1);
	else
		id = guest_stack((uint64_t)__builtin_return_address(0));
	__asm__ volatile("" : "+r"(id)); /* a call here, not a jump */
	return id;
}

static __attribute__((noinline)) uint32_t left(uint32_t path, unsigned bits, unsigned deep)
{
	uint32_t id = walk(path, bits, deep);

	__asm__ volatile("" : "+r"(id));
	return id;
}

static __attribute__((noinline)) uint32_t right(uint32_t path, unsigned bits, unsigned deep)
{
	uint32_t id = walk(path, bits, deep);

	__asm__ volatile("" : "+r"(id) : : "memory");
	return id;
}

static int by_number(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

static size_t different(uint32_t n)
{
	size_t count = n > 0;

	qsort(ids, n, sizeof(ids[0]), by_number);
	for (uint32_t i = 1; i < n; i++)
		count += ids[i] != ids[i - 1];
	return count;
}

static void attach(void)
{
	CHECK_INT(guest_mode(), GUEST_RECORD);
	CHECK(guest.c_depth);
}

/*
 * The ids of the first n paths, met `times` times from the same place; every time they are the same
 * and nothing more is stored. Returns how many had no room.
 */
static uint32_t meet(uint32_t n, unsigned bits, uint32_t step, int times)
{
	uint32_t failed = 0;
	uint64_t used = 0;

	for (volatile int pass = 0; pass < times; pass = pass + 1) {
		for (uint32_t i = 0; i < n; i += pass ? step : 1) {
			uint32_t id = walk(i, bits, 0);
			if (!pass)
				ids[i] = id;
			else
				CHECK_INT(id, ids[i]);
			failed += !pass && !id;
		}
		if (pass)
			CHECK(failed || atomic_load(&guest.arena->stack_used) == used);
		used = atomic_load(&guest.arena->stack_used);
	}
	return failed;
}

static void one_thread_job(void)
{
	attach();
	CHECK_INT(meet(1u << PATHS, PATHS, 1, 3), 0);
	CHECK_INT(different(1u << PATHS), 1u << PATHS);
	CHECK_INT(atomic_load(&guest.arena->lost_stacks), 0);
	/* What is stored is what was met: a return address of this program, innermost first. */
	struct stack_entry *e = arena_stack(guest.arena, ids[0]);
	CHECK(e->depth && e->depth <= STACK_CHUNK + 1);
	CHECK_INT(e->pc[e->depth - 1] >> 48, STACK_REST >> 48);
	errno = 77;
	walk(1, PATHS, 3);
	CHECK_INT(errno, 77);
}

static void session(uint32_t depth)
{
	job_session(WANT_ALLOC, 256, 0);
	job_page->c_depth = depth;
}

TEST(intern, equal_stacks_have_one_id)
{
	session(50);
	job_wait(job_start(one_thread_job));
	job_cleanup();
}

static uint32_t by_thread[4][1u << PATHS];
static pthread_barrier_t barrier;

static void *meet_all(void *arg)
{
	uint32_t *mine = by_thread[(uintptr_t)arg];

	pthread_barrier_wait(&barrier);
	for (uint32_t i = 0; i < 1u << PATHS; i++)
		mine[i] = walk(i, PATHS, 0);
	return NULL;
}

static void threads_job(void)
{
	pthread_t t[4];

	attach();
	pthread_barrier_init(&barrier, NULL, 4);
	for (uintptr_t i = 0; i < 4; i++)
		CHECK(pthread_create(&t[i], NULL, meet_all, (void *)i) == 0);
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	for (int i = 1; i < 4; i++)
		CHECK(!memcmp(by_thread[i], by_thread[0], sizeof(by_thread[0])));
	memcpy(ids, by_thread[0], sizeof(by_thread[0]));
	CHECK_INT(different(1u << PATHS), 1u << PATHS);
	CHECK(ids[0]);
	CHECK_INT(atomic_load(&guest.arena->lost_stacks), 0);
}

/* Threads that race for the same stacks agree; the frames above them are the same for all. */
TEST(intern, threads_agree)
{
	session(PATHS * 2 + 2);
	job_wait(job_start(threads_job));
	job_cleanup();
}

static void many_job(void)
{
	attach();
	/* More than the first index has slots for: the second takes the rest. */
	CHECK_INT(meet(ARENA_STACK_SLOTS / 4 * 5, 17, 7, 2), 0);
	CHECK_INT(atomic_load(&guest.arena->lost_stacks), 0);
	CHECK(atomic_load(&guest.arena->has_more));
}

TEST(intern, more_than_the_first_index)
{
	session(50);
	job_wait(job_start(many_job));
	job_cleanup();
}

static void deep_job(void)
{
	uint32_t failed = 0;

	attach();
	CHECK_INT(guest.arena->stack_bytes, ARENA_SMALL_STACKS);
	for (uint32_t i = 0; i < 6000; i++)
		failed += !walk(i, 13, 900);
	CHECK(failed > 0 && failed < 5000);
	CHECK_INT(atomic_load(&guest.arena->lost_stacks), failed);
	CHECK(walk(1, 1, 1) == 0 || true); /* a small one may still fit or not; it must not crash */
}

/* A stack of a thousand frames that differs in its innermost ones takes some words. */
static void shared_job(void)
{
	attach();
	CHECK(walk(0, 0, 900));
	uint64_t used = atomic_load(&guest.arena->stack_used);
	CHECK(walk(0, 0, 901));
	CHECK(used > 900 * 8);
	for (uint32_t i = 0; i < 1000; i++)
		CHECK(walk(i, 10, 0));
	CHECK_INT(atomic_load(&guest.arena->lost_stacks), 0);
	CHECK((atomic_load(&guest.arena->stack_used) - used) / 1000 < 200);
}

TEST(intern, parts_are_shared)
{
	session(1000);
	job_wait(job_start(shared_job));
	job_cleanup();
}

TEST(intern, full_budget)
{
	session(1000);
	job_wait(job_start(deep_job));
	job_cleanup();
}

static void off_job(void)
{
	CHECK_INT(guest_mode(), GUEST_RECORD);
	CHECK_INT(walk(1, 1, 1), 0);
	CHECK_INT(atomic_load(&guest.arena->stack_used) <= 8, 1);
	CHECK_INT(atomic_load(&guest.arena->lost_stacks), 0);
}

TEST(intern, no_stacks_wanted)
{
	session(0);
	job_wait(job_start(off_job));
	job_cleanup();
}

/* A forked child has an arena of its own, and its stacks and objects are told there anew. */
static void fork_job(void)
{
	attach();
	uint32_t mine = walk(5, 4, 0);
	pid_t pid = fork();
	if (pid == 0) {
		CHECK_INT(guest_mode(), GUEST_RECORD);
		uint32_t id = walk(5, 4, 0);
		CHECK(id && arena_stack(guest.arena, id)->depth);
		CHECK(!memcmp(arena_stack(guest.arena, id)->pc, arena_stack(guest.arena, id)->pc,
			      8));
		_exit(0);
	}
	job_wait(pid);
	CHECK_INT(walk(5, 4, 0) != 0, mine != 0);
}

TEST(intern, fork)
{
	session(30);
	job_follow(job_start(fork_job));
	CHECK_INT(job_nprocs, 2);
	unsigned modules[2] = {0};
	for (size_t i = 0; i < job_nevents; i++)
		if (job_record(i)->type == REC_MODULE)
			modules[job_events[i].proc]++;
	CHECK(modules[0] && modules[1]);
	job_cleanup();
}
