/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A job that moves from session to session (guest_move()) while everything happens that happens in
 * jobs: hundreds of threads inside hooks, threads that begin and end, signal handlers, forks, and
 * children that move themselves or call exec(). Its sessions are read as recorders do, each to its
 * end as soon as it is left. Every event has a number, and is in one of them once or counted as
 * lost.
 */
#include "guest/collect/collect.h"
#include "guest/runtime/env.h"
#include "guest/runtime/guest.h"
#include "jobs.h"

#include <dirent.h>
#include <pthread.h>
#include <sys/mman.h>

#define WORKERS 200
#define MOVES 8 /* as many as are allowed in a few seconds */
#define CHILDREN 9
#define CHILD_MOVES 4
#define PAUSE_US (TEST_TSAN ? 60000 : 20000)
#define PERIOD_US 4000
#define SLOW_US 3000
#define SHORT_EVENTS 3
#define MAX_SESSIONS (MOVES + 1 + CHILDREN * (CHILD_MOVES + 1))

/* Outlives the job. */
static struct shared {
	_Atomic uint64_t events, in_handlers, by_short_threads, in_children;
	_Atomic unsigned moves;
} * shared;

static _Atomic bool stop;

/* --- the job --- */

static uint64_t next_number(void)
{
	return atomic_fetch_add(&shared->events, 1);
}

static void take(uint64_t number)
{
	struct collect_block b = {number, 8, 0, POOL_HAL, ALLOC_PLAIN, PAGE_NORMAL, MODULE_NONE, 0};

	collect_alloc(&b, NULL);
}

/* By a driver that may take its time: from one session into the next. */
static void give(uint64_t number, bool slow)
{
	struct collect_block b = {.addr = number, .pool = POOL_HAL};
	struct collect_pending p = collect_free_begin(&b);

	if (slow)
		usleep(SLOW_US);
	collect_free_end(p, &b, true, NULL);
}

/* Names are told when they are met first: in each session. */
static void run_kernel(uint64_t number)
{
	char name[48];

	snprintf(name, sizeof(name), "kernel_%u", (unsigned)(number % 61));
	struct collect_activity a = {
		.kind = ACTIVITY_KERNEL, .name = name, .detail = "AI_CORE", .correlation = number};
	collect_activity(&a);
}

static void *work(void *arg)
{
	for (uint64_t i = (uintptr_t)arg; !atomic_load(&stop); i++) {
		take(next_number());
		run_kernel(next_number());
		give(next_number(), i % 32 == 0);
		usleep(PERIOD_US);
	}
	return NULL;
}

static void *work_shortly(void *arg)
{
	for (int i = 0; i < SHORT_EVENTS; i++) {
		run_kernel(next_number());
		atomic_fetch_add(&shared->by_short_threads, 1);
	}
	return arg;
}

static void *make_threads(void *arg)
{
	pthread_t t;

	while (!atomic_load(&stop)) {
		CHECK(pthread_create(&t, NULL, work_shortly, NULL) == 0);
		pthread_join(t, NULL);
	}
	return arg;
}

static void on_signal(int sig)
{
	(void)sig;
	take(next_number());
	run_kernel(next_number());
	atomic_fetch_add(&shared->in_handlers, 2);
}

static pthread_t workers[WORKERS];

static void *interrupt(void *arg)
{
	for (unsigned i = 0; !atomic_load(&stop); i++) {
		pthread_kill(workers[i * 7 % WORKERS], SIGUSR1);
		usleep(50);
	}
	return arg;
}

/* As guest_begin_monitor(), whose file looks at the environment when the program is loaded. */
static void begin(void)
{
	(void)guest_leave_monitor();
	guest_name_monitor_session(tmpdir());
	(void)guest_note_begun();
	CHECK(guest_mode() >= GUEST_SHADOW);
}

static void move_on(void)
{
	CHECK(guest_move(tmpdir(), true));
	atomic_fetch_add(&shared->moves, 1);
}

/* One that is not monitored, one that is and moves, one that calls exec(). */
static void be_child(unsigned i)
{
	take(0); /* nobody is told */
	if (i % 3) {
		begin();
		for (int k = 0; k <= CHILD_MOVES; k++) {
			take(next_number());
			run_kernel(next_number());
			atomic_fetch_add(&shared->in_children, 2);
			if (k < CHILD_MOVES)
				move_on();
		}
	}
	if (i % 3 == 2)
		execl("/bin/true", "true", (char *)NULL);
	_exit(0);
}

static void *make_children(void *arg)
{
	for (unsigned i = 0; i < CHILDREN; i++) {
		pid_t pid = fork();
		CHECK(pid >= 0);
		if (pid == 0)
			be_child(i);
		job_wait(pid);
		usleep(PAUSE_US / 3);
	}
	return arg;
}

