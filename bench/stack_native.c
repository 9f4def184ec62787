/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * How long a thread stands still for its native stack, as the thread itself sees it: it reads the
 * clock all the time and remembers the longest gap. Against the time that unwinding takes, which is
 * done afterwards, and against a debugger that prints the same stack.
 */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "unwind/remote/native/native.h"

#define DEPTH 24
#define LEAST_GAIN 20 /* how many times shorter than the debugger's stop ours must be */

struct shared {
	volatile uint64_t gap_ns; /* the longest since it was set to 0 */
	volatile uint64_t looks;
};

static struct shared *shared;

static void die(const char *what)
{
	fprintf(stderr, "stack_native: %s\n", what);
	exit(1);
}

static void look_at_the_clock(void)
{
	static uint64_t before;
	uint64_t now = clock_mono_ns();

	if (before && now - before > shared->gap_ns)
		shared->gap_ns = now - before;
	before = now;
	shared->looks++;
}

static __attribute__((noinline)) void go_down(volatile unsigned depth)
{
	if (depth)
		go_down(depth - 1);
	while (!depth)
		look_at_the_clock();
	__asm__ volatile("");
}

static pid_t start_child(void)
{
	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		die("no memory");
	pid_t pid = fork();
	if (pid < 0)
		die("cannot fork");
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		go_down(DEPTH);
	}
	while (!shared->looks)
		usleep(1000);
	return pid;
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static double share_us(uint64_t *t, unsigned n, double share)
{
	qsort(t, n, sizeof(t[0]), by_value);
	return (double)t[(unsigned)(share * (n - 1))] / 1e3;
}

/* A busy machine makes gaps longer, never shorter: the shortest say what the stop itself costs. */
static void print_gaps(const char *what, uint64_t *t, unsigned n)
{
	printf("%-28s %8.1f us at 10 %%  %8.1f us median  %8.1f us at 99 %%\n", what,
	       share_us(t, n, 0.1), share_us(t, n, 0.5), share_us(t, n, 0.99));
}

/* The longest gap while nothing is done: what the machine itself does to the thread. */
static void measure_quiet(uint64_t *out, unsigned rounds)
{
	for (unsigned i = 0; i < rounds; i++) {
		shared->gap_ns = 0;
		usleep(100);
		out[i] = shared->gap_ns;
	}
}

struct times {
	uint64_t *stop, *held, *unwind;
	unsigned depth;
};

static void measure_ours(struct native_process *p, pid_t pid, unsigned rounds, struct times *t)
{
	struct native_stack s;
	struct err err = {0};

	for (unsigned i = 0; i < rounds; i++) {
		uint64_t held = native_counts(p)->stopped_ns;
		shared->gap_ns = 0;
		if (native_capture_thread(p, pid, NULL, NULL, &err) < 0)
			die(err.text);
		uint64_t looks = shared->looks;
		while (shared->looks == looks) /* until it goes on */
			;
		t->stop[i] = shared->gap_ns;
		t->held[i] = native_counts(p)->stopped_ns - held;
		uint64_t start = clock_mono_ns();
		if (native_unwind(p, pid, NULL, &s, &err) < 0)
			die(err.text);
		t->unwind[i] = clock_mono_ns() - start;
		t->depth = s.n;
		native_stack_release(&s);
		usleep(1000);
	}
}

/* The standstill while a debugger prints the stack, in microseconds; negative if there is none. */
static double measure_debugger(pid_t pid, double *out_wall_us)
{
	char command[128];

	if (system("command -v gdb >/dev/null 2>&1"))
		return -1;
	snprintf(command, sizeof(command), "gdb -nx -p %d -batch -ex bt >/dev/null 2>&1", (int)pid);
	shared->gap_ns = 0;
	uint64_t start = clock_mono_ns();
	if (system(command))
		return -1;
	*out_wall_us = (double)(clock_mono_ns() - start) / 1e3;
	usleep(1000);
	return (double)shared->gap_ns / 1e3;
}

int main(void)
{
	bool quick = getenv("BENCH_QUICK");
	unsigned rounds = quick ? 50 : 1000;
	struct times t = {0};
	struct native_process *p;
	struct err err = {0};
	double wall_us = 0;

	uint64_t *quiet = calloc(rounds, sizeof(quiet[0]));
	t.stop = calloc(rounds, sizeof(t.stop[0]));
	t.held = calloc(rounds, sizeof(t.held[0]));
	t.unwind = calloc(rounds, sizeof(t.unwind[0]));
	if (!quiet || !t.stop || !t.held || !t.unwind)
		die("no memory");
	pid_t pid = start_child();
	if (native_process_open(pid, &p, &err) < 0)
		die(err.text);
	measure_quiet(quiet, rounds);
	measure_ours(p, pid, 1, &t);
	double first = (double)t.unwind[0] / 1e3;
	measure_ours(p, pid, rounds, &t);
	double stop = share_us(t.stop, rounds, 0.5), unwind = share_us(t.unwind, rounds, 0.5);
	double held = share_us(t.held, rounds, 0.5);
	print_gaps("left alone: longest gap", quiet, rounds);
	print_gaps("native stack: stands still", t.stop, rounds);
	print_gaps("  of which held by us", t.held, rounds);
	printf("depth %u unwound afterwards in %.1f us median, %.1f us the first time  ratio %.2f "
	       "of "
	       "holding it\n",
	       t.depth, unwind, first, unwind / held);
	double debugger = measure_debugger(pid, &wall_us);
	if (debugger > 0)
		printf("gdb -batch -ex bt: stands still %.0f us (%.0f us in all)  ratio %.0f\n",
		       debugger, wall_us, debugger / stop);
	else
		printf("gdb is not here: no baseline\n");
	native_process_close(p);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	free(quiet);
	free(t.stop);
	free(t.held);
	free(t.unwind);
	return debugger > 0 && debugger / stop < LEAST_GAIN && !quick;
}
