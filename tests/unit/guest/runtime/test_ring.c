/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The real ring producer (src/guest), in child processes, read by the real drain. */
#include "guest/collect/collect.h"
#include "guest/runtime/guest.h"
#include "jobs.h"
#include "memory/track/track.h"

#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>

#define THREADS 4
#define EACH 100000u

static uint32_t my_tid(void)
{
	return (uint32_t)syscall(SYS_gettid);
}

static void emit(uint64_t addr, uint64_t size)
{
	struct collect_block b = {addr,	       size,	    0,		 POOL_HAL,
				  ALLOC_PLAIN, PAGE_NORMAL, MODULE_NONE, 0};

	collect_alloc(&b, NULL);
}

/* A record at the lowest level: whether there was room. */
static bool emit_raw(uint64_t addr)
{
	struct rec_alloc *r = guest_reserve(sizeof(*r));

	if (!r)
		return false;
	*r = (struct rec_alloc){
		.head = {REC_ALLOC, 0, sizeof(*r), 0, guest_now()}, .addr = addr, .pool = POOL_HAL};
	guest_publish(sizeof(*r));
	return true;
}

static void fill_budget(uint64_t n)
{
	for (uint64_t i = 1; i <= n; i++)
		emit(i, my_tid());
}

/* --- levels --- */

static void fill(struct rec_alloc *r, uint64_t addr)
{
	*r = (struct rec_alloc){
		.head = {REC_ALLOC, 0, sizeof(*r), 0, guest_now()}, .addr = addr, .pool = POOL_HAL};
}

/* A hook that looks where its stack is: in a frame of its own. */
static __attribute__((noinline)) struct rec_alloc *reserve(void)
{
	return guest_reserve(sizeof(struct rec_alloc));
}

/* As handlers that hit hooks: each in a frame of its own, deeper than the one it interrupts. */
static __attribute__((noinline)) void handler_in_handler(void)
{
	volatile char *frame = ON_STACK(2048);

	CHECK(!reserve()); /* dropped, counted */
	CHECK_INT(guest_self.level, 2);
	CHECK_INT(frame[0], 0);
}

static __attribute__((noinline)) void handler(const struct rec_alloc *outer)
{
	volatile char *frame = ON_STACK(2048);
	struct rec_alloc *inner = reserve();

	CHECK(inner && inner != outer);
	CHECK_INT(guest_self.level, 2);
	handler_in_handler();
	fill(inner, 3);
	guest_publish(sizeof(*inner));
	CHECK_INT(frame[0], 0);
}

static void nesting_job(void)
{
	emit(1, 1);
	struct rec_alloc *outer = reserve();
	CHECK(outer);
	CHECK_INT(guest_self.level, 1);
	handler(outer);
	CHECK_INT(guest_self.level, 1);
	fill(outer, 2);
	guest_publish(sizeof(*outer));
	CHECK_INT(guest_self.level, 0);
	emit(4, 1);
	CHECK_INT(atomic_load(&guest.arena->nrings), 2);
}

TEST(ring, levels)
{
	job_session(WANT_ALLOC, 64, 0);
	pid_t pid = job_start(nesting_job);
	job_wait(pid);
	while (job_look())
		;
	CHECK_INT(job_nevents, 4);
	CHECK_INT(JOB_ALLOC(0)->addr, 1);
	CHECK_INT(JOB_ALLOC(1)->addr, 3);
	CHECK_INT(JOB_ALLOC(2)->addr, 2);
	CHECK_INT(JOB_ALLOC(3)->addr, 4);
	for (size_t i = 0; i < 4; i++)
		CHECK_INT(job_events[i].tid, pid);
	CHECK_INT(job_ends[0].lost_events, 1);
	CHECK_INT(job_ends[0].damaged, 0);
	job_cleanup();
}

/* What a handler leaves by longjmp() while its hook is open. */
static void abandon(void)
{
	CHECK(reserve());
}

/* Hooks differ in what they need of the stack. */
static __attribute__((noinline)) void emit_deeper(uint64_t addr)
{
	volatile char *frame = ON_STACK(16);
	struct rec_alloc *r = reserve();

	CHECK(r);
	fill(r, addr);
	guest_publish(sizeof(*r));
	CHECK_INT(frame[0], 0);
}