static void job(void)
{
	struct sigaction act = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
	void *(*const others[])(void *) = {make_threads, make_threads, interrupt, make_children};
	pthread_t t[4];

	unsetenv(SESSION_ENV);
	begin();
	sigaction(SIGUSR1, &act, NULL);
	for (uintptr_t i = 0; i < WORKERS; i++)
		CHECK(pthread_create(&workers[i], NULL, work, (void *)i) == 0);
	for (int i = 0; i < 4; i++)
		CHECK(pthread_create(&t[i], NULL, others[i], NULL) == 0);
	for (int i = 0; i < MOVES; i++) {
		usleep(PAUSE_US);
		move_on();
	}
	pthread_join(t[3], NULL);
	atomic_store(&stop, true);
	for (int i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	for (int i = 0; i < WORKERS; i++)
		pthread_join(workers[i], NULL);
}

/* --- its recorders --- */

struct session {
	char name[256];
	struct control_page *page;
	struct drain *drain;
	uint64_t *told; /* names */
	size_t ntold, cap_told;
	bool ended;
};

static struct session sessions[MAX_SESSIONS];
static unsigned nsessions;
static uint64_t *seen, lost, nameless;
static size_t nseen, cap_seen;

static void note(uint64_t number)
{
	seen = xgrow(seen, &cap_seen, nseen + 1, sizeof(*seen));
	seen[nseen++] = number;
}

static bool has_name(const struct session *s, uint64_t hash)
{
	for (size_t i = 0; i < s->ntold; i++)
		if (s->told[i] == hash)
			return true;
	return false;
}

static void on_record(void *arg, uint32_t proc, uint32_t tid, const struct rec *r)
{
	struct session *s = arg;
	const struct rec_activity *a = (const struct rec_activity *)r;

	(void)proc;
	(void)tid;
	if (r->type == REC_ALLOC)
		note(((const struct rec_alloc *)r)->addr);
	else if (r->type == REC_FREE)
		note(((const struct rec_free *)r)->addr);
	else if (r->type == REC_NAME) {
		s->told = xgrow(s->told, &s->cap_told, s->ntold + 1, sizeof(*s->told));
		s->told[s->ntold++] = ((const struct rec_name *)r)->hash;
	} else if (r->type == REC_ACTIVITY) {
		note(a->correlation);
		nameless += !has_name(s, a->name) || !has_name(s, a->detail);
	} else {
		CHECK_INT(r->type, REC_THREAD);
	}
}

static void on_proc(void *arg, const struct frame_proc *p)
{
	(void)arg;
	CHECK_INT(p->proc, 0); /* a monitor's session is of one process */
}

static struct session *find_session(const char *name)
{
	for (unsigned i = 0; i < nsessions; i++)
		if (!strcmp(sessions[i].name, name))
			return &sessions[i];
	return NULL;
}

static void find_sessions(void)
{
	DIR *d = opendir(tmpdir());
	char dir[PATH_MAX];

	CHECK(d);
	for (struct dirent *e = readdir(d); e; e = readdir(d)) {
		struct control_page *page;
		snprintf(dir, sizeof(dir), "%s/%s", tmpdir(), e->d_name);
		if (e->d_name[0] == '.' || find_session(e->d_name) ||
		    session_map(dir, false, &page, NULL) < 0)
			continue; /* it may not be there as a whole yet */
		CHECK(nsessions < MAX_SESSIONS);
		struct session *s = &sessions[nsessions++];
		snprintf(s->name, sizeof(s->name), "%s", e->d_name);
		s->page = page;
		s->drain = drain_new(dir, 0);
	}
	closedir(d);
}

static void end_session(struct session *s, struct drain_proc *p)
{
	struct frame_proc_end e;

	drain_end_frame(s->drain, p, &e);
	drain_finish(s->drain, p, true);
	CHECK_INT(e.damaged, 0);
	lost += e.lost_events;
	s->ended = true;
}

static bool look(struct session *s)
{
	static const struct stream_ops ops = {.record = on_record};
	static struct buf batch;
	struct err err = {0};

	if (s->ended)
		return false;
	atomic_store(&s->page->heartbeat_ns, hand_now());
	CHECK(drain_scan(s->drain, on_proc, NULL, NULL) >= 0);
	drain_check_alive(s->drain, false);
	buf_clear(&batch);
	drain_round(s->drain, &batch);
	CHECK(stream_frame(&ops, s, FRAME_BATCH, batch.data, batch.len, &err) == 0);
	drain_commit(s->drain);
	struct drain_proc *p = drain_next_dead(s->drain);
	if (p)
		end_session(s, p);
	return true;
}

/* To the end of each. */
static void follow(pid_t pid)
{
	int status = 0;
	bool runs = true, more = true;

	while (runs || more) {
		runs = runs && waitpid(pid, &status, WNOHANG) == 0;
		more = false;
		find_sessions();
		for (unsigned i = 0; i < nsessions; i++)
			more |= look(&sessions[i]);
		usleep(200);
	}
	CHECK_INT(status, 0);
	for (unsigned i = 0; i < nsessions; i++) {
		drain_free(sessions[i].drain);
		session_unmap(sessions[i].page);
		free(sessions[i].told);
	}
}

static int by_number(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

TEST(move, in_a_storm)
{
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	CHECK(shared != MAP_FAILED);
	(void)tmpdir();
	follow(job_start(job));
	qsort(seen, nseen, sizeof(*seen), by_number);
	for (size_t i = 1; i < nseen; i++)
		CHECK(seen[i - 1] < seen[i]);
	CHECK_INT(nseen + lost, atomic_load(&shared->events));
	CHECK(nseen > lost);
	CHECK_INT(nameless, 0);
	CHECK_INT(atomic_load(&shared->moves), MOVES + CHILDREN * 2 / 3 * CHILD_MOVES);
	CHECK_INT(nsessions, atomic_load(&shared->moves) + 1 + CHILDREN * 2 / 3);
	CHECK(atomic_load(&shared->in_handlers) && atomic_load(&shared->by_short_threads));
	free(seen);
}
