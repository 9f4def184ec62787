/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What a program with 160 threads at full speed loses while it is sampled 1000 times a second.
 * Short pieces with and without the sampler alternate; each pair gives one ratio.
 *
 *	apart    sampler and program have processors of their own: what looking does to the program
 *	shared   they share all processors: the sampler's own time counts, too
 *	burner   shared, but instead of the sampler a loop that takes as much time and looks at
 *		 nothing: what the time alone costs
 *
 * Fails if the loss is 1 % or more with processors of their own, or if the program was ever traced
 * or stopped.
 */
#include <sched.h>
#include <sys/mman.h>

#include "unwind/remote/python.h"

#include "stack_child.h"

#define THREADS 160
#define HZ 1000

enum look { LOOK_NOT, LOOK, LOOK_BURN };

struct scene {
	struct stack_child child;
	struct python_process *python;
	volatile uint64_t *done; /* one number per thread */
	char path[64];
	double piece_s;
	double busy; /* part of a processor that the sampler takes */
	uint64_t rounds;
	bool seen_traced;
};

struct loss {
	double percent, spread; /* median of the pairs, and half of what the middle half covers */
	double cpu, hz; /* of the sampler: part of a processor, rounds per second */
};

/* --- the program --- */

/* It counts in memory that we share: asking costs it nothing. */
static void share(struct scene *s)
{
	int fd = open(s->path, O_RDONLY | O_CLOEXEC);

	s->done = mmap(NULL, THREADS * sizeof(uint64_t), PROT_READ, MAP_SHARED, fd, 0);
	if (s->done == MAP_FAILED)
		stack_die(s->path);
	close(fd);
}

static double work_done(struct scene *s)
{
	uint64_t sum = 0;

	for (int i = 0; i < THREADS; i++)
		sum += s->done[i];
	return (double)sum;
}

/* Every thread has begun. */
static void wait_all_at_work(struct scene *s)
{
	for (int i = 0; i < THREADS; i++)
		while (!s->done[i])
			stack_sleep_s(0.01);
}

/* TracerPid, and 't' or 'T' of its state. */
static bool traced(pid_t pid)
{
	char path[64], line[256];
	int tracer = 0;
	char state = 'S';

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	FILE *f = fopen(path, "r");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "State: %c", &state) != 1)
			sscanf(line, "TracerPid: %d", &tracer);
	if (f)
		fclose(f);
	return tracer != 0 || state == 't' || state == 'T';
}

/* --- what is done meanwhile --- */

static void burn(double seconds)
{
	double end = stack_cpu_s() + seconds;

	while (stack_cpu_s() < end)
		;
}

static void look(struct scene *s)
{
	if (python_capture(s->python, NULL) < 0 || python_resolve(s->python, NULL) < 0)
		stack_die("the program has ended");
}

/* One piece; gives work per second. */
static double piece(struct scene *s, enum look how)
{
	uint64_t next = stack_now_ns(CLOCK_MONOTONIC);
	double before = work_done(s), start = stack_now_s();

	if (how == LOOK_NOT)
		stack_sleep_s(s->piece_s);
	while (how != LOOK_NOT && stack_now_s() < start + s->piece_s) {
		uint64_t now = stack_now_ns(CLOCK_MONOTONIC);

		next = next + 1000000000u / HZ > now ? next + 1000000000u / HZ : now;
		stack_sleep_until(next);
		if (how == LOOK)
			look(s);
		else
			burn(s->busy / HZ);
		if (++s->rounds % 100 == 0)
			s->seen_traced |= traced(s->child.pid);
	}
	double took = stack_now_s() - start;
	return (work_done(s) - before) / took;
}

static struct loss measure(struct scene *s, unsigned pairs, enum look how)
{
	struct loss loss = {0};
	uint64_t rounds = s->rounds;
	double *losses = calloc(pairs, sizeof(*losses)), cpu = 0, wall = 0;

