/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What the timeline costs: stacks of 16 threads, 32 deep, of which the innermost frames change in
 * every round, become events and the events a file, flushed after every round, as `sonde stack`
 * does it.
 *
 *	naive    fprintf() of the same events, flushed after every round
 *	json     the trace; rotated at 256 MiB with one file kept, so that it needs no large disk
 *	gzip     the same, packed
 *
 * Fails if it is slower than the naive one or has more than 20 MB of memory after all events.
 * Arguments: events (default 10000000), directory (default /tmp). BENCH_QUICK: a hundredth of the
 * events, and never fails.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/containers/intern.h"
#include "sampler/rounds/events.h"

#define THREADS 16
#define DEPTH 32
#define CHANGES 3 /* innermost frames that are new in a round: twice as many events */
#define BUDGET_MB 20.0

static const char *const names[] = {"Trainer.training_step", "all_reduce", "Linear.forward",
				    "DataLoader.__next__",   "<lambda>",   "_engine_run_backward"};

struct job {
	struct target target;
	struct python_process python;
	struct python_thread threads[THREADS];
	struct stack_frame frames[THREADS][DEPTH];
};

static void die(const char *what)
{
	fprintf(stderr, "stack_trace_writer: %s\n", what);
	exit(1);
}

static struct stack_frame frame_of(unsigned n)
{
	char file[96];
	int len = snprintf(file, sizeof(file), "/usr/lib/python3/dist-packages/app%u/train.py",
			   n % 7);
	const char *name = names[n % 6];

	return (struct stack_frame){.name = intern(name, strlen(name)),
				    .file = intern(file, (size_t)len),
				    .line = (int32_t)(n % 900 + 1),
				    .first_line = (int32_t)(n % 40 + 1)};
}

static void job_init(struct job *j)
{
	memset(j, 0, sizeof(*j));
	j->target = (struct target){.pid = 41,
				    .serial = 1,
				    .label = (char *)(uintptr_t) "rank 0: python train.py",
				    .python = &j->python};
	j->python.threads = j->threads;
	j->python.nthreads = THREADS;
	for (unsigned t = 0; t < THREADS; t++) {
		j->threads[t] = (struct python_thread){.serial = t + 1,
						       .tid = (pid_t)(41 + t),
						       .name = intern("MainThread", 10),
						       .frames = j->frames[t],
						       .nframes = DEPTH};
		for (unsigned i = 0; i < DEPTH; i++)
			j->frames[t][i] = frame_of(t + i);
	}
}

static void job_round(struct job *j, uint64_t round)
{
	j->python.time_ns = (round + 1) * 1000000;
	for (unsigned t = 0; t < THREADS; t++) {
		for (unsigned i = DEPTH - CHANGES; i < DEPTH; i++)
			j->frames[t][i] = frame_of((unsigned)round + t + i);
		j->threads[t].kept = round ? DEPTH - CHANGES : 0;
		j->threads[t].time_ns = j->python.time_ns + t * 1000;
	}
}

struct result {
	double rate; /* events per second of one core */
	double bytes; /* per event */
	double rss_mb; /* after all of them */
};

static double rss_mb(void)
{
	FILE *f = fopen("/proc/self/status", "r");
	char line[256];
	double kb = 0;

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "VmRSS: %lf", &kb) == 1)
			break;
	if (f)
		fclose(f);
	return kb / 1024;
}

/* Of this process alone: other work on the machine does not count. */
static uint64_t cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static struct events *active;

static void end_open(void *arg, struct chrome_trace *t)
{
	events_end_open(active, t, ((struct job *)arg)->python.time_ns);
}

static void begin_again(void *arg, struct chrome_trace *t)
{
	events_begin_again(active, t, ((struct job *)arg)->python.time_ns);
}

static struct result with_trace(const char *path, uint64_t events, bool gzip)
{
	struct job j;
	struct chrome_trace *t;
	struct err err;
	struct stat st;
	uint64_t bytes = 0, rounds = 0;

	job_init(&j);
	struct chrome_trace_options o = {.path = path,
					 .gzip = gzip,
					 .rotate_bytes = gzip ? 0 : 256u << 20,
					 .keep = 1,
					 .before_rotate = end_open,
					 .on_rotate = begin_again,
					 .arg = &j};
	if (chrome_trace_new(&o, &t, &err) < 0)
		die(err.text);
	active = events_new(&(struct events_options){.trace = t, .all_threads = true});
	uint64_t start = cpu_ns();
	while (chrome_trace_events(t) < events) {
		uint64_t before = chrome_trace_bytes(t);

		job_round(&j, rounds++);
		events_sample(active, &j.target);
		if (chrome_trace_bytes(t) > before)
			bytes += chrome_trace_bytes(t) - before;
		if (chrome_trace_flush(t, &err) < 0)
			die(err.text);
	}
	struct result r = {.rss_mb = rss_mb()};
	uint64_t told = chrome_trace_events(t);
	r.rate = (double)told * 1e9 / (double)(cpu_ns() - start);
	r.bytes = (double)bytes / (double)told;
	events_free(active);
	if (chrome_trace_close(t, &err) < 0)
		die(err.text);
	if (gzip && stat(path, &st) == 0)
		r.bytes = (double)st.st_size / (double)told;
	return r;
}

