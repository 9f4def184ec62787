/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * How many activities per second of one core get from the buffers of MSPTI into the ring, and
 * whether all of them come out at the other end: a job whose library fills buffers as fast as
 * memory allows, and a process that reads the ring behind it. The baselines are made in the same
 * run, with the same buffers: a walk that looks at nothing but the kinds, and a copy of as many
 * bytes as the ring's records have.
 *
 * With a reader that is waited for, where nothing may be lost; with a small ring and a
 * reader that sleeps and is not waited for, where what came and what was lost must add up; and a
 * tenth of them with the simulated library, which has threads of its own, instead of ours.
 *
 * ACTIVITY_RECORDS sets the number (default 100000000, BENCH_QUICK 4000000).
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "device/ascend/activity/mspti.h"
#include "recorder/drain.h"
#include "recorder/session.h"
#include "recorder/stream.h"
#include "scratch.h"

#define WANT_PER_S 2.0e6
#define MAX_GROWTH_MIB 16 /* of either process, after its first tenth */
#define NAMES 512
#define FULL (MSPTI_BUFFER_BYTES / 10 * 8) /* where the library takes the next buffer */

/* What the job tells its parent. */
struct told {
	uint64_t produced;
	uint64_t refused; /* by the source */
	double walk_s, kinds_s, copy_s; /* of processor time */
	uint64_t baseline; /* records that the baselines have seen */
	long early_kib, late_kib;
};

static struct told *told;
static uint64_t wanted;

