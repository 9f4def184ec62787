/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * How many slices per second of one core a timeline of 64 ranks takes, how large the file is, and
 * whether memory stays flat: calls and the kernels that they launch, with arrows and arguments. The
 * baseline is Python's json, which writes 10^6 of the same slices, and their arrows, as a Chrome trace.
 * Then 10^6 of them are read out of a DB of activities, as `sonde timeline` does it.
 *
 * TIMELINE_EVENTS sets the number (default 20000000, BENCH_QUICK 1000000; 100000000 needs 5 GB of disk).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

#include "activity/files/activity.h"
#include "base/containers/intern.h"
#include "scratch.h"
#include "timeline/timeline.h"

#define RANKS 64
#define NAMES 200
#define BASELINE 1000000
#define START_NS 1794723775000000000ull
#define MAX_GROWTH_MIB 16
#define MIN_SPEEDUP 10.0
#define MIN_FROM_DB 3.0
#define MAX_SIZE 0.2

static const char python[] =
	"import json, sys, time\n"
	"n, path, base = int(sys.argv[1]), sys.argv[2], 1794723775000000\n"
	"events = []\n"
	"for i in range(n // 2):\n"
	"    r, k = i % 64, i // 64\n"
	"    name = 'void at::native::vectorized_elementwise_kernel_%d<4>(int, float)' % (k % "
	"200)\n"
	"    ts = base + k * 10.0\n"
	"    events.append({'ph': 'X', 'cat': 'cuda_runtime', 'name': 'cudaLaunchKernel', 'pid': "
	"1000 + r,\n"
	"        'tid': 1000 + r, 'ts': ts, 'dur': 3.0, 'args': {'correlation': k + 1}})\n"
	"    events.append({'ph': 'X', 'cat': 'kernel', 'name': name, 'pid': r, 'tid': 7, 'ts': ts "
	"+ 4,\n"
	"        'dur': 5.5, 'args': {'device': r % 8, 'stream': 7, 'correlation': k + 1}})\n"
	"    flow = {'cat': 'ac2g', 'name': 'ac2g', 'id': i}\n"
	"    events.append({'ph': 's', 'pid': 1000 + r, 'tid': 1000 + r, 'ts': ts, **flow})\n"
	"    events.append({'ph': 'f', 'pid': r, 'tid': 7, 'ts': ts + 4, 'bp': 'e', **flow})\n"
	"t = time.process_time()\n"
	"with open(path, 'w') as f:\n"
	"    f.write(json.dumps({'traceEvents': events}))\n" /* its fast way */
	"print(time.process_time() - t)\n";

static double cpu_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static long peak_mib(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return u.ru_maxrss / 1024;
}

struct rank {
	struct timeline_process *process;
	struct timeline_track *calls, *kernels;
};

static void add_pair(const struct rank *r, uint64_t device, uint64_t k, const char *const *names)
{
	uint64_t at = START_NS + k * 10000, flow = timeline_flow(r->process, k + 1);
	struct chrome_arg args[3] = {chrome_int("correlation", k + 1), chrome_int("device", device),
				     chrome_int("stream", 7)};
	struct timeline_event call = {.name = "cudaLaunchKernel",
				      .category = "cuda_runtime",
				      .args = args,
				      .nargs = 1,
				      .flow = flow};
	struct timeline_event kernel = {.name = names[k % NAMES],
					.category = "kernel",
					.args = args,
					.nargs = 3,
					.track_args = 2,
					.flow = flow,
					.flow_end = true};

	timeline_slice(r->calls, at, at + 3000, &call);
	timeline_slice(r->kernels, at + 4000, at + 9500, &kernel);
}

static void make_ranks(struct timeline *t, struct rank *ranks)
{
	for (uint32_t i = 0; i < RANKS; i++) {
		struct timeline_place host = {.group = GROUP_HOST};
		struct timeline_place device = {.group = GROUP_DEVICE, .number = i % 8};

		ranks[i].process = timeline_process(t, NULL, 1000 + i, (int32_t)i, NULL);
		ranks[i].calls = timeline_track(ranks[i].process, &host, "calls of thread 1");
		ranks[i].kernels = timeline_track(ranks[i].process, &device, "compute, stream 7");
	}
}

static void make_names(const char **names)
{
	for (unsigned i = 0; i < NAMES; i++) {
		char name[96];
		int len = snprintf(
			name, sizeof(name),
			"void at::native::vectorized_elementwise_kernel_%u<4>(int, float)", i);

		names[i] = intern(name, (size_t)len);
	}
}

/* Seconds of processor time for so many slices; the size of the file. */
static double write_slices(const char *path, uint64_t n, uint64_t *out_bytes, long *out_growth)
{
	struct timeline_options o = {.path = path};
	struct timeline_counts counts = {0};
	struct rank ranks[RANKS];
	const char *names[NAMES];
	struct timeline *t;
	struct err err = {0};
	double start = cpu_now();
	long early = 0;

	make_names(names);
	if (timeline_new(&o, &t, &err) < 0) {
		fprintf(stderr, "%s\n", err.text);
		exit(1);
	}
	make_ranks(t, ranks);
	for (uint64_t i = 0; i < n / 2; i++) {
		add_pair(&ranks[i % RANKS], i % RANKS % 8, i / RANKS, names);
		if (i == n / 20)
			early = peak_mib();
	}
	if (timeline_close(t, &counts, &err) < 0 || counts.slices != n / 2 * 2) {
		fprintf(stderr, "%s; %llu slices\n", err.text, (unsigned long long)counts.slices);
		exit(1);
	}
	*out_bytes = counts.bytes;
	*out_growth = peak_mib() - early;
	return cpu_now() - start;
}

