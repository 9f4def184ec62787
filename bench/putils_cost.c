/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What tprint() and hookt_dump() of putils cost for a tensor of 1 GiB, beside the same with one
 * operation of torch for each value, and beside its checksum alone, which is a bound; and what the
 * hooks on a model of 148 modules add to a step. For every PyTorch here (tests/e2e/torches.py).
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "torch_child.h"

#define WANT_GAIN 5.0 /* times faster, where torch.quantile() takes as many numbers */
#define WANT_BOUND 1.3 /* times the checksum alone, where it does not and gives up */
#define QUICK_MIB 4

static struct scratch scratch;

/* Runs the job; the three numbers that it prints. */
static bool run(const char *python, const char *what, int size, double out[3])
{
	char cmd[4096], line[256];
	int n = 0;

	snprintf(cmd, sizeof(cmd),
		 "here=$PWD; cd '%s' && PYTHONPATH='%s/python' '%s' -B "
		 "\"$here\"/tests/targets/python/putils_cost.py %s %d 2>said",
		 scratch.dir, scratch.build, python, what, size);
	FILE *f = popen(cmd, "r");
	if (!f)
		return false;
	while (fgets(line, sizeof(line), f))
		n = sscanf(line, "seconds %lf %lf %lf", &out[0], &out[1], &out[2]);
	return pclose(f) == 0 && n == 3;
}

/* PyTorch 1 gives up on the quantiles of more than 16 million numbers, and is fast for that. */
static bool has_limit(const char *label)
{
	return label[0] == '1';
}

static int measure_large(const char *label, const char *python, const char *what, int mib)
{
	bool quick = getenv("BENCH_QUICK");
	double s[3];

	if (!run(python, what, mib, s)) {
		printf("putils_cost: %s: could not be measured\n", label);
		return 1;
	}
	bool over = has_limit(label) ? s[0] > WANT_BOUND * s[2] : s[1] < WANT_GAIN * s[0];
	/* torch.save() writes the file in both, which no checksum does. */
	bool judged = !quick && !(has_limit(label) && !strcmp(what, "dump"));
	printf("putils_cost: %s: %s of %d MiB takes %.2f s, one by one %.2f s (x %.1f), MD5 alone "
	       "%.2f s (x %.2f)%s\n",
	       label, what, mib, s[0], s[1], s[1] / s[0], s[2], s[0] / s[2],
	       judged && over ? ", OVER" : "");
	return judged && over;
}

static int measure_hooks(const char *label, const char *python, int steps)
{
	double s[3];

	if (!run(python, "hooks", steps, s)) {
		printf("putils_cost: %s: hooks could not be measured\n", label);
		return 1;
	}
	printf("putils_cost: %s: hooks on 148 modules add %.0f ms to a step of %.0f ms, one by one "
	       "%.0f ms (x %.1f)\n",
	       label, 1000 * (s[1] - s[0]), 1000 * s[0], 1000 * (s[2] - s[0]),
	       (s[2] - s[0]) / (s[1] - s[0]));
	return s[1] > s[2]; /* it must never be the slower way */
}

/* Quickly: whether it runs at all, on the PyTorch that is imported fastest. */
static int measure(const char *label, const char *python)
{
	if (getenv("BENCH_QUICK"))
		return has_limit(label) ? measure_large(label, python, "tprint", QUICK_MIB) : 0;
	return measure_large(label, python, "tprint", 1024) +
	       measure_large(label, python, "dump", 1024) + measure_hooks(label, python, 5);
}

int main(void)
{
	return torch_each("putils_cost", &scratch, measure);
}
