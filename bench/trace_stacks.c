/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What --with-stack of nputrace costs the recorder: part of a processor and looks per second, for
 * processes with 1, 16 and 256 threads of 32 frames, all of them running, and for 8 processes at
 * once. Fails if it is more than the tenth that docs/nputrace.md says (and what the clock is off).
 */
#include "activity/trace/python.h"
#include "stack_child.h"

#define MOST 0.115
#define RANKS 8

static double measure(const char *what, struct stack_child *children, unsigned n)
{
	struct trace_python *looking[RANKS];
	double s = stack_quick() ? 0.5 : 3;
	uint64_t looks = 0, stacks = 0;
	const char *why;

	for (unsigned i = 0; i < n; i++)
		looking[i] =
			trace_python_start((uint32_t)children[i].pid, (uint32_t)children[i].pid);
	stack_sleep_s(0.2); /* finding them is done once */
	double begun = stack_now_s(), cpu = stack_cpu_s();
	stack_sleep_s(s);
	cpu = stack_cpu_s() - cpu;
	double took = stack_now_s() - begun;
	for (unsigned i = 0; i < n; i++) {
		const struct seen *seen = trace_python_wait(looking[i], &why);

		if (!seen->first_ns) {
			printf("trace_stacks: nothing to see: %s\n", why);
			exit(1);
		}
		looks += seen->round;
		stacks += seen->samples;
		trace_python_free(looking[i]);
	}
	printf("trace_stacks: %-26s %5.1f %% of a processor, %4.0f looks/s at each, %7.0f "
	       "stacks/s\n",
	       what, 100 * cpu / took, (double)looks / n / (took + 0.2),
	       (double)stacks / (took + 0.2));
	return cpu / took;
}

static double run(const struct stack_python *python, unsigned processes, const char *threads)
{
	const char *words[] = {threads, "32", "running", NULL};
	struct stack_child children[RANKS];
	char what[64];

	for (unsigned i = 0; i < processes; i++) {
		stack_child_start(&children[i], python, "many.py", words);
		stack_child_ready(&children[i]);
	}
	snprintf(what, sizeof(what), "%u process%s, %s thread%s:", processes,
		 processes == 1 ? "" : "es", threads, strcmp(threads, "1") ? "s" : "");
	double part = measure(what, children, processes);
	for (unsigned i = 0; i < processes; i++)
		stack_child_end(&children[i]);
	return part;
}

int main(void)
{
	struct stack_python python = stack_python_newest();
	double worst = 0, part;

	for (unsigned i = 0; i < 4; i++) {
		const char *const threads[] = {"1", "16", "256", "1"};

		part = run(&python, i < 3 ? 1 : RANKS, threads[i]);
		worst = part > worst ? part : worst;
	}
	if (worst > MOST) {
		printf("trace_stacks: more than %.1f %%\n", 100 * MOST);
		return 1;
	}
	return 0;
}