/* The same calls and kernels of one rank, in a DB. */
static void write_db(const char *dir, const char *const *names, char *path, size_t path_size)
{
	const struct activity_origin who = {.pid = 1000, .rank = 0, .start_ns = START_NS};
	const struct activity_closing end = {.end_ns = START_NS + BASELINE * 10000ull};
	struct activity_writer *w = activity_db.open(dir, &who, &(struct activity_options){0});
	struct err err = {0};

	for (uint64_t k = 0; k < BASELINE / 2; k++) {
		uint64_t at = START_NS + k * 10000;
		struct activity call = {ACTIVITY_EMPTY,
					.kind = ACTIVITY_RUNTIME_API,
					.place = ACTIVITY_ON_HOST,
					.start_ns = at,
					.end_ns = at + 3000,
					.correlation = k + 1,
					.pid = 1000,
					.tid = 1000};
		struct activity kernel = {
			ACTIVITY_EMPTY,	       .kind = ACTIVITY_KERNEL, .place = ACTIVITY_ON_DEVICE,
			.start_ns = at + 4000, .end_ns = at + 9500,	.correlation = k + 1};

		call.name = "cudaLaunchKernel";
		kernel.name = names[k % NAMES];
		kernel.device = 0;
		kernel.stream = 7;
		if (activity_db.put(w, &call, &err) < 0 || activity_db.put(w, &kernel, &err) < 0)
			break;
	}
	if (activity_db.flush(w, &err) == 0)
		snprintf(path, path_size, "%s", activity_db.path(w));
	if (activity_db.close(w, &end, &err) < 0 || err.code) {
		fprintf(stderr, "%s\n", err.text);
		exit(1);
	}
}

/* Seconds of processor time from a DB to the file. */
static double read_db(const struct scratch *s, const char *out)
{
	struct timeline_options o = {.path = out};
	struct timeline_counts counts = {0};
	const char *names[NAMES];
	struct buf notes = {0};
	struct timeline *t;
	struct err err = {0};
	char path[512] = "";

	make_names(names);
	write_db(s->dir, names, path, sizeof(path));
	double start = cpu_now();
	int r = timeline_new(&o, &t, &err);
	if (r == 0)
		r = timeline_read(t, &(struct timeline_source){.path = path}, &notes, &err);
	if (r < 0 || timeline_close(t, &counts, &err) < 0 || counts.slices != BASELINE) {
		fprintf(stderr, "%s; %llu slices\n", err.text, (unsigned long long)counts.slices);
		exit(1);
	}
	buf_release(&notes);
	return cpu_now() - start;
}

static double run_python(const struct scratch *s, const char *path)
{
	char script[320], cmd[800];
	double seconds = 0;
	FILE *f;

	snprintf(script, sizeof(script), "%s/dump.py", s->dir);
	f = fopen(script, "w");
	if (!f || fputs(python, f) < 0 || fclose(f) != 0)
		return 0;
	snprintf(cmd, sizeof(cmd), "python3 '%s' %d '%s'", script, BASELINE, path);
	f = popen(cmd, "r");
	if (!f || fscanf(f, "%lf", &seconds) != 1)
		seconds = 0;
	if (f)
		pclose(f);
	return seconds;
}

int main(void)
{
	const char *wanted = getenv("TIMELINE_EVENTS");
	bool quick = getenv("BENCH_QUICK") != NULL;
	uint64_t n = wanted ? strtoull(wanted, NULL, 10) : quick ? 1000000 : 20000000, bytes;
	struct scratch s;
	char path[320], json[320];
	struct stat st;
	long growth;

	if (!scratch_open(&s))
		return 1;
	snprintf(path, sizeof(path), "%s/out.pftrace", s.dir);
	snprintf(json, sizeof(json), "%s/out.json", s.dir);
	double ours = write_slices(path, n, &bytes, &growth), theirs = run_python(&s, json);
	double from_db = read_db(&s, path);
	if (theirs <= 0 || stat(json, &st) < 0) {
		fprintf(stderr, "python3 could not write the baseline\n");
		scratch_remove(&s);
		return 1;
	}
	double rate = (double)n / ours, python_rate = BASELINE / theirs;
	double each = (double)bytes / (double)n, python_each = (double)st.st_size / BASELINE;
	printf("timeline: %.2f M slices/s of one core, %.1f bytes each, memory +%ld MiB in %llu\n",
	       rate / 1e6, each, growth, (unsigned long long)n);
	printf("Python's json: %.2f M slices/s, %.1f bytes each\n", python_rate / 1e6, python_each);
	printf("timeline is %.1f times as fast, and its file has %.3f of the size\n",
	       rate / python_rate, each / python_each);
	printf("from a DB: %.2f M slices/s of one core, %.1f times as fast as Python's json "
	       "writes\n",
	       BASELINE / from_db / 1e6, theirs / from_db);
	scratch_remove(&s);
	bool ok = growth <= MAX_GROWTH_MIB && each / python_each <= MAX_SIZE &&
		  (quick || (rate / python_rate >= MIN_SPEEDUP && theirs / from_db >= MIN_FROM_DB));
	printf("%s\n", ok ? "PASS" : "FAIL");
	return ok ? 0 : 1;
}
