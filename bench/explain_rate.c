/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What `sonde timeline --explain` costs beside reading and writing a timeline: slices of 64 ranks, half of
 * them kernels with gaps, half of them functions of Python and calls that launch. The baseline is the same
 * timeline without an explanation. Also the memory for each slice, and that the answer is right.
 *
 * EXPLAIN_EVENTS sets the number (default 10000000, BENCH_QUICK 1000000).
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#include "timeline/explain.h"

#define RANKS 64
#define START_NS 1794723775000000000ull
#define STEP_NS 10000 /* a kernel of 6 us, then the host is late for 4 us */
#define MAX_BYTES 120 /* of a slice */
#define MAX_RATIO 3.0

static double cpu_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static long peak_kib(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return u.ru_maxrss;
}

struct rank {
	struct timeline_process *process;
	struct timeline_track *python, *kernels;
};

static void make_ranks(struct timeline *t, struct rank *ranks)
{
	for (uint32_t i = 0; i < RANKS; i++) {
		struct timeline_place host = {.group = GROUP_PYTHON};
		struct timeline_place device = {.group = GROUP_DEVICE};

		ranks[i].process = timeline_process(t, NULL, 1000 + i, (int32_t)i, NULL);
		ranks[i].python = timeline_track(ranks[i].process, &host, "MainThread");
		ranks[i].kernels = timeline_track(ranks[i].process, &device, "compute");
	}
}

/* Four slices: a kernel, a function in which the host is late, what that calls, the next kernel. */
static void add_four(const struct rank *r, uint32_t pid, uint64_t k)
{
	uint64_t at = START_NS + k * 2 * STEP_NS;
	struct timeline_event kernel = {.name = "gemm", .role = ROLE_COMPUTE};
	struct timeline_event outer = {
		.name = "/srv/train.py(18): train", .role = ROLE_PYTHON, .thread = pid};
	struct timeline_event inner = {.name = "torch/utils/data/dataloader.py(628): __next__",
				       .role = ROLE_PYTHON,
				       .thread = pid};

	timeline_slice(r->kernels, at, at + 6000, &kernel);
	timeline_slice(r->python, at, at + 2 * STEP_NS, &outer);
	timeline_slice(r->python, at + 6000, at + 8000, &inner);
	timeline_slice(r->kernels, at + STEP_NS, at + STEP_NS + 6000, &kernel);
}

/* Seconds of processor time; with an explanation, checked. */
static double run_once(uint64_t n, struct explain *explain)
{
	struct timeline_options o = {.path = "/dev/null", .explain = explain};
	struct timeline_counts counts = {0};
	struct split_job job = {0};
	struct rank ranks[RANKS];
	struct timeline *t;
	struct buf text = {0};
	double start = cpu_now();

	if (timeline_new(&o, &t, NULL) < 0)
		exit(1);
	make_ranks(t, ranks);
	for (uint64_t i = 0; i < n / 4; i++)
		add_four(&ranks[i % RANKS], 1000 + (uint32_t)(i % RANKS), i / RANKS);
	if (timeline_close(t, &counts, NULL) < 0)
		exit(1);
	if (explain && explain_finish(explain, &job)) {
		const struct split_idle *idle = &job.ranks[0]->idle;

		split_job_text(&job, 10, &text);
		if (job.nranks != RANKS || idle->nreasons != 2 ||
		    idle->reasons[0].why != IDLE_PYTHON || idle->reasons[1].why != IDLE_DATA) {
			fprintf(stderr, "the explanation is wrong:\n%s", buf_str(&text));
			exit(1);
		}
	}
	double seconds = cpu_now() - start;
	buf_release(&text);
	split_job_release(&job);
	return seconds;
}

int main(void)
{
	const char *wanted = getenv("EXPLAIN_EVENTS");
	uint64_t n = wanted		     ? strtoull(wanted, NULL, 10)
		     : getenv("BENCH_QUICK") ? 1000000
					     : 10000000;
	double plain = run_once(n, NULL);
	long before = peak_kib();
	double explained = run_once(n, explain_new(0, 0));
	double bytes = (double)(peak_kib() - before) * 1024 / (double)n;
	double ratio = explained / plain;

	printf("%llu slices: %.2f s, with an explanation %.2f s: ratio %.2f (at most %.1f)\n",
	       (unsigned long long)n, plain, explained, ratio, MAX_RATIO);
	printf("%.1f bytes for a slice (at most %d): %.0f MiB\n", bytes, MAX_BYTES,
	       bytes * (double)n / (1 << 20));
	return ratio > MAX_RATIO || bytes > MAX_BYTES;
}
