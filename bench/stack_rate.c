/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * How many stacks of threads one core takes per second, names and lines included, at depth 32: with
 * 1 and 8 threads, at rest and running, in every Python of this machine. Beside it a walker that
 * reads one field per system call, without names and lines, in the same run.
 *
 * "per core" counts the seconds of the processor that the sampler used: on a machine with nothing
 * else to do it is what a clock on the wall shows. Fails below 100,000 (3.11 and later) and 50,000
 * (before).
 */
#include <inttypes.h>
#include <sys/uio.h>

#include "unwind/remote/python.h"

#include "stack_child.h"

#define DEPTH 32

struct rate {
	double per_core_s, per_wall_s; /* stacks of threads */
	double calls; /* system calls per stack */
	double depth;
	uint64_t samples, retries, torn;
};

/* --- ours --- */

static unsigned frames_of(const struct python_process *p)
{
	unsigned n = 0;

	for (unsigned i = 0; i < p->nthreads; i++)
		n += p->threads[i].nframes;
	return n;
}

static void look(struct python_process *p)
{
	struct err err = {0};

	if (python_capture(p, &err) < 0 || python_resolve(p, &err) < 0) {
		fprintf(stderr, "stack_rate: %s\n", err.text);
		exit(1);
	}
}

static struct rate measure_ours(struct python_process *p, double seconds)
{
	struct rate r = {0};
	uint64_t frames = 0, threads = 0;

	for (int i = 0; i < 50; i++) /* names are known afterwards */
		look(p);
	struct python_counts before = p->counts;
	double start = stack_now_s(), cpu = stack_cpu_s();
	while (stack_now_s() < start + seconds) {
		for (int i = 0; i < 20; i++)
			look(p);
		frames += frames_of(p);
		threads += p->nthreads;
	}
	cpu = stack_cpu_s() - cpu;
	r.samples = p->counts.samples - before.samples;
	r.retries = p->counts.retries - before.retries;
	r.torn = p->counts.torn - before.torn;
	r.per_core_s = (double)r.samples / cpu;
	r.per_wall_s = (double)r.samples / (stack_now_s() - start);
	r.calls = (double)(p->counts.calls - before.calls) / (double)(r.samples ? r.samples : 1);
	r.depth = threads ? (double)frames / (double)threads : 0;
	return r;
}

/* --- the naive one --- */

static uint64_t naive_calls;

static uint64_t naive_word(pid_t pid, uint64_t addr)
{
	uint64_t word = 0;
	struct iovec to = {&word, sizeof(word)}, from = {(void *)(uintptr_t)addr, sizeof(word)};

	naive_calls++;
	if (process_vm_readv(pid, &to, 1, &from, 1, 0) != sizeof(word))
		return 0;
	return word;
}

static uint64_t naive_top(pid_t pid, const struct python_layout *l, uint64_t tstate)
{
	if (l->tstate.cframe == PYTHON_NONE)
		return naive_word(pid, tstate + l->tstate.frame);
	return naive_word(pid, naive_word(pid, tstate + l->tstate.cframe) + l->cframe_current);
}

/* What a frame needs before any text is read. */
static uint64_t naive_frame(pid_t pid, const struct python_layout *l, uint64_t frame)
{
	uint64_t code = naive_word(pid, frame + l->frame.code) & ~(uint64_t)l->tagged;

	naive_word(pid, frame + l->frame.lasti);
	if (l->frame.owner != PYTHON_NONE)
		naive_word(pid, frame + l->frame.owner);
	naive_word(pid, code + l->code.filename);
	naive_word(pid, code + l->code.name);
	naive_word(pid, code + l->code.firstlineno);
	naive_word(pid, code + l->code.linetable);
	return naive_word(pid, frame + l->frame.back);
}

static unsigned naive_round(pid_t pid, const struct python_place *place)
{
	const struct python_layout *l = &place->layout;
	uint64_t interp = naive_word(pid, place->runtime + l->runtime.interpreters_head);
	unsigned threads = 0;

	for (uint64_t t = naive_word(pid, interp + l->interp.threads_head); t && threads < 1000;
	     t = naive_word(pid, t + l->tstate.next), threads++) {
		unsigned depth = 0;

		naive_word(pid, t + l->tstate.thread_id);
		for (uint64_t f = naive_top(pid, l, t); f && depth < 200; depth++)
			f = naive_frame(pid, l, f);
	}
	return threads;
}

static struct rate measure_naive(const struct python_process *p, double seconds)
{
	struct rate r = {0};
	double start = stack_now_s(), cpu = stack_cpu_s();

	naive_calls = 0;
	while (stack_now_s() < start + seconds)
		r.samples += naive_round(p->pid, &p->place);
	r.per_core_s = (double)r.samples / (stack_cpu_s() - cpu);
	r.calls = (double)naive_calls / (double)(r.samples ? r.samples : 1);
	return r;
}

/* --- the whole --- */

/* One line; gives how the rate compares with the budget. */
static double measure(const struct stack_python *python, const char *threads, const char *how)
{
	const char *words[] = {threads, "32", how, NULL};
	struct python_options o = {.names = true};
	struct python_process *p;
	struct stack_child child;
	struct err err = {0};
	double budget = python->minor >= 11 ? 100000 : 50000, s = stack_quick() ? 0.15 : 1.5;

	stack_child_start(&child, python, "many.py", words);
	stack_child_ready(&child);
	if (python_process_open(child.pid, &o, &p, &err) < 0) {
		fprintf(stderr, "stack_rate: %s: %s\n", python->path, err.text);
		exit(1);
	}
	struct rate ours = measure_ours(p, s), naive = measure_naive(p, s / 3);
	python_process_close(p);
	stack_child_end(&child);
	printf("stack_rate: 3.%d.%-2d %s thread%s %-7s %8.0f per core (%7.0f per second), depth "
	       "%4.1f, %.2f calls each, %" PRIu64 " retried, %" PRIu64 " missed; naive %6.0f, "
	       "%.0f calls: %.1f x%s\n",
	       python->minor, python->micro, threads, *threads == '1' ? " " : "s", how,
	       ours.per_core_s, ours.per_wall_s, ours.depth, ours.calls, ours.retries, ours.torn,
	       naive.per_core_s, naive.calls, ours.per_core_s / naive.per_core_s,
	       ours.per_core_s < budget ? " UNDER ITS BUDGET" : "");
	fflush(stdout);
	return ours.per_core_s / budget;
}

int main(void)
{
	static const char *const counts[] = {"1", "8"}, *const hows[] = {"parked", "running"};
	struct stack_python pythons[STACK_PYTHONS];
	unsigned n = stack_pythons(pythons);
	double worst = 1e9;

	for (unsigned i = 0; i < n; i++)
		for (int c = 0; c < 2; c++)
			for (int h = 0; h < 2; h++) {
				double ratio = measure(&pythons[i], counts[c], hows[h]);
				worst = ratio < worst ? ratio : worst;
			}
	if (n)
		printf("stack_rate: the slowest is at %.2f of its budget (must be at least 1)\n",
		       worst);
	/* A short run on a busy machine says little. */
	return worst < 1 && !stack_quick();
}