	for (unsigned i = 0; losses && i < pairs; i++) {
		/* Which of the two is first changes: a slow drift cancels. */
		double without = i % 2 ? 0 : piece(s, LOOK_NOT);
		double c = stack_cpu_s(), w = stack_now_s(), with = piece(s, how);

		cpu += stack_cpu_s() - c;
		wall += stack_now_s() - w;
		without = i % 2 ? piece(s, LOOK_NOT) : without;
		losses[i] = 100 * (1 - with / without);
	}
	loss.percent = stack_quantile(losses, pairs, 0.5);
	loss.spread =
		(stack_quantile(losses, pairs, 0.75) - stack_quantile(losses, pairs, 0.25)) / 2;
	loss.cpu = cpu / wall;
	loss.hz = (double)(s->rounds - rounds) / wall;
	free(losses);
	return loss;
}

/* --- the whole --- */

static void pin(pid_t pid, int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	for (int i = 0; i < CPU_SETSIZE; i++)
		if (cpu < 0 || i == cpu)
			CPU_SET(i, &set);
	sched_setaffinity(pid, sizeof(set), &set);
}

static void start(struct scene *s, const struct stack_python *python, int cpu)
{
	char threads[8];
	const char *words[] = {s->path, threads, NULL};
	struct python_options o = {.names = true}; /* as `sonde stack --all-threads` at this rate */
	struct err err = {0};

	snprintf(threads, sizeof(threads), "%d", THREADS);
	pin(0, cpu); /* the child has what we have when it begins */
	stack_child_start(&s->child, python, "work.py", words);
	stack_child_ready(&s->child);
	share(s);
	wait_all_at_work(s);
	if (python_process_open(s->child.pid, &o, &s->python, &err) < 0)
		stack_die(err.text);
	for (int i = 0; i < 20; i++)
		look(s);
}

static void end(struct scene *s)
{
	python_process_close(s->python);
	stack_child_end(&s->child);
	munmap((void *)(uintptr_t)s->done, THREADS * sizeof(uint64_t));
}

static void print(const char *name, struct loss l, unsigned pairs)
{
	printf("stack_slowdown: %-7s the program loses %6.2f %% +- %.2f (%u pairs); the sampler "
	       "takes %.0f %% of a core for %.0f rounds per second\n",
	       name, l.percent, l.spread, pairs, 100 * l.cpu, l.hz);
	fflush(stdout);
}

int main(void)
{
	struct stack_python python = stack_python_newest();
	struct scene s = {.piece_s = stack_quick() ? 0.1 : 0.5};
	unsigned pairs = stack_quick() ? 3 : 20;
	struct loss apart = {0};

	snprintf(s.path, sizeof(s.path), "/tmp/stack_slowdown_XXXXXX");
	int fd = mkstemp(s.path);
	if (fd < 0)
		stack_die(s.path);
	close(fd);
	printf("stack_slowdown: Python 3.%d, %d threads, %d Hz, %ld processors\n", python.minor,
	       THREADS, HZ, sysconf(_SC_NPROCESSORS_ONLN));
	fflush(stdout);
	if (sysconf(_SC_NPROCESSORS_ONLN) > 1) {
		start(&s, &python, 0);
		pin(0, 1);
		apart = measure(&s, pairs, LOOK);
		print("apart", apart, pairs);
		end(&s);
	}
	start(&s, &python, -1);
	struct loss shared = measure(&s, pairs, LOOK);
	print("shared", shared, pairs);
	s.busy = shared.cpu;
	print("burner", measure(&s, pairs, LOOK_BURN), pairs);
	end(&s);
	unlink(s.path);
	printf("stack_slowdown: never traced or stopped: %s; loss with processors of their own "
	       "%.2f %% (must be below 1)\n",
	       s.seen_traced ? "NO" : "true", apart.percent);
	return s.seen_traced || (apart.percent >= 1 && !stack_quick());
}
