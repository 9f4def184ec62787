/* SPDX-License-Identifier: MulanPSL-2.0 */
/* A process that goes on in another session (guest_move()) while its threads are in hooks. */
#include "guest/collect/collect.h"
#include "guest/runtime/env.h"
#include "guest/runtime/guest.h"
#include "jobs.h"

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>

#define THREADS 6
#define MOVES 8
#define PAUSE_US 4000

/* What each of them did, the handler included; outlives the job. */
static struct done {
	_Atomic uint64_t n[THREADS], in_handlers;
} * done;

static _Atomic bool stop;

/* In place of the real one: nobody is started, and the session can be joined at once. */
int guest_spawn_recorder(const char *dir)
{
	struct control_page *page;

	if (session_map(dir, false, &page, NULL) < 0)
		return -1;
	atomic_store(&page->want, WANT_ALLOC);
	page->max_segs = 1024; /* one for each ring, at least */
	atomic_store(&page->recorder_pid, (uint32_t)getppid());
	atomic_store(&page->heartbeat_ns, hand_now());
	atomic_store(&page->state, SESSION_LIVE);
	session_unmap(page);
	return 0;
}

static void emit(uint64_t addr)
{
	struct collect_block b = {addr, 8, 0, POOL_HAL, ALLOC_PLAIN, PAGE_NORMAL, MODULE_NONE, 0};

	collect_alloc(&b, NULL);
}

/* A driver that takes its time: the hold lasts from one arena to the next. */
static void emit_free(uint64_t addr)
{
	struct collect_block b = {.addr = addr, .pool = POOL_HAL};
	struct collect_pending p = collect_free_begin(&b);

	if (addr % 64 == 0)
		usleep(PAUSE_US / 2);
	collect_free_end(p, &b, true, NULL);
}

static void *work(void *arg)
{
	_Atomic uint64_t *n = arg;

	for (uint64_t i = 1; !atomic_load(&stop); i++) {
		emit(i);
		emit_free(i);
		atomic_fetch_add(n, 2);
		if (i % 16 == 0)
			sched_yield();
	}
	return NULL;
}

static timer_t timer;

static void next_alarm(void)
{
	const struct itimerspec t = {.it_value = {0, 50000}};

	CHECK(timer_settime(timer, 0, &t, NULL) == 0);
}

static void on_alarm(int sig)
{
	(void)sig;
	emit(0);
	atomic_fetch_add(&done->in_handlers, 1);
	next_alarm();
}

static void begin(void)
{
	unsetenv(SESSION_ENV);
	guest_name_monitor_session(tmpdir());
	(void)guest_note_begun();
	CHECK_INT(guest_mode(), GUEST_RECORD);
}

static bool is_held(struct arena_head *a)
{
	for (uint32_t i = 0; i < atomic_load(&a->nrings); i++)
		if (atomic_load(&arena_ring(a, i)->pending_ns))
			return true;
	return false;
}

static unsigned arenas_mapped(void)
{
	FILE *f = fopen("/proc/self/maps", "re");
	char line[PATH_MAX + 100];
	unsigned n = 0;

	CHECK(f);
	while (fgets(line, sizeof(line), f))
		n += strstr(line, SESSION_RING_SUFFIX) != NULL;
	fclose(f);
	return n;
}

static void moving_job(void)
{
	struct sigevent ev = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
	struct arena_head *formers[MOVES];
	pthread_t threads[THREADS];

	begin();
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, work, &done->n[i]) == 0);
	signal(SIGALRM, on_alarm);
	CHECK(timer_create(CLOCK_MONOTONIC, &ev, &timer) == 0);
	next_alarm();
	for (int i = 0; i < MOVES; i++) {
		usleep(PAUSE_US);
		formers[i] = guest.arena;
		CHECK(guest_move(tmpdir(), true));
		CHECK(guest.arena != formers[i]);
	}
	usleep(2 * PAUSE_US);
	signal(SIGALRM, SIG_IGN);
	atomic_store(&stop, true);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	emit(1); /* the last thread that was there */
	atomic_fetch_add(&done->n[0], 1);
	for (int i = 0; i < MOVES; i++)
		CHECK(!is_held(formers[i]));
}

static uint64_t nameless;

