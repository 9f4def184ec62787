/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What the Python package costs a training loop while it collects nothing: imported only, and
 * inside a window that asks for nothing. In turn with the same steps without, so that both see the
 * same machine. For every PyTorch here (tests/e2e/torches.py).
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "torch_child.h"

#define TURNS 3
#define TRIES 3 /* somebody else's work may fall into all of one side's chunks */

static struct scratch scratch;

/* Runs the job; the one or two numbers that it prints. */
static bool run(const char *python, const char *how, double out[2])
{
	char cmd[4096], line[256];
	int n = 0;

	snprintf(cmd, sizeof(cmd),
		 "here=$PWD; cd '%s' && PYTHONPATH='%s/python' '%s' -B "
		 "\"$here\"/tests/targets/python/idle_training.py %s %d 2>said",
		 scratch.dir, scratch.build, python, how, getenv("BENCH_QUICK") ? 10 : 40);
	FILE *f = popen(cmd, "r");
	if (!f)
		return false;
	while (fgets(line, sizeof(line), f))
		n = sscanf(line, "ns_per_step %lf %lf", &out[0], &out[1]);
	return pclose(f) == 0 && n > 0;
}

static bool least(const char *python, const char *how, double best[2])
{
	double now[2] = {0};

	if (!run(python, how, now))
		return false;
	for (int i = 0; i < 2; i++)
		if (!best[i] || now[i] < best[i])
			best[i] = now[i];
	return true;
}

/* 0: nothing, 1: something, -1: it could not be measured. */
static int measure(const char *label, const char *python)
{
	double plain[2] = {0}, imported[2] = {0}, windows[2] = {0};
	bool over = true;

	/* What was measured before still counts: only the least of many is the cost itself. */
	for (int try = 0; over && try < TRIES; try++) {
		for (int i = 0; i < (getenv("BENCH_QUICK") ? 1 : TURNS); i++)
			if (!least(python, "plain", plain) ||
			    !least(python, "imported", imported) ||
			    !least(python, "windows", windows)) {
				printf("torch_idle: %s: could not be measured\n", label);
				return -1;
			}
		over = imported[0] / plain[0] > torch_want_ratio() ||
		       windows[1] / windows[0] > torch_want_ratio();
	}
	printf("torch_idle: %s: a step takes %.1f us; with the package imported x %.3f, in a "
	       "window "
	       "that asks for nothing x %.3f (must be at most %.2f%s)\n",
	       label, plain[0] / 1000, imported[0] / plain[0], windows[1] / windows[0],
	       torch_want_ratio(), over ? ", OVER" : "");
	return over;
}

int main(void)
{
	return torch_each("torch_idle", &scratch, measure);
}