static __attribute__((noinline)) void emit_in_a_handler(uint64_t addr)
{
	volatile char *frame = ON_STACK(2048);

	emit(addr, 1);
	CHECK_INT(frame[0], 0);
}

static void jumping_job(void)
{
	emit(1, 1);
	abandon();
	emit_in_a_handler(2); /* that may have been called inside of it */
	abandon();
	CHECK_INT(guest_self.level, 2);
	emit_in_a_handler(3);
	CHECK_INT(guest_self.level, 2);
	emit_deeper(4);
	CHECK_INT(guest_self.level, 0);
}

/* Who calls next from where the abandoned hooks were called is no handler, however deep it is. */
TEST(ring, hooks_left_by_a_jump)
{
	job_session(WANT_ALLOC, 64, 0);
	job_follow(job_start(jumping_job));
	CHECK_INT(job_nevents, 3);
	CHECK_INT(JOB_ALLOC(0)->addr, 1);
	CHECK_INT(JOB_ALLOC(1)->addr, 2);
	CHECK_INT(JOB_ALLOC(2)->addr, 4);
	CHECK_INT(job_ends[0].lost_events, 1);
	CHECK_INT(job_ends[0].damaged, 0);
	job_cleanup();
}

/* Two fibers inside hooks at once: the room was enough for one of them. */
static void fibers_job(void)
{
	emit(1, 1);
	struct guest_cursor *c = &guest_self.cur[0];
	struct rec_alloc *r = guest_reserve(sizeof(*r));
	CHECK(r);
	fill(r, 2);
	c->end = c->pos + sizeof(*r) - 8;
	guest_publish(sizeof(*r));
	CHECK_INT(guest_self.level, 0);
}

TEST(ring, a_record_without_room_is_counted)
{
	job_session(WANT_ALLOC, 64, 0);
	job_follow(job_start(fibers_job));
	CHECK_INT(job_nevents, 1);
	CHECK_INT(job_ends[0].lost_events, 1);
	job_cleanup();
}

static timer_t timer;

/* Each asks for the next: a slow machine would do nothing but handle a timer that repeats. */
static void next_alarm(void)
{
	const struct itimerspec t = {.it_value = {0, 20000}};

	CHECK(timer_settime(timer, 0, &t, NULL) == 0);
}

static void on_alarm(int sig)
{
	(void)sig;
	emit(0, 2);
	next_alarm();
}

/* Signals that hit a hook inside a hook, at any instruction. */
static void signal_job(void)
{
	struct sigevent ev = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};

	signal(SIGALRM, on_alarm);
	CHECK(timer_create(CLOCK_MONOTONIC, &ev, &timer) == 0);
	next_alarm();
	fill_budget(EACH);
	signal(SIGALRM, SIG_IGN);
}

TEST(ring, signal_handlers)
{
	uint64_t next = 1, handlers = 0;

	job_session(WANT_ALLOC, 1024, 1000);
	job_follow(job_start(signal_job));
	CHECK_INT(job_nends, 1);
	CHECK_INT(job_ends[0].damaged, 0);
	for (size_t i = 0; i < job_nevents; i++) {
		const struct rec_alloc *r = JOB_ALLOC(i);
		CHECK_INT(r->head.type, REC_ALLOC);
		if (!r->addr)
			handlers++;
		else
			CHECK_INT(r->addr, next++);
	}
	CHECK(handlers > 0);
	/* Only handlers may have been dropped, in the moments when a segment was changed. */
	CHECK_INT(next - 1, EACH);
	job_cleanup();
}

/* --- the budget --- */

static void full_job(void)
{
	fill_budget(EACH);
}

TEST(ring, full_budget_is_counted)
{
	job_session(WANT_ALLOC, 16, 0);
	job_wait(job_start(full_job));
	while (job_look())
		;
	CHECK_INT(job_nends, 1);
	CHECK_INT(job_nevents + job_ends[0].lost_events, EACH);
	/* All of the budget was used: 16 segments less their heads and what a hold keeps free. */
	CHECK(job_nevents >=
	      16 * ((ARENA_SEG_SIZE - 64 - GUEST_ROOM) / sizeof(struct rec_alloc)) - 1);
	for (size_t i = 0; i < job_nevents; i++)
		CHECK_INT(JOB_ALLOC(i)->addr, i + 1);
	job_cleanup();
}