static uint64_t naive_frame(FILE *f, char ph, const struct job *j, unsigned t, unsigned i)
{
	const struct stack_frame *s = &j->frames[t][i];
	const struct python_thread *th = &j->threads[t];

	fprintf(f,
		",\n{\"name\":\"%s (%s:%d)\",\"ph\":\"%c\",\"ts\":%.3f,\"pid\":%d,\"tid\":%d,"
		"\"args\":{",
		s->name, strstr(s->file, "app"), s->first_line, ph, (double)th->time_ns / 1e3,
		(int)j->target.pid, (int)th->tid);
	if (ph == 'B')
		fprintf(f, "\"thread\":\"%s\",\"function\":\"%s\",\"file\":\"%s\",", th->name,
			s->name, s->file);
	fprintf(f, "\"line\":%d}}", (int)s->line);
	return 1;
}

static struct result naive(const char *path, uint64_t events)
{
	FILE *f = fopen(path, "w");
	uint64_t told = 0, start = cpu_ns();
	struct job j;

	if (!f)
		die("cannot write");
	job_init(&j);
	for (uint64_t round = 0; told < events; round++) {
		for (unsigned t = 0; round && t < THREADS; t++)
			for (unsigned i = DEPTH; i > DEPTH - CHANGES; i--)
				told += naive_frame(f, 'E', &j, t, i - 1);
		job_round(&j, round);
		for (unsigned t = 0; t < THREADS; t++)
			for (unsigned i = DEPTH - CHANGES; i < DEPTH; i++)
				told += naive_frame(f, 'B', &j, t, i);
		fflush(f);
	}
	struct result r = {.rate = (double)told * 1e9 / (double)(cpu_ns() - start),
			   .bytes = (double)ftell(f) / (double)told,
			   .rss_mb = rss_mb()};
	fclose(f);
	return r;
}

/* Each in a process of its own, so that memory is its own. */
static struct result measure(const char *what, const char *dir, uint64_t events)
{
	struct result r = {0};
	char path[4096], rotated[4096];
	int ends[2];

	snprintf(path, sizeof(path), "%s/stack_trace_writer_%d.json", dir, (int)getpid());
	if (pipe(ends) < 0)
		die("no pipe");
	pid_t pid = fork();
	if (pid == 0) {
		r = what[0] == 'n' ? naive(path, events) : with_trace(path, events, what[0] == 'g');
		_exit(write(ends[1], &r, sizeof(r)) != sizeof(r));
	}
	int status = 1;
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status ||
	    read(ends[0], &r, sizeof(r)) != sizeof(r))
		die("a measurement failed");
	close(ends[0]);
	close(ends[1]);
	unlink(path);
	for (unsigned i = 1; i < 1000; i++) {
		snprintf(rotated, sizeof(rotated), "%s/stack_trace_writer_%d.%u.json", dir,
			 (int)getpid(), i);
		unlink(rotated);
	}
	return r;
}

static void print(const char *what, uint64_t events, struct result r, struct result base)
{
	printf("stack_trace_writer: %-6s %9" PRIu64 " events  %9.0f/s  %6.1f ns each  %6.1f bytes "
	       "each  RSS %5.1f MB  %5.2f x naive\n",
	       what, events, r.rate, 1e9 / r.rate, r.bytes, r.rss_mb, r.rate / base.rate);
}

int main(int argc, char **argv)
{
	bool quick = getenv("BENCH_QUICK") != NULL;
	uint64_t events = argc > 1 ? strtoull(argv[1], NULL, 10) : 10000000;
	const char *dir = argc > 2 ? argv[2] : "/tmp";

	if (quick)
		events /= 100;
	if (events < 1000)
		die("at least 1000 events, 100000 with BENCH_QUICK");
	struct result base = measure("naive", dir, events / 10);
	struct result early = measure("json", dir, events / 10);
	struct result json = measure("json", dir, events);
	struct result gzip = measure("gzip", dir, events / 10);
	print("naive", events / 10, base, base);
	print("json", events / 10, early, base);
	print("json", events, json, base);
	print("gzip", events / 10, gzip, base);
	bool over = json.rss_mb > BUDGET_MB || json.rate < base.rate;
	printf("stack_trace_writer: %.1f MB after %" PRIu64 " events (budget %.0f)%s\n",
	       json.rss_mb, events, BUDGET_MB, over ? ", OVER" : "");
	return over && !quick;
}
