/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * 64 processes looked at 1000 times a second: how far apart the first and the last copy of a round
 * are, and what the sampler itself costs. Beside it the same processes one after the other, each
 * resolved before the next is copied. Fails if the median is not below 1 ms.
 */
#include "sampler/rounds/targets.h"

#include "stack_child.h"

#define PROCESSES 64
#define HZ 1000

struct skew {
	double median_us, p99_us, cpu, late; /* of one core; rounds that began too late */
	unsigned rounds;
};

static double *values;

/* From the first copy to the beginning of the last, when every process is resolved at once. */
static uint64_t one_after_the_other(struct targets *s)
{
	uint64_t first = 0, last = 0;

	for (unsigned i = 0; i < s->n; i++) {
		struct python_process *p = s->list[i]->python;
		if (!p || python_capture(p, NULL) < 0 || python_resolve(p, NULL) < 0)
			continue;
		first = first ? first : p->time_ns;
		last = p->time_ns;
	}
	return last - first;
}

static struct skew measure(struct targets *s, unsigned rounds, bool together)
{
	struct skew k = {.rounds = rounds};
	uint64_t next = stack_now_ns(CLOCK_MONOTONIC), skew;
	double cpu = stack_cpu_s(), start = stack_now_s();

	for (unsigned i = 0; i < rounds; i++) {
		next += 1000000000u / HZ;
		if (stack_now_ns(CLOCK_MONOTONIC) > next) {
			k.late++;
			next = stack_now_ns(CLOCK_MONOTONIC);
		} else {
			stack_sleep_until(next);
		}
		if (!together)
			skew = one_after_the_other(s);
		else if (targets_round(s, &skew) != PROCESSES)
			stack_die("a process is missing");
		values[i] = (double)skew / 1000;
	}
	k.cpu = (stack_cpu_s() - cpu) / (stack_now_s() - start);
	k.median_us = stack_quantile(values, rounds, 0.5);
	k.p99_us = stack_quantile(values, rounds, 0.99);
	return k;
}

static void print(const char *name, struct skew k, double seconds)
{
	printf("stack_skew: %-22s median %6.0f us, p99 %6.0f us; %u rounds in %.1f s, %.0f began "
	       "late; sampler %.0f %% of a core\n",
	       name, k.median_us, k.p99_us, k.rounds, seconds, k.late, 100 * k.cpu);
}

static struct skew measure_and_print(struct targets *s, unsigned rounds, bool together)
{
	double start = stack_now_s();
	struct skew k = measure(s, rounds, together);

	print(together ? "all copied, then names" : "one after the other", k,
	      stack_now_s() - start);
	return k;
}

/* All of them with so many threads each; gives the median of ours. */
static double measure_all(const struct stack_python *python, const char *threads, unsigned rounds)
{
	static struct stack_child children[PROCESSES];
	static pid_t pids[PROCESSES];
	const char *words[] = {threads, "32", "parked", NULL};
	struct discover_rules rules = {.pids = pids, .npids = PROCESSES};
	struct targets_options o = {.rules = &rules, .python = {.names = true}};
	struct err err = {0};

	for (int i = 0; i < PROCESSES; i++)
		stack_child_start(&children[i], python, "many.py", words);
	for (int i = 0; i < PROCESSES; i++) {
		stack_child_ready(&children[i]);
		pids[i] = children[i].pid;
	}
	struct targets *s = targets_new(&o);
	if (targets_refresh(s, true, &err) < 0 || targets_open(s) != PROCESSES)
		stack_die(err.text);
	printf("stack_skew: %d processes of Python 3.%d, %s thread(s) of depth 32 each, %d Hz\n",
	       PROCESSES, python->minor, threads, HZ);
	measure(s, 50, true); /* names are known afterwards */
	struct skew apart = measure_and_print(s, rounds, false);
	struct skew ours = measure_and_print(s, rounds, true);
	printf("stack_skew: ratio one after the other / ours %.1f\n",
	       apart.median_us / ours.median_us);
	fflush(stdout);
	targets_free(s);
	for (int i = 0; i < PROCESSES; i++)
		stack_child_end(&children[i]);
	return ours.median_us;
}

int main(void)
{
	struct stack_python python = stack_python_newest();
	unsigned rounds = stack_quick() ? 200 : 5000;

	values = calloc(rounds, sizeof(*values));
	if (!values)
		stack_die("no memory");
	double one = measure_all(&python, "1", rounds);
	if (!stack_quick())
		measure_all(&python, "4", rounds);
	free(values);
	printf("stack_skew: median with one thread each %.3f ms (must be below 1)\n", one / 1000);
	return one >= 1000 && !stack_quick();
}
