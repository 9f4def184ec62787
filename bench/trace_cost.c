/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What tracing the calls of a Python program costs the program: the time of a call that does
 * nothing, of a function of Python and of one of C, with and without, for every interpreter
 * from 3.8 on that is here; two events each. And against what one would write first, in the same
 * run: a profile function in Python that keeps what happened and when.
 */
#include <sys/stat.h>

#include "scratch.h"
#include "stack_child.h"

#define OLDEST 8
#define BUDGET_NS 150 /* per event; a call has two */
#define TRIES 3
#define WANT_RATIO 2 /* the naive way must cost so many times as much */
#define CALLS 5000 /* in a round, which fits between two turns of the scheduler */

static struct scratch scratch;

struct cost {
	double python, native; /* ns per call */
};

/* 0, or -1 if it could not be measured. */
static int run(const struct stack_python *p, const char *how, struct cost *out)
{
	char cmd[4096], line[256];
	int found = 0;

	snprintf(cmd, sizeof(cmd),
		 "PYTHONPATH='%s/python' '%s' -B " STACK_SCRIPTS
		 "/trace_cost.py %s %d %d '%s/out' 2>'%s/said'",
		 scratch.build, p->path, how, CALLS, stack_quick() ? 40 : 120, scratch.dir,
		 scratch.dir);
	FILE *f = popen(cmd, "r");
	if (!f)
		return -1;
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "ns_per_call %lf %lf", &out->python, &out->native) == 2)
			found = 1;
	return pclose(f) == 0 && found ? 0 : -1;
}

static void forget_files(void)
{
	char cmd[512];

	snprintf(cmd, sizeof(cmd), "rm -rf '%s/out'", scratch.dir);
	if (system(cmd) != 0)
		fprintf(stderr, "trace_cost: cannot remove %s/out\n", scratch.dir);
}

static bool report(const struct stack_python *p, const char *what, double plain, double traced,
		   double naive)
{
	double event = (traced - plain) / 2 > 1 ? (traced - plain) / 2 : 1;
	double other = (naive - plain) / 2;
	bool bad = event > BUDGET_NS || other / event < WANT_RATIO;

	printf("trace_cost: 3.%-2d a call of %-6s %5.1f ns, each of its two events %6.1f ns more "
	       "(budget %d%s); naive %6.0f ns, x %.1f\n",
	       p->minor, what, plain, event, BUDGET_NS, bad ? ", OVER" : "", other, other / event);
	return bad;
}

/* Whether it is above the budget, or could not be measured. */
static bool measure(const struct stack_python *p)
{
	struct cost plain, traced, naive;

	int r = run(p, "plain", &plain);
	if (r == 0)
		r = run(p, "traced", &traced);
	if (r == 0)
		r = run(p, "naive", &naive);
	forget_files();
	if (r < 0) {
		printf("trace_cost: 3.%d.%d: could not be measured\n", p->minor, p->micro);
		return true;
	}
	bool bad = report(p, "Python", plain.python, traced.python, naive.python);
	return report(p, "C", plain.native, traced.native, naive.native) || bad;
}

/* Somebody else's work may fall into one measurement, not into all of them. */
static bool measure_often(const struct stack_python *p)
{
	for (int try = 0; try < TRIES; try++)
		if (!measure(p))
			return false;
	return true;
}

int main(void)
{
	struct stack_python pythons[STACK_PYTHONS];
	unsigned n = stack_pythons(pythons), bad = 0;

	if (!scratch_open(&scratch))
		return 1;
	/* A short run looks at the oldest, the newest and some between. */
	for (unsigned i = 0; i < n; i++)
		if (pythons[i].minor >= OLDEST &&
		    (!stack_quick() || (i - (OLDEST - PYTHON_OLDEST)) % 3 == 0 || i + 1 == n))
			bad += measure_often(&pythons[i]);
	scratch_remove(&scratch);
	return bad != 0;
}