static int by_hash(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* Activities from there on whose name has not been told there. */
static void look_for_names(size_t from)
{
	uint64_t *told = xmalloc((job_nevents - from + 1) * sizeof(*told));
	size_t n = 0;

	for (size_t i = from; i < job_nevents; i++)
		if (job_record(i)->type == REC_NAME)
			told[n++] = ((const struct rec_name *)job_record(i))->hash;
	qsort(told, n, sizeof(*told), by_hash);
	for (size_t i = from; i < job_nevents; i++) {
		const struct rec_activity *r = (const struct rec_activity *)job_record(i);
		if (r->head.type == REC_ACTIVITY)
			nameless += !bsearch(&r->name, told, n, sizeof(*told), by_hash);
	}
	free(told);
}

/* Reads one session to its end; what its job could not keep. */
static uint64_t read_session(const char *name)
{
	char dir[PATH_MAX];
	uint64_t lost = 0;

	snprintf(dir, sizeof(dir), "%s/%s", tmpdir(), name);
	CHECK_INT(session_map(dir, false, &job_page, NULL), 0);
	job_drain = drain_new(dir, 0);
	job_nprocs = job_nends = 0;
	size_t from = job_nevents;
	while (job_look())
		;
	look_for_names(from);
	CHECK_INT(job_nprocs, 1);
	CHECK_INT(job_nends, 1);
	CHECK_INT(job_ends[0].damaged, 0);
	lost = job_ends[0].lost_events;
	drain_free(job_drain);
	session_unmap(job_page);
	return lost;
}

static uint64_t read_sessions(unsigned *out_n)
{
	DIR *d = opendir(tmpdir());
	uint64_t lost = 0;

	CHECK(d);
	for (struct dirent *e = readdir(d); e; e = readdir(d)) {
		if (e->d_name[0] == '.')
			continue;
		lost += read_session(e->d_name);
		++*out_n;
	}
	closedir(d);
	return lost;
}

static void share_counts(void)
{
	done = mmap(NULL, sizeof(*done), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(done != MAP_FAILED);
	(void)tmpdir();
}

/* Each event is in one of the sessions, or counted; and no thread keeps one that was left. */
TEST(move, while_threads_and_handlers_are_in_hooks)
{
	unsigned sessions = 0;
	uint64_t all = 0;

	share_counts();
	job_wait(job_start(moving_job));
	uint64_t lost = read_sessions(&sessions);
	for (int i = 0; i < THREADS; i++)
		all += atomic_load(&done->n[i]);
	all += atomic_load(&done->in_handlers);
	CHECK_INT(sessions, MOVES + 1);
	CHECK_INT(job_nevents + lost, all);
	CHECK(job_nevents > lost);
	buf_release(&job_raw);
	free(job_events);
}

/* Each name a few times: most of them are told, or were told, in a moment. */
static void *run_kernels(void *arg)
{
	_Atomic uint64_t *n = arg;

	for (unsigned i = 0; !atomic_load(&stop); i++) {
		char name[48];
		snprintf(name, sizeof(name), "kernel_%ld_%u", (long)(n - done->n), i / 4);
		struct collect_activity a = {.kind = ACTIVITY_KERNEL, .name = name};
		collect_activity(&a);
		atomic_fetch_add(n, 1);
	}
	return NULL;
}

static void naming_job(void)
{
	pthread_t threads[THREADS];

	begin();
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, run_kernels, &done->n[i]) == 0);
	for (int i = 0; i < MOVES; i++) {
		usleep(PAUSE_US);
		CHECK(guest_move(tmpdir(), true));
	}
	usleep(PAUSE_US);
	atomic_store(&stop, true);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
}

/* An activity is where its name is. */
TEST(move, names)
{
	unsigned sessions = 0;

	share_counts();
	job_wait(job_start(naming_job));
	(void)read_sessions(&sessions);
	CHECK_INT(sessions, MOVES + 1);
	CHECK_INT(nameless, 0);
	CHECK(job_nevents);
	buf_release(&job_raw);
	free(job_events);
}

static __attribute__((noinline)) void emit_in_a_handler(uint64_t addr)
{
	volatile char *frame = ON_STACK(2048);

	emit(addr);
	CHECK_INT(frame[0], 0);
}

static void interrupted_job(void)
{
	begin();
	emit(1);
	struct rec_alloc *r = guest_reserve(sizeof(*r));
	CHECK(r);
	CHECK(guest_move(tmpdir(), true));
	emit_in_a_handler(2);
	*r = (struct rec_alloc){
		.head = {REC_ALLOC, 0, sizeof(*r), 0, guest_now()}, .addr = 3, .pool = POOL_HAL};
	guest_publish(sizeof(*r));
	CHECK_INT(guest_self.level, 0);
	emit(4);
}

/* A hook that a signal handler interrupts ends where it began: the handler's events give way. */
TEST(move, inside_a_hook)
{
	unsigned sessions = 0;

	(void)tmpdir();
	job_wait(job_start(interrupted_job));
	CHECK_INT(read_sessions(&sessions), 1);
	CHECK_INT(sessions, 2);
	CHECK_INT(job_nevents, 3);
	for (size_t i = 0; i < job_nevents; i++)
		CHECK(JOB_ALLOC(i)->addr != 2);
	buf_release(&job_raw);
	free(job_events);
}

/* As often as it may; what was left is kept for some seconds. */
static unsigned move_on(void)
{
	unsigned n = 1;

	emit(n);
	while (n < 50 && guest_move(tmpdir(), true))
		emit(++n);
	return n;
}

static void forking_job(void)
{
	begin();
	CHECK(!guest_moved_too_often());
	unsigned n = move_on();
	CHECK(n > 3 && n < 50);
	CHECK(guest_moved_too_often());
	CHECK_INT(arenas_mapped(), n);
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		emit(3);
		CHECK_INT(arenas_mapped(), 0);
		_exit(0);
	}
	job_wait(pid);
}

/* The files of its parent's sessions would be there for as long as it is. */
TEST(move, a_forked_child_keeps_none)
{
	(void)tmpdir();
	job_wait(job_start(forking_job));
}
