/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What recording the operators of torch costs, against the same operator without us, and against a
 * dispatch mode of the program's that does nothing: that much torch itself takes for letting
 * anybody see an operator. For every PyTorch here (tests/e2e/torches.py).
 *
 * An operator that adds two tensors of the CPU has two events, its beginning and its end; with
 * accesses it has seven: two tensors read, one allocated, written to and freed.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "torch_child.h"

#define BUDGET_US 3.0 /* of one event, on top of the mode that does nothing */
#define TRIES 3

enum way { PLAIN, EMPTY, LAUNCH, ACCESS, MEMORY, NOTHING, NWAYS };
static const char *const ways[NWAYS] = {"plain", "empty", "launch", "access", "memory", "nothing"};

static struct scratch scratch;

static bool run(const char *python, double best[NWAYS])
{
	char line[256], name[16];
	double us;
	int n = 0;

	FILE *f = torch_program(&scratch, python, "torch_ops_cost.py",
				getenv("BENCH_QUICK") ? 3 : 15);
	if (!f)
		return false;
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "us_per_operator %15s %lf", name, &us) != 2)
			continue;
		for (int i = 0; i < NWAYS; i++)
			if (!strcmp(name, ways[i])) {
				best[i] = !best[i] || us < best[i] ? us : best[i];
				n++;
			}
	}
	return pclose(f) == 0 && n == NWAYS;
}

static bool is_over(const double t[NWAYS])
{
	return (t[LAUNCH] - t[EMPTY]) / 2 > BUDGET_US || (t[ACCESS] - t[EMPTY]) / 7 > BUDGET_US ||
	       t[MEMORY] / t[PLAIN] > torch_want_ratio() ||
	       t[NOTHING] / t[PLAIN] > torch_want_ratio();
}

/* 0: within the budgets, 1: above, -1: it could not be measured. */
static int measure(const char *label, const char *python)
{
	double t[NWAYS] = {0};
	bool over = true;

	/* What was measured before still counts: only the least of many is the cost itself. */
	for (int i = 0; over && i < TRIES; i++) {
		if (!run(python, t)) {
			printf("torch_ops: %s: could not be measured\n", label);
			return -1;
		}
		over = is_over(t);
	}
	printf("torch_ops: %s: an operator takes %.2f us; in a mode that does nothing x %.2f; with "
	       "launches x %.2f, that is %+.2f us per event; with accesses x %.2f, %+.2f us per "
	       "event (budget %.1f); not enabled x %.3f, recording nothing x %.3f (at most "
	       "%.2f)%s\n",
	       label, t[PLAIN], t[EMPTY] / t[PLAIN], t[LAUNCH] / t[PLAIN],
	       (t[LAUNCH] - t[EMPTY]) / 2, t[ACCESS] / t[PLAIN], (t[ACCESS] - t[EMPTY]) / 7,
	       BUDGET_US, t[MEMORY] / t[PLAIN], t[NOTHING] / t[PLAIN], torch_want_ratio(),
	       over ? " OVER" : "");
	return over;
}

int main(void)
{
	return torch_each("torch_ops", &scratch, measure);
}
