/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Activities per second into each kind of file, and out of DB and Jsonl again: kernels with 500
 * names, each with the call that launched it, a collective for every 50 of them. Beside them what
 * memory the writer takes. Arguments: activities (default 2000000; with BENCH_QUICK 200000).
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "activity/files/activity.h"
#include "activity/read/read.h"
#include "base/clock.h"
#include "scratch.h"

#define NAMES 500

static char names[NAMES][32];

static void make(struct activity *a, uint64_t i)
{
	bool call = i & 1, group = i % 100 == 98;

	*a = (struct activity){.start_ns = 1767225600000000000u + i * 977,
			       .end_ns = 1767225600000000000u + i * 977 + 900,
			       .correlation = i / 2 + 1,
			       .name = names[i / 2 * 7919 % NAMES],
			       .detail = "KERNEL_AICORE",
			       .more = "",
			       .kind = ACTIVITY_KERNEL,
			       .place = ACTIVITY_ON_DEVICE,
			       .stream = (uint32_t)(i >> 1 & 3)};
	if (group) {
		a->kind = ACTIVITY_COMMUNICATION;
		a->name = "hcom_allReduce_";
		a->detail = "group_name_0";
		a->more = "RING";
		a->amount = 1048576;
		a->data_type = 4;
	}
	if (call) {
		a->kind = ACTIVITY_RUNTIME_API;
		a->place = ACTIVITY_ON_HOST;
		a->name = "rtKernelLaunch";
		a->pid = 4711;
		a->tid = 4711;
		a->device = a->stream = ACTIVITY_NOWHERE;
	}
}

static void die(const char *what)
{
	fprintf(stderr, "activity_files: %s\n", what);
	exit(1);
}

static double seconds_since(uint64_t ns)
{
	return (double)(clock_mono_ns() - ns) / 1e9;
}

static long rss_kib(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return u.ru_maxrss;
}

static void write_all(const struct activity_writer_ops *ops, const char *where, uint64_t n,
		      char *path)
{
	const struct activity_origin who = {.pid = 4711, .start_ns = 1767225600000000000u};
	const struct activity_options options = {.lines_per_file = 500000};
	const struct activity_closing end = {.end_ns = 1767225600000000000u + n * 977};
	struct activity_writer *w = ops->open(where, &who, &options);
	struct err err = {0};
	struct activity a;

	for (uint64_t i = 0; i < n; i++) {
		make(&a, i);
		if (ops->put(w, &a, &err) < 0)
			die(err.text);
	}
	snprintf(path, 512, "%s", ops->path(w));
	if (ops->close(w, &end, &err) < 0)
		die(err.text);
}

static int count(void *arg, const struct activity *a)
{
	*(uint64_t *)arg += a->kind != 0;
	return 0;
}

static void report(const char *what, uint64_t n, double s, const char *path)
{
	struct stat st = {0};

	stat(path, &st);
	printf("%-22s %10.0f activities/s  %7.0f ns each  RSS %5ld MiB", what, (double)n / s,
	       s * 1e9 / (double)n, rss_kib() / 1024);
	if (st.st_size)
		printf("  last file %" PRIu64 " bytes", (uint64_t)st.st_size);
	printf("\n");
	fflush(stdout);
}

/* In a process of its own, for its memory. */
static void measure(const struct activity_writer_ops *ops, const char *where, uint64_t n, bool read)
{
	pid_t pid = fork();
	char path[512], what[64];
	int status;

	if (pid) {
		if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
			die(ops->name);
		return;
	}
	uint64_t start = clock_mono_ns();
	write_all(ops, where, n, path);
	snprintf(what, sizeof(what), "write %s", ops->name);
	report(what, n, seconds_since(start), path);
	if (read) {
		struct activity_about about = {0};
		struct err err = {0};
		uint64_t got = 0;

		start = clock_mono_ns();
		if (activity_read(path, count, &got, &about, &err) < 0)
			die(err.text);
		snprintf(what, sizeof(what), "read %s", ops->name);
		report(what, got, seconds_since(start), path);
		if (ops == &activity_db && got != n)
			die("the DB does not give back what was written to it");
	}
	exit(0);
}

int main(int argc, char **argv)
{
	uint64_t n = getenv("BENCH_QUICK") ? 200000 : 2000000;
	struct scratch s;
	char path[512];

	if (argc > 1)
		n = strtoull(argv[1], NULL, 10);
	if (!n)
		die("activities must be a number above 0");
	if (!scratch_open(&s))
		return 1;
	for (unsigned i = 0; i < NAMES; i++)
		snprintf(names[i], sizeof(names[i]), "MatMulV2_fused_kernel_%u", i);
	measure(&activity_db, s.dir, n, true);
	measure(&activity_jsonl, s.dir, n, true);
	measure(&activity_chrome, s.dir, n, false);
	snprintf(path, sizeof(path), "%s/a.csv", s.dir);
	measure(&activity_csv_file, path, n, false);
	snprintf(path, sizeof(path), "%s/a.xlsx", s.dir);
	measure(&activity_xlsx_file, path, n / 10, false);
	scratch_remove(&s);
	return 0;
}
