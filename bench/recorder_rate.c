/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * How many events per second of processor time the recorder handles, rings to files, for a job
 * that produces them faster than anybody could: to csv and to db, with the analysis of leaks, with
 * none and with all, and with a million blocks alive; and without dumps, with any size and with a
 * limit (--max-size) below which the oldest part is dropped again and again, by copies of the recorder
 * whose time counts, too. The baseline is a program that
 * formats and flushes the same number of rows one by one, in the same run. RECORDER_EVENTS sets
 * the number; with 100000000 the memory line shows that it does not grow with events.
 */
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *build;
static char dir[256];

static double cpu_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double naive_rows_per_second(void)
{
	char path[512];
	const long n = 300000;

	snprintf(path, sizeof(path), "%s/naive.csv", dir);
	FILE *f = fopen(path, "w");
	if (!f)
		return -1;
	double begin = cpu_now();
	for (long i = 0; i < n; i++) {
		fprintf(f,
			"%ld,MALLOC,HAL,N/"
			"A,%lld,%d,%d,0,0x%016lx,\"{allocation_id:%ld,addr:0x%016lx,"
			"size:%d,used:%ld,page_type:%s,alloc_type:%s}\",,\n",
			i, 1700000000000000000ll + i, 1234, 1234, i * 4096, i, i * 4096, 4096,
			i * 64, "normal", "alloc");
		fflush(f);
	}
	double used = cpu_now() - begin;
	fclose(f);
	return (double)n / used;
}

/* The recorder's last words: events, seconds, memory. It may still be finishing. */
static int read_log(const char *format, double *events, double *seconds, long *kib)
{
	char pattern[512], line[512];
	glob_t g;

	snprintf(pattern, sizeof(pattern), "%s/%s/recording_*/msmemscope.log", dir, format);
	for (int tries = 0; tries < 600; tries++, usleep(100000)) {
		FILE *f = glob(pattern, 0, NULL, &g) == 0 ? fopen(g.gl_pathv[0], "r") : NULL;
		while (f && fgets(line, sizeof(line), f)) {
			const char *at = strstr(line, "recorder: ");
			if (at &&
			    sscanf(at,
				   "recorder: %lf events in %lf s of processor time, at most %ld",
				   events, seconds, kib) == 3) {
				fclose(f);
				globfree(&g);
				return 0;
			}
		}
		if (f)
			fclose(f);
		globfree(&g);
	}
	return -1;
}

struct run {
	const char *name;
	const char *format;
	const char *analysis;
	unsigned live; /* blocks that are never freed */
	double must;
	const char *more; /* options */
	unsigned times; /* so many times the events */
};

/* Its processor time for an event, in nanoseconds, goes to *out_ns. */
static int measure(const struct run *r, const char *count, double naive, double *out_ns)
{
	char cmd[2048];
	double events = 0, seconds = 1;
	long kib = 0;

	snprintf(cmd, sizeof(cmd),
		 "SIM_NPU_STATE=%s/npu SIM_NPU_NOBACK=1 %s/bin/msmemscope --log-level=info "
		 "--wait-ms=60000 "
		 "--format=%s --analysis=%s %s --output-path=%s/%s -- %s/bench/job_hal "
		 "%llu 2 %u 64 0 1 >/dev/null",
		 dir, build, r->format, r->analysis, r->more ? r->more : "--report=off", dir,
		 r->name, build, strtoull(count, NULL, 10) * r->times, r->live);
	if (system(cmd) != 0 || read_log(r->name, &events, &seconds, &kib) < 0)
		return 1;
	*out_ns = seconds / events * 1e9;
	printf("recorder_rate: %-18s %.0f events, %.2f million per second of one core (wanted "
	       "%.1f), "
	       "%.1f x naive, at most %ld MiB\n",
	       r->name, events, events / seconds / 1e6, r->must, events / seconds / naive,
	       kib / 1024);
	return 0;
}

#define ALL "leaks,inefficient,decompose,oom"

static const struct run runs[] = {
	{"csv", "csv", "leaks", 0, 1.0, NULL, 1},
	{"db", "db", "leaks", 0, 0.3, NULL, 1},
	{"csv-no-analysis", "csv", "none", 0, 1.0, NULL, 1},
	{"csv-all-analyses", "csv", ALL, 0, 1.0, NULL, 1},
	{"all-million-alive", "csv", ALL, 1000000, 0.3, NULL, 1},
	{"none", "none", "leaks", 0, 4.0, "", 6},
	{"none-limited", "none", "leaks", 0, 1.0, "--max-size=1M", 6},
};

#define NRUNS (sizeof(runs) / sizeof(runs[0]))

int main(void)
{
	const char *count = getenv("RECORDER_EVENTS");
	char cmd[512];

	build = getenv("SONDE_BUILD") ? getenv("SONDE_BUILD") : "build";
	if (!count)
		count = getenv("BENCH_QUICK") ? "500000" : "4000000";
	snprintf(dir, sizeof(dir), "%s/sonde-bench-XXXXXX",
		 getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	if (!mkdtemp(dir))
		return 1;
	double naive = naive_rows_per_second();
	double ns[NRUNS] = {0};
	int bad = naive < 0;
	for (size_t i = 0; i < NRUNS; i++)
		bad |= measure(&runs[i], count, naive, &ns[i]);
	if (!bad)
		printf("recorder_rate: --max-size takes %.1f x the processor time, %.0f ns more "
		       "for "
		       "each event\n",
		       ns[NRUNS - 1] / ns[NRUNS - 2], ns[NRUNS - 1] - ns[NRUNS - 2]);
	snprintf(cmd, sizeof(cmd), "rm -rf '%s'", dir);
	return system(cmd) != 0 || bad;
}
