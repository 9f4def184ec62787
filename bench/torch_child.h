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