static double cpu_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static uint64_t mono_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static long rss_kib(void)
{
	long size, resident = 0;
	FILE *f = fopen("/proc/self/statm", "r");

	if (f && fscanf(f, "%ld %ld", &size, &resident) != 2)
		resident = 0;
	if (f)
		fclose(f);
	return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

/* --- the library --- */

static mspti_request_fn request;
static mspti_complete_fn complete;

static int on_subscribe(void **out, void *callback, void *arg)
{
	(void)callback;
	(void)arg;
	*out = &told;
	return MSPTI_OK;
}

static int on_unsubscribe(void *subscriber)
{
	return subscriber == &told ? MSPTI_OK : MSPTI_INVALID;
}

static int on_register(mspti_request_fn r, mspti_complete_fn c)
{
	request = r;
	complete = c;
	return MSPTI_OK;
}

static int on_kind(int kind)
{
	(void)kind;
	return MSPTI_OK;
}

static int on_flush(uint32_t flag)
{
	(void)flag;
	return MSPTI_OK;
}

static int on_next(uint8_t *buffer, size_t valid, void **record)
{
	static const uint8_t sizes[] = {0, 56, 56, 48, 56, 64, 56, 56, 24, 72, 48, 48, 48};
	static __thread size_t at;
	int32_t kind;

	if (at >= valid) {
		at = 0;
		return MSPTI_END;
	}
	memcpy(&kind, buffer + at, sizeof(kind));
	if (kind <= 0 || kind >= (int32_t)sizeof(sizes))
		return MSPTI_INVALID;
	*record = buffer + at;
	at += sizes[kind];
	return MSPTI_OK;
}

static const struct mspti library = {
	.subscribe = on_subscribe,
	.unsubscribe = on_unsubscribe,
	.register_callbacks = on_register,
	.enable = on_kind,
	.disable = on_kind,
	.next = on_next,
	.flush = on_flush,
};

/* --- what it has noted: a training step, over and over --- */

static uint8_t *noted;
static size_t noted_bytes;
static uint64_t noted_records;
static char names[NAMES][64];

static void note(const void *record, size_t size)
{
	memcpy(noted + noted_bytes, record, size);
	noted_bytes += size;
	noted_records++;
}

static void note_one(uint64_t i, uint64_t now)
{
	const char *name = names[i * 2654435761u % NAMES];
	struct mspti_api api = {ACTIVITY_RUNTIME_API, now, now + 4000, 77, 78, i, name, 0};
	struct mspti_kernel kernel = {ACTIVITY_KERNEL, now,  now + 9000, 0, 3, i,
				      "KERNEL_AICORE", name, 0};
	struct mspti_communication all = {ACTIVITY_COMMUNICATION,
					  4,
					  1 << 20,
					  0,
					  5,
					  now,
					  now + 90000,
					  "RING",
					  "hcom_allReduce_",
					  "group_name_0",
					  i};
	struct mspti_marker mark = {ACTIVITY_MARKER, 1, 0, now, i, {77, 78}, name, "default", 0};

	note(&api, sizeof(api));
	note(&kernel, sizeof(kernel));
	if (i % 8 == 0)
		note(&mark, sizeof(mark));
	if (i % 16 == 0)
		note(&all, sizeof(all));
}

static void note_all(void)
{
	struct timespec t;

	noted = malloc(MSPTI_BUFFER_BYTES);
	if (!noted)
		exit(1);
	for (unsigned i = 0; i < NAMES; i++)
		snprintf(names[i], sizeof(names[i]), "aclnn%s_%u_op_%u", i % 2 ? "Matmul" : "Add",
			 i * 37, i);
	clock_gettime(CLOCK_REALTIME, &t);
	uint64_t now = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
	for (uint64_t i = 1; noted_bytes < FULL; i++)
		note_one(i, now + i * 10000);
}

/* --- the job --- */

static void measure_baselines(uint8_t *buffer)
{
	static char *ring;
	uint64_t kinds = 0;
	void *record;
	size_t bytes = noted_records * sizeof(struct rec_activity);

	if (!ring)
		ring = malloc(bytes);
	if (!ring)
		exit(1);
	double begin = cpu_now();
	while (mspti_find()->next(buffer, noted_bytes, &record) == MSPTI_OK)
		kinds += *(const uint8_t *)record;
	told->kinds_s += cpu_now() - begin;
	begin = cpu_now();
	for (size_t done = 0; done < bytes; done += noted_bytes)
		memcpy(ring + done, buffer,
		       bytes - done < noted_bytes ? bytes - done : noted_bytes);
	told->copy_s += cpu_now() - begin;
	/* so that neither is left out */
	__asm__ volatile("" : : "r"(kinds), "r"(ring) : "memory");
	told->baseline += noted_records;
}

static void job(void)
{
	uint8_t *buffer;
	size_t size, most;

	mspti_use(&library);
	if (mspti_source.start(UINT32_MAX) < 0)
		exit(1);
	for (uint64_t i = 0; told->produced < wanted; i++) {
		request(&buffer, &size, &most);
		if (!buffer)
			exit(1);
		memcpy(buffer, noted, noted_bytes);
		if (i % 16 == 0)
			measure_baselines(buffer);
		double begin = cpu_now();
		complete(buffer, size, noted_bytes);
		told->walk_s += cpu_now() - begin;
		told->produced += noted_records;
		if (told->produced <= wanted / 10 || !told->early_kib)
			told->early_kib = rss_kib();
	}
	mspti_source.stop();
	told->refused = mspti_source.lost();
	told->late_kib = rss_kib();
	exit(0);
}

/* With the simulated library: buffers are completed by its threads, several at a time. */
static void library_job(void)
{
	const char *build = getenv("SONDE_BUILD");
	char path[512], flood[32];

	snprintf(path, sizeof(path), "%s/sim/libmspti.so", build ? build : "build");
	snprintf(flood, sizeof(flood), "%llu", (unsigned long long)wanted / 10);
	setenv("SIM_MSPTI_FLOOD", flood, 1);
	void *lib = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
	uint64_t (*recorded)(void) = NULL;
	if (lib)
		*(void **)&recorded = dlsym(lib, "sim_mspti_recorded");
	if (!recorded || mspti_source.start(ACTIVITY_BIT(ACTIVITY_KERNEL)) < 0) {
		fprintf(stderr, "activity_rate: cannot use %s\n", path);
		exit(1);
	}
	while (recorded() < wanted / 10) {
		usleep(1000);
		if (recorded() <= wanted / 100 || !told->early_kib)
			told->early_kib = rss_kib();
	}
	mspti_source.stop();
	told->produced = recorded();
	told->late_kib = rss_kib();
	exit(0);
}

/* --- the reader --- */

struct reader {
	struct control_page *page;
	struct drain *drain;
	struct buf batch;
	uint64_t activities, names, others;
	uint64_t lost;
	long early_kib;
};

static void on_record(void *arg, uint32_t proc, uint32_t tid, const struct rec *r)
{
	struct reader *s = arg;

	(void)proc;
	(void)tid;
	if (r->type == REC_ACTIVITY)
		s->activities++;
	else if (r->type == REC_NAME)
		s->names++;
	else
		s->others++;
}

static void on_process(void *arg, const struct frame_proc *p)
{
	(void)arg;
	(void)p;
}

static bool reader_open(struct reader *s, const char *dir, uint32_t segs, uint32_t wait_ms)
{
	struct timespec t;

	if (session_map(dir, true, &s->page, NULL) < 0)
		return false;
	clock_gettime(CLOCK_REALTIME, &t);
	s->page->wall_minus_mono_ns =
		(int64_t)t.tv_sec * 1000000000 + t.tv_nsec - (int64_t)mono_now();
	s->page->max_segs = segs;
	s->page->wait_ms = wait_ms;
	atomic_store(&s->page->recorder_pid, (uint32_t)getpid());
	atomic_store(&s->page->heartbeat_ns, mono_now());
	atomic_store(&s->page->state, SESSION_LIVE);
	s->drain = drain_new(dir, 0);
	return true;
}

/* One look; true if something was told. */
static bool reader_look(struct reader *s)
{
	static const struct stream_ops ops = {.record = on_record};
	struct err err = {0};

	atomic_store(&s->page->heartbeat_ns, mono_now());
	drain_scan(s->drain, on_process, NULL, NULL);
	drain_check_alive(s->drain, false);
	buf_clear(&s->batch);
	drain_round(s->drain, &s->batch);
	if (stream_frame(&ops, s, FRAME_BATCH, s->batch.data, s->batch.len, &err) < 0) {
		fprintf(stderr, "activity_rate: %s\n", err.text);
		exit(1);
	}
	drain_commit(s->drain);
	for (struct drain_proc *p; (p = drain_next_dead(s->drain));) {
		struct frame_proc_end e;
		drain_end_frame(s->drain, p, &e);
		drain_finish(s->drain, p, true);
		s->lost += e.lost_events;
	}
	if (s->activities <= wanted / 10 || !s->early_kib)
		s->early_kib = rss_kib();
	return s->batch.len > 0;
}

static void reader_close(struct reader *s)
{
	drain_free(s->drain);
	session_unmap(s->page);
	buf_release(&s->batch);
}

/* --- */

struct run {
	const char *name;
	uint32_t segs; /* of 64 KiB */
	uint32_t wait_ms;
	uint32_t sleeps_us; /* the reader, between two looks */
	bool may_lose;
	void (*job)(void);
};

static int report(const struct run *r, const struct reader *s, long late_kib)
{
	double rate = (double)told->produced / told->walk_s;
	double kinds = (double)told->baseline / told->kinds_s;
	double copy = (double)told->baseline / told->copy_s;
	long job_mib = (told->late_kib - told->early_kib) / 1024;
	long own_mib = (late_kib - s->early_kib) / 1024;
	bool adds_up = told->produced == s->activities + s->lost + told->refused;
	bool slow = rate < WANT_PER_S && !r->may_lose;

	if (told->baseline)
		printf("activity_rate: %-8s %.1f million activities, %.2f million per second of "
		       "one core "
		       "(wanted %.1f); %.3f x a bare walk, %.3f x a copy\n",
		       r->name, (double)told->produced / 1e6, rate / 1e6, WANT_PER_S / 1e6,
		       rate / kinds, rate / copy);
	printf("activity_rate: %-8s %llu came and %llu were lost: %s; memory of the job %+ld MiB, "
	       "of the reader %+ld MiB (at most %d)\n",
	       r->name, (unsigned long long)s->activities, (unsigned long long)s->lost,
	       adds_up ? "all" : "NOT ALL", job_mib, own_mib, MAX_GROWTH_MIB);
	return !adds_up || slow || (s->lost && !r->may_lose) || job_mib > MAX_GROWTH_MIB ||
	       own_mib > MAX_GROWTH_MIB;
}

static int measure(const struct run *r)
{
	struct reader s = {0};
	struct scratch scratch;
	int status = 0;

	if (!scratch_open(&scratch))
		return 1;
	memset(told, 0, sizeof(*told));
	if (!reader_open(&s, scratch.dir, r->segs, r->wait_ms))
		return 1;
	fflush(NULL);
	pid_t pid = fork();
	if (pid == 0) {
		setenv(SESSION_ENV, scratch.dir, 1);
		r->job();
	}
	while (pid > 0 && waitpid(pid, &status, WNOHANG) == 0)
		if (!reader_look(&s) || r->sleeps_us)
			usleep(r->sleeps_us ? r->sleeps_us : 1000);
	while (reader_look(&s))
		;
	int bad = pid < 0 || status != 0 || report(r, &s, rss_kib());
	reader_close(&s);
	scratch_remove(&scratch);
	return bad;
}

static const struct run runs[] = {
	{"waited", 128, 60000, 0, false, job},
	{"too fast", 16, 0, 2000, true, job},
	{"threads", 128, 60000, 0, false, library_job},
};

int main(void)
{
	const char *count = getenv("ACTIVITY_RECORDS");
	int bad = 0;

	wanted =
		count ? strtoull(count, NULL, 10) : (getenv("BENCH_QUICK") ? 4000000u : 100000000u);
	told = mmap(NULL, sizeof(*told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (told == MAP_FAILED)
		return 1;
	note_all();
	for (size_t i = 0; i < sizeof(runs) / sizeof(runs[0]); i++)
		bad |= measure(&runs[i]);
	free(noted);
	return bad;
}
