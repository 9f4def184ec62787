/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Copies that are proved to be of one moment. We go to the processor that the thread is on: while
 * we run there, it does not. The kernel counts how often it is given a processor; if that has not
 * changed when the copy is made, it did not run anywhere else either. It is not stopped, it only
 * has to share, some microseconds long. (That it sleeps would be no proof: a thread says so before
 * it does, and may think better of it.)
 *
 *	us                                        the thread
 *	n = runs so far (schedstat, 3rd number)   runs on processor 5
 *	processor 5 (stat, field 39)
 *	sched_setaffinity(5)                      we are on 5 now: it waits
 *	n = runs so far; still on 5?              it may have gone elsewhere meanwhile
 *	copy
 *	n the same?                               then it has not run since: one moment
 *
 * Only threads that changed since the last round need it (needs_proof()): one that stands where it
 * stood is known, and one without the GIL cannot run Python. With a real-time priority, where we
 * may have one, we do not wait for our own processor time while the thread waits for us.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/sched_latency.h"
#include "unwind/remote/process_state.h"

#define TRIES 6

/*
 * How often the thread was given a processor; 0 if the kernel does not say.
 *
 * The third number of schedstat. The file stays open: reading it again is one system call.
 */
static uint64_t times_run(struct python_process *p, struct thread_slot *s)
{
	char text[96], path[64];
	unsigned long long ran, waited, times;

	if (s->sched_fd < 0) {
		snprintf(path, sizeof(path), "/proc/%d/task/%d/schedstat", (int)p->pid,
			 (int)s->out.tid);
		s->sched_fd = open(path, O_RDONLY | O_CLOEXEC);
	}
	ssize_t n = s->sched_fd < 0 ? -1 : pread(s->sched_fd, text, sizeof(text) - 1, 0);
	if (n <= 0)
		return 0;
	text[n] = '\0';
	return sscanf(text, "%llu %llu %llu", &ran, &waited, &times) == 3 ? times : 0;
}

/* The processor that it runs on, or ran on last; -1 if that is unknown. */
static int processor_of(struct python_process *p, struct thread_slot *s)
{
	char text[1024];

	if (!tids_stat(p, s, text, sizeof(text)))
		return -1;
	/* Field 39; the name in brackets, field 2, may hold anything. */
	char *at = strrchr(text, ')');
	for (unsigned field = 2; at && field < 39; field++)
		at = strchr(at + 1, ' ');
	return at ? atoi(at) : -1;
}

static bool go_to(int processor)
{
	cpu_set_t only;

	if (processor < 0 || processor >= CPU_SETSIZE)
		return false;
	CPU_ZERO(&only);
	CPU_SET(processor, &only);
	return sched_setaffinity(0, sizeof(only), &only) == 0;
}

/* On a processor with much to do we would wait for our turn, and the others with us. Who may, goes
 * first for these microseconds. */
static bool go_first(struct sched_latency *before)
{
	const struct sched_param first = {.sched_priority = 1};

	return sched_latency_save(before) &&
	       sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &first) == 0;
}

static bool same_stack(const struct walk_stack *a, const struct walk_stack *b)
{
	if (a->n != b->n)
		return false;
	for (unsigned i = 0; i < a->n; i++)
		if (!python_frame_same(&a->frames[i], &b->frames[i]))
			return false;
	return true;
}

/* A thread that stands where it stood needs no proof; one without the GIL cannot move. */
static bool needs_proof(const struct thread_slot *s)
{
	if (s->missed || s->walk.now.cut)
		return true;
	return s->fresh && !s->walk.calm && !same_stack(&s->walk.now, &s->walk.before);
}

/* One more copy, in the place of the last one. */
static void copy_again(struct python_process *p, struct thread_slot *s)
{
	/* The next copy is compared with what was resolved last. */
	if (s->fresh)
		walk_undo(&s->walk);
	s->out.time_ns = clock_mono_ns();
	int ret = walk_thread(&p->inside->walker, &s->walk, NULL, 0);
	s->fresh = ret == 0;
	s->missed = ret != 0;
}

/*
 * The thread is missed in this round; what was resolved last stays.
 *
 * A copy that could not be proved is not shown at all: what is shown was there.
 */
static void drop_copy(struct thread_slot *s)
{
	if (s->fresh)
		walk_undo(&s->walk);
	s->fresh = false;
	s->missed = true;
}

/*
 * Returns whether we have left our place. Where we may not go to the thread's processor, or the
 * kernel does not count, the copy is as good as it is.
 *
 * A thread that sleeps does not move either, but need not stay asleep: so the same proof for all.
 * TRIES, since a busy thread may be given another processor while we go to its last one.
 */
static bool prove_thread(struct python_process *p, struct thread_slot *s)
{
	bool left = false;

	for (unsigned i = 0; i < TRIES; i++) {
		uint64_t times = times_run(p, s);
		int processor = processor_of(p, s);

		if (processor != sched_getcpu()) {
			if (!times || !go_to(processor)) {
				p->inside->unproved++;
				return left;
			}
			left = true;
			/* It may have gone elsewhere meanwhile. */
			times = times_run(p, s);
			if (processor_of(p, s) != sched_getcpu())
				continue;
		}
		copy_again(p, s);
		if (s->fresh && times == times_run(p, s))
			return left;
	}
	drop_copy(s);
	p->inside->walker.torn++;
	return left;
}

static bool prove_all(struct python_process *p, bool *first, struct sched_latency *before)
{
	struct python_inside *in = p->inside;
	bool left = false;

	for (unsigned i = 0; i < in->nslots; i++) {
		struct thread_slot *s = in->slots[i];

		if (s->seen != in->round || !needs_proof(s))
			continue;
		if (!s->out.tid)
			tids_find(p, s);
		if (!*first)
			*first = go_first(before);
		if (s->out.tid)
			left |= prove_thread(p, s);
		else
			in->unproved++;
	}
	return left;
}

void threads_prove(struct python_process *p)
{
	struct sched_latency before;
	bool first = false;
	cpu_set_t home;

	if (sched_getaffinity(0, sizeof(home), &home) < 0)
		return;
	if (prove_all(p, &first, &before))
		sched_setaffinity(0, sizeof(home), &home);
	if (first)
		sched_latency_restore(&before);
}