static int to_job[2], from_job[2];

static void say(int fd)
{
	CHECK(write(fd, "x", 1) == 1);
}

static void hear(int fd)
{
	char c;

	CHECK(read(fd, &c, 1) == 1);
}

static void recovering_job(void)
{
	uint64_t i = 1;

	while (emit_raw(i))
		i++;
	say(from_job[1]);
	hear(to_job[0]);
	for (uint64_t k = 0; k < 1000; k++)
		CHECK(emit_raw(i + k));
}

/* When the recorder has caught up, recording goes on. */
TEST(ring, full_budget_and_after)
{
	CHECK(pipe(to_job) == 0 && pipe(from_job) == 0);
	job_session(WANT_ALLOC, 16, 0);
	pid_t pid = job_start(recovering_job);
	close(from_job[1]);
	hear(from_job[0]);
	usleep(2000);
	while (job_look())
		;
	usleep(10000); /* the guest looks once in a tick */
	say(to_job[1]);
	job_follow(pid);
	CHECK_INT(job_ends[0].lost_events, 1);
	for (size_t i = 0; i < job_nevents; i++)
		CHECK_INT(JOB_ALLOC(i)->addr, i + 1);
	job_cleanup();
}

static void waiting_job(void)
{
	uint64_t until_full = 16 * ((ARENA_SEG_SIZE - 64) / sizeof(struct rec_alloc));

	for (uint64_t i = 1; i <= until_full; i++)
		CHECK(emit_raw(i));
	/* Waits as long as it may, and not longer. */
	atomic_store(&guest.page->heartbeat_ns, guest_now());
	uint64_t begin = guest_now();
	CHECK(!emit_raw(1));
	uint64_t took = guest_now() - begin;
	CHECK(took >= 150000000 && took < 2000000000);
	/* Nobody is there: does not wait at all. */
	atomic_store(&guest.page->heartbeat_ns, guest_now() - 4000000000u);
	usleep(10000);
	begin = guest_now();
	CHECK(!emit_raw(1));
	CHECK(guest_now() - begin < 100000000);
	/* Space comes while it waits: nothing is lost. */
	guest.page->wait_ms = 20000;
	atomic_store(&guest.page->heartbeat_ns, guest_now());
	usleep(10000);
	say(from_job[1]);
	CHECK(emit_raw(2));
}

TEST(ring, wait_is_bounded)
{
	CHECK(pipe(from_job) == 0);
	job_session(WANT_ALLOC, 16, 150);
	pid_t pid = job_start(waiting_job);
	close(from_job[1]);
	hear(from_job[0]);
	usleep(50000);
	job_follow(pid);
	CHECK_INT(job_ends[0].lost_events, 2);
	CHECK_INT(JOB_ALLOC(job_nevents - 1)->addr, 2);
	job_cleanup();
}

static void *emit_some(void *arg)
{
	for (int i = 0; i < 6000; i++)
		emit_raw(1);
	return arg;
}

static void starved_job(void)
{
	pthread_t t;

	fill_budget(EACH);
	for (int i = 0; i < 3; i++) {
		CHECK(pthread_create(&t, NULL, emit_some, NULL) == 0);
		pthread_join(t, NULL);
	}
	CHECK(atomic_load(&guest.arena->nrings) < 10);
}

/* A thread that gets no segment leaves its ring to the next one: rings do not run out. */
TEST(ring, full_budget_burns_no_rings)
{
	job_session(WANT_ALLOC, 16, 0);
	job_wait(job_start(starved_job));
	while (job_look())
		;
	CHECK_INT(job_nevents + job_ends[0].lost_events, EACH + 3 * 6000);
	job_cleanup();
}

/* --- threads --- */

static void *emit_each(void *arg)
{
	uint64_t base = (uint64_t)(uintptr_t)arg * EACH;

	for (uint64_t i = 1; i <= EACH; i++)
		emit(base + i, my_tid());
	return NULL;
}

