/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What a call of the CUDA driver costs more when it is recorded, on the simulated driver: pairs of
 * cuMemAllocAsync() and cuMemFreeAsync(), which also find out the context and who asks, and cycles of
 * cuMemMap() and cuMemUnmap(). Alternating rounds; the best of each side counts, as others may use the
 * machine. Fails on the ratio to the call without us alone.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST 15.0 /* times the plain call, which does next to nothing here */

static const char *build;
static char dir[256];

/* The number behind ns_per_…; negative on failure. */
static double run(const char *before, const char *args)
{
	char cmd[4096], line[256];
	double ns = -1;

	snprintf(cmd, sizeof(cmd), "LD_LIBRARY_PATH=%s/sim %s %s/targets/cuda_memory runtime %s",
		 build, before, build, args);
	FILE *p = popen(cmd, "r");
	if (!p)
		return -1;
	while (fgets(line, sizeof(line), p))
		sscanf(line, "ns_per_%*s %lf", &ns);
	return pclose(p) == 0 ? ns : -1;
}

static int measure(const char *name, const char *what, const char *options, long n, int rounds)
{
	char args[64], before[1024];
	double plain = 1e9, recorded = 1e9;

	snprintf(args, sizeof(args), "%s %ld", what, n);
	for (int i = 0; i < rounds; i++) {
		snprintf(before, sizeof(before),
			 "%s/bin/msmemscope --output=%s/out%d --report=off %s --", build, dir, i,
			 options);
		double without = run("", args), with = run(before, args);
		if (without < 0 || with < 0)
			return 1;
		plain = without < plain ? without : plain;
		recorded = with < recorded ? with : recorded;
	}
	printf("cuda_hook_cost: %-28s %6.1f ns without, %6.1f ns recorded: + %.1f ns per event, "
	       "ratio %.1f (at most %.0f)\n",
	       name, plain, recorded, (recorded - plain) / 2, recorded / plain, MOST);
	return recorded / plain > MOST;
}

int main(void)
{
	char cmd[512];
	long n = getenv("BENCH_QUICK") ? 100000 : 1000000;
	int rounds = getenv("BENCH_QUICK") ? 2 : 5, bad = 0;

	build = getenv("SONDE_BUILD");
	if (!build)
		build = "build";
	snprintf(dir, sizeof(dir), "%s/sonde-bench-XXXXXX",
		 getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	if (!mkdtemp(dir))
		return 1;
	bad |= measure("async pairs", "pairs", "", n, rounds);
	bad |= measure("map and unmap", "cycles", "", n, rounds);
	if (!getenv("BENCH_QUICK"))
		bad |= measure("async pairs, C stacks of 20", "pairs", "--call-stack=c:20", n,
			       rounds);
	snprintf(cmd, sizeof(cmd), "rm -rf '%s'", dir);
	if (system(cmd) != 0)
		fprintf(stderr, "cuda_hook_cost: cannot remove %s\n", dir);
	return bad;
}
