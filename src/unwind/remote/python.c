/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A process under observation: open, a round (capture, prove, resolve), close. The three steps of a
 * round are separate so that a caller can do each for all processes before the next: the captures
 * of hundreds of ranks then lie within milliseconds, and everything that takes time comes after.
 *
 * What is kept between rounds makes the next one cheap: the plan of each thread's copy, the code
 * objects, the names. What a caller gets (p->threads) is a copy of the slots' results; its frames
 * and texts are shared.
 */
#include "unwind/remote/python.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "unwind/remote/process_state.h"

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

void python_take_turn(void)
{
	pthread_mutex_lock(&turn);
}

void python_give_turn(void)
{
	pthread_mutex_unlock(&turn);
}

int python_process_open(pid_t pid, const struct python_options *o, struct python_process **out,
			struct err *err)
{
	struct python_place place;
	struct remote r;

	remote_init(&r, pid);
	int ret = python_find(&r, &place, err);
	if (ret == 0)
		*out = python_process_at(pid, &place, o);
	return ret;
}

/* Apart from python_process_open() for those who have found the interpreter already: tests, and
 * a sampler that finds processes in another thread. */
struct python_process *python_process_at(pid_t pid, const struct python_place *place,
					 const struct python_options *o)
{
	struct python_process *p = xcalloc(1, sizeof(*p));
	struct python_inside *in = xcalloc(1, sizeof(*in));

	p->pid = pid;
	p->place = *place;
	p->inside = in;
	remote_init(&p->remote, pid);
	in->o = *o;
	in->walker = (struct walker){.remote = &p->remote,
				     .layout = &p->place.layout,
				     .codes = &in->codes,
				     .max_depth = PYTHON_MAX_DEPTH};
	code_cache_init(&in->codes, &p->remote, &p->place);
	runtime_init(&in->runtime, &p->place);
	tids_init(p);
	return p;
}

void python_process_close(struct python_process *p)
{
	if (!p)
		return;
	struct python_inside *in = p->inside;
	for (unsigned i = 0; i < in->nslots; i++)
		thread_slot_free(in->slots[i]);
	hmap_release(&in->by_tstate);
	code_cache_release(&in->codes);
	runtime_release(&in->runtime);
	free(in->slots);
	free(in->scratch);
	free(in->threads);
	free(in->to_check);
	free(in);
	free(p);
}

static int explain_failure(struct python_process *p, int ret, struct err *err)
{
	switch (ret) {
	case 0:
		return 0;
	case -ESRCH:
		return err_set(err, ret, "process %d has ended", (int)p->pid);
	case -EPERM:
		return remote_explain_eperm(p->pid, err);
	case -EAGAIN:
		return err_set(err, ret, "the interpreter of process %d is not there", (int)p->pid);
	default:
		return err_sys(err, ret, "cannot read process %d", (int)p->pid);
	}
}

static void update_counts(struct python_process *p)
{
	p->counts.retries = p->inside->walker.retries;
	p->counts.partial = p->inside->walker.cut;
	p->counts.torn = p->inside->walker.torn;
	p->counts.unproved = p->inside->unproved;
	p->counts.calls = p->remote.calls;
}

int python_capture(struct python_process *p, struct err *err)
{
	p->time_ns = clock_mono_ns();
	int ret = threads_capture(p);
	p->took_ns = clock_mono_ns() - p->time_ns;
	p->counts.rounds++;
	return explain_failure(p, ret, err);
}

/* Called while the thread is stopped: one copy is exact by itself. The slot is found by the
 * system's thread id, which an earlier round has found out. */
int python_capture_thread(struct python_process *p, pid_t tid, struct err *err)
{
	struct python_inside *in = p->inside;

	for (unsigned i = 0; i < in->nslots; i++) {
		struct thread_slot *s = in->slots[i];

		if (s->out.tid != tid)
			continue;
		uint64_t now = clock_mono_ns();
		int ret = walk_thread(&in->walker, &s->walk, NULL, 0);
		s->fresh = ret == 0;
		s->missed = ret != 0;
		s->out.time_ns = now;
		if (ret == -EAGAIN)
			return err_set(err, ret, "the stack of thread %d does not hold still",
				       (int)tid);
		return explain_failure(p, ret, err);
	}
	return err_set(err, -ESRCH, "process %d has no Python thread %d", (int)p->pid, (int)tid);
}

void python_prove(struct python_process *p)
{
	if (p->inside->o.exact)
		threads_prove(p);
}

/* Interpreters list their newest thread first; callers get the oldest first, which is the main
 * thread. */
int python_resolve(struct python_process *p, struct err *err)
{
	struct python_inside *in = p->inside;
	int ret = threads_resolve(p);

	update_counts(p);
	if (ret < 0)
		return explain_failure(p, ret, err);
	in->threads = xgrow(in->threads, &in->threads_cap, in->nslots, sizeof(*in->threads));
	p->nthreads = in->only_main ? 1 : in->nslots;
	for (unsigned i = 0; i < in->nslots && !in->only_main; i++)
		in->threads[i] = in->slots[in->nslots - 1 - i]->out;
	if (in->only_main)
		in->threads[0] = in->main ? in->main->out : in->slots[in->nslots - 1]->out;
	p->threads = in->threads;
	return 0;
}
