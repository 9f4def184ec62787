/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Activities per second of one core through the windows of a monitor: metrics (with what `sonde
 * top` is told), Jsonl and DB, each with and without a filter, against the same frames with no
 * window. Kernels of eight devices with four streams each that overlap and come a little out of
 * order, API calls, ranges; a hundred names. And the memory that it needs, which must not grow with
 * their number; "numbered" gives every range a name of its own.
 *
 * ACTIVITY_RECORDS: how many (default 10,000,000; quick: 1,000,000).
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "activity/windows/windows.h"
#include "base/containers/buf.h"
#include "scratch.h"
#include "wire/fabric.h"

#define PER_FRAME 4096u
#define NAMES 100u
#define NS_PER_RECORD 2000u /* of the job: half a million a second */
#define WALL "1700000000000000000"

struct run {
	const char *name;
	const char *format; /* NULL: metrics; "": no window */
	const char *filter;
	double must; /* million records per second */
	bool numbered;
};

static const struct run runs[] = {
	{"no-window", "", "", 0, false},
	{"metrics", NULL, "", 2, false},
	{"metrics-filter", NULL, "Kernel:kernel_1;Marker:step", 2, false},
	{"metrics-numbered", NULL, "", 1, true},
	{"jsonl", "Jsonl", "", 0.5, false},
	{"db", "DB", "", 0.2, false},
};

struct job {
	struct activities *a;
	struct buf batch;
	uint64_t now_ns;
	int daemon;
	uint64_t datagrams;
};

/* --- the job --- */

static void put_text_record(struct buf *out, void *head, size_t fixed, const char *text)
{
	struct rec *r = head;
	size_t len = strlen(text);

	r->size = rec_size(fixed, len);
	buf_add(out, head, fixed);
	buf_add(out, text, len);
	buf_add(out, "\0\0\0\0\0\0\0", r->size - fixed - len);
}

static void put_name(struct buf *out, uint64_t hash, const char *text)
{
	struct rec_name n = {.head = {.type = REC_NAME, .time_ns = 1},
			     .hash = hash,
			     .len = (uint16_t)strlen(text)};

	put_text_record(out, &n, sizeof(n), text);
}

/* What is in the batch, as one frame. */
static void deliver(struct job *j)
{
	struct batch_item *it = (struct batch_item *)j->batch.data;

	*it = (struct batch_item){BATCH_RUN, (uint32_t)j->batch.len, 0, 7};
	if (stream_frame(&activities_stream, j->a, FRAME_BATCH, j->batch.data, j->batch.len, NULL))
		abort();
	j->batch.len = sizeof(*it);
}

static void begin(struct job *j, const struct run *run, const char *dir)
{
	static const char session[] = "{\"wallMinusMono\":" WALL "}";
	struct frame_proc p = {.pid = (uint32_t)getpid()};
	struct rec_monitor m = {
		.head = {.type = REC_MONITOR, .time_ns = 1000}, .kind = MONITOR_START, .window = 1};
	char text[1000];

	j->a = activities_new();
	stream_frame(&activities_stream, j->a, FRAME_SESSION, session, sizeof(session) - 1, NULL);
	stream_frame(&activities_stream, j->a, FRAME_PROC, (const char *)&p, sizeof(p), NULL);
	buf_add(&j->batch, &(struct batch_item){0}, sizeof(struct batch_item));
	for (uint64_t i = 1; i <= NAMES; i++) {
		snprintf(text, sizeof(text), i == 1 ? "step" : "kernel_%llu",
			 (unsigned long long)i);
		put_name(&j->batch, i, text);
	}
	if (!run->format || *run->format) {
		snprintf(text, sizeof(text),
			 "NPU_MONITOR_START=true\nNPU_MONITOR_STOP=false\nREPORT_INTERVAL_S=1\n"
			 "DURATION=0\nMSPTI_ACTIVITY_KIND=Kernel,API,Marker\n"
			 "NPU_MONITOR_LOG_FILE=%.500s\nNPU_MONITOR_EXPORT_TYPE=%s\n"
			 "NPU_MONITOR_FILTER=%s\nSONDE_DAEMON=@sonde-bench-%d\n"
			 "JSONL_ROTATE_LOG_FILES=2\n",
			 run->format ? dir : "", run->format ? run->format : "DB", run->filter,
			 (int)getpid());
		m.len = (uint16_t)strlen(text);
		put_text_record(&j->batch, &m, sizeof(m), text);
	}
	deliver(j);
	j->now_ns = 100000;
}

/* The n-th activity of the job. */
static void put_activity(struct job *j, uint64_t n, bool numbered)
{
	uint64_t at = j->now_ns + n % PER_FRAME * NS_PER_RECORD;
	struct rec_activity r = {
		.head = {.type = REC_ACTIVITY, .size = sizeof(r), .time_ns = at + 1000000},
		.kind = ACTIVITY_KERNEL,
		.place = ACTIVITY_ON_DEVICE,
		.start_ns = at - n * 7919 % 30000,
		.correlation = n,
		.name = 2 + n * 31 % (NAMES - 1),
		.where = {(uint32_t)(n % 8), (uint32_t)(n / 8 % 4)},
	};
	/* a thousand ranges a second; ten thousand if they are to fill the table of names */
	uint64_t every = numbered ? 50 : 500;
	char text[32];

	r.end_ns = r.start_ns + 5000 + n * 104729 % 20000;
	if (n % 10 == 3) {
		r.kind = ACTIVITY_API;
		r.place = ACTIVITY_ON_HOST;
	} else if (n % every < 2) {
		r.kind = ACTIVITY_MARKER;
		r.place = ACTIVITY_ON_HOST;
		r.end_ns = r.start_ns = at;
		r.correlation = n / every;
		r.flag = n % every ? ACTIVITY_MARK_END : ACTIVITY_MARK_START;
		r.name = n % every ? 0 : 1;
		if (numbered && r.name) {
			r.name = 1000 + n;
			snprintf(text, sizeof(text), "step %llu", (unsigned long long)n);
			put_name(&j->batch, r.name, text);
		}
	}
	buf_add(&j->batch, &r, sizeof(r));
}

