/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What the Python stack of an allocation event costs: the same job recorded with ten frames of
 * Python and without any, for every interpreter here. And against two ways that one would write
 * first, in the same run: the interpreter's own functions, and traceback.extract_stack(), both with
 * the GIL.
 */
#include <sys/stat.h>

#include "scratch.h"
#include "stack_child.h"

#define BUDGET_NS 2000 /* with ten frames, on top of the same event without */
#define WANT_RATIO 2 /* the cheaper one of the others must cost so many times as much */
#define ROUNDS 6

static struct scratch scratch;

/* Runs the job behind these words and returns the number that it prints; negative on failure. */
static double run(const struct stack_python *p, const char *before, const char *how, int events)
{
	char cmd[4096], line[256];
	double ns = -1;

	snprintf(cmd, sizeof(cmd),
		 "%s '%s' -B " STACK_SCRIPTS "/ten_frames.py %s/bench/libpython_pairs.so %s %d %d",
		 before, p->path, scratch.build, how, events, ROUNDS);
	FILE *f = popen(cmd, "r");
	if (!f)
		return -1;
	while (fgets(line, sizeof(line), f))
		sscanf(line, "ns_per_event %lf", &ns);
	return pclose(f) == 0 ? ns : -1;
}

static double recorded(const struct stack_python *p, const char *options)
{
	char before[1024];

	snprintf(before, sizeof(before),
		 "SIM_NPU_STATE=%s/npu %s/bin/msmemscope --output=%s/out --device=cpu %s --",
		 scratch.dir, scratch.build, scratch.dir, options);
	return run(p, before, "plain", stack_quick() ? 10240 : 40960);
}

/* 0: within the budget, 1: above, -1: it could not be measured. */
static int measure(const struct stack_python *p)
{
	double plain = run(p, "", "plain", 40960), walk = run(p, "", "walk", 10240) - plain,
	       call = run(p, "", "call", 2048) - plain;
	double without = recorded(p, ""), with = recorded(p, "--call-stack=python:10");

	if (plain < 0 || walk < 0 || call < 0 || without < 0 || with < 0) {
		printf("python_stack: 3.%d.%d: could not be measured\n", p->minor, p->micro);
		return -1;
	}
	double added = with - without > 1 ? with - without : 1;
	printf("python_stack: 3.%-2d event %6.1f ns, its 10 frames %7.1f ns (budget %d%s); "
	       "naive in C %7.0f ns, x %.1f; traceback %7.0f ns, x %.1f\n",
	       p->minor, without - plain, with - without, BUDGET_NS,
	       added > BUDGET_NS ? ", OVER" : "", walk, walk / added, call, call / added);
	return added > BUDGET_NS || walk / added < WANT_RATIO;
}

int main(void)
{
	struct stack_python pythons[STACK_PYTHONS];
	unsigned n = stack_pythons(pythons), bad = 0;

	if (!scratch_open(&scratch))
		return 1;
	/* A short run looks at the oldest, the newest and some between. */
	for (unsigned i = 0; i < n; i++)
		if (!stack_quick() || i % 5 == 0 || i + 1 == n)
			bad += measure(&pythons[i]) != 0;
	scratch_remove(&scratch);
	return bad != 0;
}
