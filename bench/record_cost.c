/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What `sonde record` with its defaults costs a job, as a ratio to the same job alone, in turns: a
 * simulated rank whose device takes the nominal time of its kernels (the host has time to spare), the same
 * with kernels that take no time (nothing but launches and allocations, the worst there is, and far
 * from any real job; printed alone), and a Python program that computes. The median of the rounds
 * counts.
 */
#include <string.h>
#include <time.h>

#include "scratch.h"

#define ROUNDS 9
#define QUICK_ROUNDS 3
#define BUDGET_DEVICE 1.03
#define BUDGET_PYTHON 1.06

static struct scratch scratch;

static const char python_job[] = "import sys\n"
				 "def f(n):\n"
				 "    s = 0\n"
				 "    for i in range(n): s += i\n"
				 "    return s\n"
				 "def g(): return f(2000)\n"
				 "for i in range(int(sys.argv[1])): g()\n";

struct job {
	const char *name, *command; /* of a shell: $B is the build, $D a directory */
	unsigned little, much; /* $N: the difference counts, without start and end */
	double budget; /* 0: none */
};

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Seconds, or a negative number. $N says how much there is to do. */
static double run(const char *command, bool record, unsigned n)
{
	static const char recorded[] =
		"\"$B/bin/sonde\" record -q -o \"$D/rec\" --mspti \"$B/sim/libmspti.so\" -- ";
	char all[4096], number[16];

	snprintf(number, sizeof(number), "%u", n);
	setenv("N", number, 1);
	snprintf(all, sizeof(all), "%s%s >\"$D/said\" 2>&1", record ? recorded : "", command);
	double begin = now_s();
	int r = system(all);
	return r == 0 ? now_s() - begin : -1;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static double median(double *v, int n)
{
	qsort(v, (size_t)n, sizeof(*v), by_value);
	return v[n / 2];
}

/* Whether it is above the budget, or could not be measured. */
static bool measure(const struct job *job, int rounds, bool quick)
{
	/* [recorded][little or much to do] */
	double took[2][2][ROUNDS];
	double m[2][2];

	for (int i = 0; i < rounds; i++)
		for (int k = 0; k < 4; k++) {
			double s = run(job->command, k & 1, k & 2 ? job->much : job->little);

			if (s < 0) {
				printf("record_cost: %s: could not be measured\n", job->name);
				return true;
			}
			took[k & 1][k >> 1][i] = s;
		}
	for (int k = 0; k < 4; k++)
		m[k & 1][k >> 1] = median(took[k & 1][k >> 1], rounds);
	double alone = m[0][1] - m[0][0], ratio = (m[1][1] - m[1][0]) / alone;
	bool bad = job->budget > 0 && ratio > job->budget && !quick;
	printf("record_cost: %-38s %.2f s of work alone, recorded x %.3f", job->name, alone, ratio);
	if (job->budget > 0)
		printf(" (budget %.2f%s)", job->budget, bad ? ", OVER" : "");
	printf("; start and end %+.0f ms\n", 1e3 * (m[1][0] - m[0][0]));
	fflush(stdout);
	return bad;
}

static bool write_python_job(void)
{
	char path[512];

	snprintf(path, sizeof(path), "%s/job.py", scratch.dir);
	FILE *f = fopen(path, "w");
	if (!f)
		return false;
	fputs(python_job, f);
	return fclose(f) == 0;
}

int main(void)
{
	bool quick = getenv("BENCH_QUICK") != NULL, bad = false;
	unsigned part = quick ? 5 : 1;
	const struct job jobs[] = {
		{"kernels of nominal time, 10 ms a step",
		 "env SIM_NPU_TIME_SCALE=1 \"$B/sim/simtrain\" --quiet --steps $N", 10, 310 / part,
		 BUDGET_DEVICE},
		{"Python that computes", "python3 \"$D/job.py\" $N", 1000, 21000 / part,
		 BUDGET_PYTHON},
		{"launches alone, kernels take no time", "\"$B/sim/simtrain\" --quiet --steps $N",
		 10, 5000 / part, 0},
	};

	if (!scratch_open(&scratch) || !write_python_job())
		return 1;
	setenv("B", scratch.build, 1);
	setenv("D", scratch.dir, 1);
	for (size_t i = 0; i < sizeof(jobs) / sizeof(jobs[0]); i++)
		bad |= measure(&jobs[i], quick ? QUICK_ROUNDS : ROUNDS, quick);
	scratch_remove(&scratch);
	return bad;
}