/* The daemon; an empty datagram is the last. */
static void *take_datagrams(void *arg)
{
	static char datagram[FABRIC_MAX_BYTES];
	struct job *j = arg;

	while (recv(j->daemon, datagram, sizeof(datagram), 0) > 0)
		j->datagrams++;
	return NULL;
}

static void end_daemon(struct job *j, pthread_t thread)
{
	struct sockaddr_un address;
	socklen_t len = sizeof(address);

	if (getsockname(j->daemon, (struct sockaddr *)&address, &len) < 0 ||
	    sendto(j->daemon, "", 0, 0, (struct sockaddr *)&address, len) < 0)
		exit(1);
	pthread_join(thread, NULL);
}

static int daemon_socket(void)
{
	struct sockaddr_un address;
	socklen_t len;
	char name[64];
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	snprintf(name, sizeof(name), "sonde-bench-%d", (int)getpid());
	if (fabric_abstract_address(name, &address, &len) < 0 ||
	    bind(fd, (struct sockaddr *)&address, len) < 0)
		exit(1);
	return fd;
}

/* --- measuring --- */

struct result {
	double seconds;
	long before_kib, after_kib; /* the most memory, after half of them and at the end */
	uint64_t datagrams;
};

static long peak_kib(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return u.ru_maxrss;
}

static double cpu_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Making the records is not what is measured. */
static void work(const struct run *run, const char *dir, uint64_t records, struct result *out)
{
	struct job j = {.daemon = daemon_socket()};
	uint64_t frames = records / PER_FRAME;
	pthread_t daemon;

	if (pthread_create(&daemon, NULL, take_datagrams, &j) != 0)
		exit(1);
	begin(&j, run, dir);
	for (uint64_t f = 0; f < frames; f++) {
		for (uint64_t n = 0; n < PER_FRAME; n++)
			put_activity(&j, f * PER_FRAME + n, run->numbered);
		double start = cpu_s();
		deliver(&j);
		j.now_ns += PER_FRAME * NS_PER_RECORD;
		activities_tick(j.a, j.now_ns);
		out->seconds += cpu_s() - start;
		if (f == frames / 2)
			out->before_kib = peak_kib();
	}
	double start = cpu_s();
	activities_flush(j.a);
	out->seconds += cpu_s() - start;
	out->after_kib = peak_kib();
	activities_free(j.a);
	end_daemon(&j, daemon);
	out->datagrams = j.datagrams;
}

/* In a process of its own, so that the memory is its own, too. */
static int measure(const struct run *run, const char *dir, uint64_t records, struct result *out)
{
	int ends[2], status;

	if (pipe(ends) < 0)
		return -1;
	pid_t pid = fork();
	if (pid == 0) {
		struct result r = {0};
		work(run, dir, records, &r);
		_exit(write(ends[1], &r, sizeof(r)) != sizeof(r));
	}
	close(ends[1]);
	bool got = read(ends[0], out, sizeof(*out)) == sizeof(*out);
	close(ends[0]);
	waitpid(pid, &status, 0);
	return got && status == 0 ? 0 : -1;
}

static int report(const struct run *run, const struct result *r, uint64_t records, double none_s)
{
	double rate = (double)records / r->seconds / 1e6;
	/* the second half may fill tables that have a limit, no more */
	bool grows = r->after_kib > r->before_kib + r->before_kib / 4 + 16384;
	bool slow = rate < run->must;

	printf("activity_record: %-17s %llu records, %.2f million per second of one core (wanted "
	       "%.1f), %.0f ns each, %.1f x no window, %llu datagrams, at most %ld MiB (%ld after "
	       "half)%s%s\n",
	       run->name, (unsigned long long)records, rate, run->must,
	       r->seconds * 1e9 / (double)records, r->seconds / none_s,
	       (unsigned long long)r->datagrams, r->after_kib / 1024, r->before_kib / 1024,
	       slow ? ": too slow" : "", grows ? ": grows" : "");
	return slow || grows;
}

int main(void)
{
	const char *count = getenv("ACTIVITY_RECORDS");
	uint64_t records = getenv("BENCH_QUICK") ? 1000000 : 10000000;
	struct scratch scratch;
	double none_s = 0;
	int bad = 0;

	if (count)
		records = strtoull(count, NULL, 10);
	if (records < 10 * PER_FRAME)
		records = 10 * PER_FRAME;
	if (!scratch_open(&scratch))
		return 1;
	for (size_t i = 0; i < sizeof(runs) / sizeof(runs[0]); i++) {
		struct result r;
		char dir[300];

		snprintf(dir, sizeof(dir), "%s/%s", scratch.dir, runs[i].name);
		if (measure(&runs[i], dir, records, &r) < 0) {
			fprintf(stderr, "activity_record: %s failed\n", runs[i].name);
			bad = 1;
			continue;
		}
		if (!none_s)
			none_s = r.seconds;
		bad |= report(&runs[i], &r, records, none_s);
	}
	scratch_remove(&scratch);
	return bad;
}
