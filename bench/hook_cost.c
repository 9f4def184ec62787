/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What a recorded event costs the job, on the simulated driver: the difference between a recorded
 * and a plain run of job_hal, for the cases that users ask about, and against a naive hook in the
 * same run. Fails only on ratios; the absolute budgets are printed beside what was measured.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *build;
static char dir[256];

/* Runs a command line and returns the number behind ns_per_event; negative on failure. */
static double run(const char *before, const char *args)
{
	char cmd[4096], line[256];
	double ns = -1;

	snprintf(cmd, sizeof(cmd), "%s %s/bench/job_hal %s", before, build, args);
	FILE *p = popen(cmd, "r");
	if (!p)
		return -1;
	while (fgets(line, sizeof(line), p))
		sscanf(line, "ns_per_event %lf", &ns);
	if (pclose(p) != 0)
		ns = -1;
	return ns;
}

struct scene {
	const char *name;
	const char *options; /* of msmemscope */
	const char *args; /* of job_hal */
	double budget_ns;
};

static const struct scene scenes[] = {
	{"1 thread, csv", "", "50000 1 0 64 0 10", 120},
	{"1 thread, db", "--data-format=db", "50000 1 0 64 0 10", 120},
	{"4 threads", "", "50000 4 0 64 0 10", 240},
	{"10^6 blocks alive", "", "50000 1 1000000 64 0 10", 120},
	{"10^5 addresses in turn", "", "400000 1 0 100000 0 5", 120},
	{"C stacks of depth 20", "--call-stack=c:20", "20000 1 0 64 20 10", 1500},
	{"deferred, not recording", "--collect-mode=deferred", "50000 1 0 64 0 10", 15},
};

static double recorded(const struct scene *s)
{
	char before[1024];

	snprintf(before, sizeof(before),
		 "SIM_NPU_STATE=%s/npu SIM_NPU_NOBACK=1 %s/bin/msmemscope --output=%s/out %s --",
		 dir, build, dir, s->options);
	return run(before, s->args);
}

static double plain(const struct scene *s)
{
	char before[1024];

	snprintf(before, sizeof(before), "SIM_NPU_STATE=%s/npu SIM_NPU_NOBACK=1", dir);
	return run(before, s->args);
}

static double naive(void)
{
	char before[1024];

	snprintf(before, sizeof(before),
		 "SIM_NPU_STATE=%s/npu SIM_NPU_NOBACK=1 NAIVE_OUTPUT=%s/naive.csv "
		 "LD_PRELOAD=%s/bench/libnaive_hook.so",
		 dir, dir, build);
	return run(before, scenes[0].args);
}

static int measure(void)
{
	double base = plain(&scenes[0]), first = 0, slow = naive() - base;

	if (base < 0 || slow < 0)
		return 1;
	printf("hook_cost: plain driver call %.1f ns; naive hook adds %.0f ns\n", base, slow);
	for (size_t i = 0; i < sizeof(scenes) / sizeof(scenes[0]); i++) {
		const struct scene *s = &scenes[i];
		double without = plain(s), with = recorded(s), added = with - without;
		if (without < 0 || with < 0)
			return 1;
		if (i == 0)
			first = added;
		printf("hook_cost: %-26s adds %7.1f ns per event (budget %.0f%s), %.1f x cheaper "
		       "than "
		       "naive\n",
		       s->name, added, s->budget_ns, added > s->budget_ns ? ", OVER" : "",
		       slow / (added > 1 ? added : 1));
	}
	printf("hook_cost: ratio naive / ours %.1f (must be at least 5)\n", slow / first);
	return slow / first < 5;
}

int main(void)
{
	char cmd[512];

	build = getenv("SONDE_BUILD");
	if (!build)
		build = "build";
	snprintf(dir, sizeof(dir), "%s/sonde-bench-XXXXXX",
		 getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	if (!mkdtemp(dir))
		return 1;
	int bad = measure();
	snprintf(cmd, sizeof(cmd), "rm -rf '%s'", dir);
	if (system(cmd) != 0)
		fprintf(stderr, "hook_cost: cannot remove %s\n", dir);
	return bad;
}