static void threads_job(void)
{
	pthread_t t[THREADS];

	for (uintptr_t i = 0; i < THREADS; i++)
		CHECK(pthread_create(&t[i], NULL, emit_each, (void *)i) == 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
}

static void check_threads(void)
{
	uint64_t next[THREADS] = {0}, last_ns = 0;

	CHECK_INT(job_nends, 1);
	CHECK_INT(job_ends[0].lost_events, 0);
	CHECK_INT(job_ends[0].damaged, 0);
	CHECK_INT(job_nevents, THREADS * EACH);
	for (size_t i = 0; i < job_nevents; i++) {
		const struct rec_alloc *r = JOB_ALLOC(i);
		uint64_t thread = (r->addr - 1) / EACH;
		CHECK(thread < THREADS);
		CHECK_INT((r->addr - 1) % EACH, next[thread]++);
		CHECK_INT(r->size_bytes, job_events[i].tid);
		CHECK(r->head.time_ns >= last_ns);
		last_ns = r->head.time_ns;
	}
}

/* Read when the job is over: every segment is used once. */
TEST(ring, threads)
{
	job_session(WANT_ALLOC, 2048, 0);
	job_wait(job_start(threads_job));
	while (job_look())
		;
	check_threads();
	job_cleanup();
}

/* The same while it runs and with a budget of a quarter: segments go round. */
TEST(ring, threads_and_reader)
{
	job_session(WANT_ALLOC, 64, 60000);
	job_follow(job_start(threads_job));
	check_threads();
	job_cleanup();
}

static void *emit_one(void *arg)
{
	emit((uint64_t)(uintptr_t)arg, my_tid());
	return NULL;
}

static void short_threads_job(void)
{
	pthread_t t;

	for (uintptr_t i = 1; i <= 500; i++) {
		CHECK(pthread_create(&t, NULL, emit_one, (void *)i) == 0);
		pthread_join(t, NULL);
	}
	CHECK(atomic_load(&guest.arena->nrings) <= 8);
}

TEST(ring, short_threads_share_rings)
{
	job_session(WANT_ALLOC, 64, 1000);
	job_follow(job_start(short_threads_job));
	CHECK_INT(job_nevents, 500);
	CHECK_INT(job_ends[0].lost_events, 0);
	for (size_t i = 0; i < job_nevents; i++) {
		CHECK_INT(JOB_ALLOC(i)->addr, i + 1);
		CHECK_INT(JOB_ALLOC(i)->size_bytes, job_events[i].tid);
	}
	job_cleanup();
}

/* --- processes --- */

static void forking_job(void)
{
	emit(1, (uint64_t)getpid());
	for (uint64_t i = 0; i < 3; i++) {
		pid_t pid = fork();
		CHECK(pid >= 0);
		if (pid == 0) {
			emit(10 + i, (uint64_t)getpid());
			if (i == 2)
				emit(20, (uint64_t)getpid());
			_exit(0);
		}
		job_wait(pid);
		emit(2 + i, (uint64_t)getpid());
	}
	pid_t silent = fork(); /* a child without an event opens nothing */
	if (silent == 0)
		_exit(0);
	job_wait(silent);
}

TEST(ring, fork)
{
	job_session(WANT_ALLOC, 64, 0);
	pid_t pid = job_start(forking_job);
	job_follow(pid);
	CHECK_INT(job_nprocs, 4);
	CHECK_INT(job_nends, 4);
	CHECK_INT(job_nevents, 8);
	for (size_t i = 0; i < job_nevents; i++) {
		const struct frame_proc *p = &job_procs[job_events[i].proc];
		CHECK_INT(JOB_ALLOC(i)->size_bytes, p->pid);
		CHECK_INT(job_events[i].tid, p->pid);
		CHECK_INT(p->ppid, p->pid == (uint32_t)pid ? getpid() : pid);
	}
	job_cleanup();
}

static void unjoined_job(void)
{
	emit(1, 1);
	CHECK_INT(guest_mode(), GUEST_OFF);
	CHECK(!emit_raw(1));
	CHECK_INT(atomic_load(&guest_epoch) != NULL, 1);
	errno = 77;
	emit(2, 1);
	CHECK_INT(errno, 77);
}

/* No arena can be made: the job goes on, and the session knows. */
TEST(ring, no_place_for_an_arena)
{
	job_session(WANT_ALLOC, 64, 0);
	strcpy(job_page->ring_dir, "/nonexistent/sonde");
	job_wait(job_start(unjoined_job));
	CHECK_INT(atomic_load(&job_page->unrecorded), 1);
	job_cleanup();
}

/* --- order: what the merge by time stands on --- */

#define PASSES 100000u
#define ADDRS 64u

static _Atomic uint32_t held_by[ADDRS]; /* 0: thread A's, 1: on its way to B, 2: on its way back */
static bool bracketed;

static void *allocator(void *arg)
{
	for (uint32_t i = 0; i < PASSES; i++) {
		uint32_t at = i % ADDRS;
		while (atomic_load(&held_by[at]) != 0)
			sched_yield();
		emit(at + 1, 8);
		atomic_store(&held_by[at], 1);
	}
	return arg;
}

static void *releaser(void *arg)
{
	for (uint32_t i = 0; i < PASSES; i++) {
		uint32_t at = i % ADDRS;
		struct collect_block b = {.addr = at + 1, .pool = POOL_HAL, .device = DEV_NONE};
		while (atomic_load(&held_by[at]) != 1)
			sched_yield();
		if (bracketed) {
			struct collect_pending p = collect_free_begin(&b);
			atomic_store(&held_by[at], 0); /* the address is free again right here */
			collect_free_end(p, &b, true, NULL);
		} else {
			collect_free(&b, NULL);
			atomic_store(&held_by[at], 0);
		}
	}
	return arg;
}

static void passing_job(void)
{
	pthread_t a, b;

	CHECK(pthread_create(&b, NULL, releaser, NULL) == 0);
	CHECK(pthread_create(&a, NULL, allocator, NULL) == 0);
	pthread_join(a, NULL);
	pthread_join(b, NULL);
}

/* Of each address: one allocation, one free, in turns. */
static void check_turns(void)
{
	bool live[ADDRS + 1] = {0};
	unsigned wrong = 0;

	job_follow(job_start(passing_job));
	CHECK_INT(job_nevents, 2 * PASSES);
	for (size_t i = 0; i < job_nevents; i++) {
		const struct rec_alloc *r = JOB_ALLOC(i);
		bool alloc = r->head.type == REC_ALLOC;
		wrong += live[r->addr] == alloc;
		live[r->addr] = alloc;
	}
	CHECK_INT(wrong, 0);
	job_cleanup();
}

TEST(ring, order_of_free_before)
{
	job_session(WANT_ALLOC, 256, 60000);
	check_turns();
}

TEST(ring, order_of_bracketed_free)
{
	bracketed = true;
	job_session(WANT_ALLOC, 256, 60000);
	check_turns();
}

static unsigned promoted;

static void count_malloc(void *arg, uint32_t proc, const struct row *row)
{
	(void)arg;
	(void)proc;
	promoted += row->event == ROW_MALLOC;
	if (row->event == ROW_MALLOC)
		CHECK(row->ptr > 1000);
}

static void deferred_job(void)
{
	passing_job();
	for (uint64_t i = 1; i <= 10; i++)
		emit(1000 + i, 8);
	collect_set_tracing(true);
}

/*
 * Not tracing, times are coarse and tell nothing within a tick; what is alive when tracing starts
 * is right all the same, because allocations and frees of an address take turns.
 */
TEST(ring, order_while_not_tracing)
{
	static const char config[] = "{\"collectMode\":1}";
	struct track_sink sink = {.row = count_malloc};
	struct track *t = track_new(&sink);

	job_session(WANT_ALLOC | WANT_DEFERRED, 256, 60000);
	job_follow(job_start(deferred_job));
	CHECK_INT(job_nevents, 2 * PASSES + 10 + 1);
	track_stream.session(t, config, sizeof(config) - 1);
	track_stream.proc(t, &job_procs[0]);
	for (size_t i = 0; i < job_nevents; i++)
		track_stream.record(t, 0, job_events[i].tid, job_record(i));
	CHECK_INT(promoted, 10);
	track_free(t);
	job_cleanup();
}
