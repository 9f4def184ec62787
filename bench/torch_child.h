/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Runs a measurement on every PyTorch that the tests know. */
#ifndef SONDE_BENCH_TORCH_CHILD_H
#define SONDE_BENCH_TORCH_CHILD_H

#include "scratch.h"

#define WANT_RATIO 1.05 /* of what is not enabled: nothing, and what the machine adds */
#define QUICK_RATIO 1.25 /* a short run tells only what is far off */

static inline double torch_want_ratio(void)
{
	return getenv("BENCH_QUICK") ? QUICK_RATIO : WANT_RATIO;
}

/* A program of tests/targets/python with our packages, and how long it is to measure; its output, or
 * NULL. What it says besides is in the file `said` of the scratch directory. */
static inline FILE *torch_program(const struct scratch *s, const char *python, const char *program,
				  int rounds)
{
	char cmd[4096];

	snprintf(cmd, sizeof(cmd),
		 "here=$PWD; cd '%s' && PYTHONPATH='%s/python' '%s' -B "
		 "\"$here\"/tests/targets/python/%s %d 2>said",
		 s->dir, s->build, python, program, rounds);
	return popen(cmd, "r");
}

/* The exit status of a program that does nothing else; measure() gives 0 if all is well. */
static inline int torch_each(const char *name, struct scratch *s,
			     int (*measure)(const char *label, const char *python))
{
	char label[128], python[1024];
	int bad = 0, n = 0;
	FILE *f = scratch_open(s) ? popen("python3 -B tests/e2e/torches.py", "r") : NULL;

	if (!f)
		return 1;
	while (fscanf(f, "%127s %1023s%*[^\n]", label, python) == 2)
		if (python[0] == '/') {
			bad += measure(label, python) != 0;
			n++;
		}
	pclose(f);
	if (!n)
		printf("%s: no PyTorch here, nothing to measure\n", name);
	scratch_remove(s);
	return bad != 0;
}

#endif
