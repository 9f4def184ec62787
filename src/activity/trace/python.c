/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The thread that samples: one for all traces that want stacks, since the reader of other
 * processes' memory has room for one walk at a time; beside the draining, which must not wait for
 * it. It runs while there is a trace to sample for.
 *
 * A trace hands its struct trace_python over and gets it back when it is `done`: from the first
 * until then it belongs to the thread, but for what is atomic.
 */
#include "activity/trace/python.h"

#include "base/background.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/sched_latency.h"
#include "unwind/remote/python.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MS 1000000ull
#define EVERY_NS (1 * MS)
#define SHARE 10 /* of a processor, that sampling takes at most: one in so many */
#define REST_MOST_NS (100 * MS)
#define TRY_NS (20 * MS) /* between two attempts to find Python, or to be let in */

struct trace_python {
	struct trace_python *next;
	pid_t pid;
	uint32_t own_pid; /* its number in its own pid namespace */
	_Atomic uint64_t from_ns, to_ns; /* of the steps */
	_Atomic bool stop;
	bool done; /* with the lock */
	struct python_process *process; /* NULL: not there yet */
	uint64_t try_ns;
	bool captured; /* in this round */
	struct seen seen;
	struct err why; /* there is nothing to be seen */
};

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct trace_python *fresh; /* that the thread has not taken yet */
	bool runs;
} sampler = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static _Atomic uint32_t *ask_word;

void trace_python_ask_through(_Atomic uint32_t *word)
{
	ask_word = word;
}

/* --- one process --- */

static bool is_over(const struct trace_python *p)
{
	return atomic_load(&p->stop) || p->seen.last_ns >= atomic_load(&p->to_ns);
}

/* What may pass: Python begins later than the process, and it lets us in when it has the order. */
static bool may_pass(int code)
{
	return code == -EAGAIN || code == -EPERM;
}

static void ask_to_be_let_in(const struct trace_python *p, int code)
{
	uint32_t nobody = 0;

	/* Another process may be asked at the moment: then the next time. */
	if (code == -EPERM && ask_word)
		atomic_compare_exchange_strong(ask_word, &nobody, p->own_pid);
}

static void find_python(struct trace_python *p, uint64_t now_ns)
{
	static const struct python_options options = {.names = true};

	if (now_ns < p->try_ns)
		return;
	int r = python_process_open(p->pid, &options, &p->process, &p->why);
	if (r < 0) {
		p->process = NULL;
		p->try_ns = clock_mono_ns() + TRY_NS;
		ask_to_be_let_in(p, r);
		if (!may_pass(r))
			atomic_store(&p->stop, true);
	}
}

static void drop_process(struct trace_python *p, int code)
{
	python_process_close(p->process);
	p->process = NULL;
	p->try_ns = 0;
	if (!may_pass(code))
		atomic_store(&p->stop, true); /* it has ended */
}

static void capture_stacks(struct trace_python *p)
{
	p->captured = false;
	p->seen.from_ns = atomic_load(&p->from_ns);
	if (!p->process)
		return;
	int r = python_capture(p->process, &p->why);
	p->captured = r == 0;
	if (r < 0)
		drop_process(p, r);
}

static void resolve_stacks(struct trace_python *p)
{
	if (!p->captured)
		return;
	int r = python_resolve(p->process, &p->why);
	if (r < 0)
		drop_process(p, r);
	else
		seen_add_sample(&p->seen, p->process);
}

/* --- the thread --- */

static void hand_back(struct trace_python *p)
{
	uint32_t own = p->own_pid;

	if (ask_word) /* it may have ended without an answer */
		atomic_compare_exchange_strong(ask_word, &own, 0);
	python_process_close(p->process);
	p->process = NULL;
	seen_end(&p->seen);
	pthread_mutex_lock(&sampler.lock);
	p->done = true;
	pthread_cond_broadcast(&sampler.changed);
	pthread_mutex_unlock(&sampler.lock);
}

/* All at the same moment, then the work that can wait. */
static void sample_all(struct trace_python *all)
{
	for (struct trace_python *p = all; p; p = p->next)
		capture_stacks(p);
	for (struct trace_python *p = all; p; p = p->next)
		resolve_stacks(p);
}

static void find_pythons(struct trace_python *all)
{
	uint64_t now = clock_mono_ns();

	for (struct trace_python *p = all; p; p = p->next)
		if (!p->process && !is_over(p))
			find_python(p, now);
}

static void drop_finished(struct trace_python **all)
{
	for (struct trace_python **at = all; *at;) {
		struct trace_python *p = *at;

		if (is_over(p)) {
			*at = p->next;
			hand_back(p);
		} else {
			at = &p->next;
		}
	}
}

static void sleep_until(uint64_t ns)
{
	struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
		;
}

/* Takes who is new; false: there is nobody left. */
static bool add_fresh(struct trace_python **all)
{
	pthread_mutex_lock(&sampler.lock);
	while (sampler.fresh) {
		struct trace_python *p = sampler.fresh;

		sampler.fresh = p->next;
		p->next = *all;
		*all = p;
	}
	if (!*all)
		sampler.runs = false;
	pthread_mutex_unlock(&sampler.lock);
	return *all;
}

static void run_sampler(void *arg)
{
	struct trace_python *all = NULL;

	(void)arg;
	(void)sched_latency_lower(); /* or a busy job is seen only where it rests */
	while (add_fresh(&all)) {
		python_take_turn();
		find_pythons(all); /* costs much, once */
		uint64_t begun = clock_mono_ns(), cpu = clock_thread_cpu_ns();

		sample_all(all);
		python_give_turn();
		uint64_t rest = (clock_thread_cpu_ns() - cpu) * SHARE;
		if (rest > REST_MOST_NS)
			rest = REST_MOST_NS;
		drop_finished(&all);
		if (all)
			sleep_until(begun + (rest > EVERY_NS ? rest : EVERY_NS));
	}
}

/* --- for the trace --- */

struct trace_python *trace_python_start(uint32_t shown_pid, uint32_t pid)
{
	struct trace_python *p = xcalloc(1, sizeof(*p));

	p->pid = (pid_t)shown_pid;
	p->own_pid = pid;
	atomic_store(&p->from_ns, SEEN_NEVER);
	atomic_store(&p->to_ns, SEEN_NEVER);
	pthread_mutex_lock(&sampler.lock);
	p->next = sampler.fresh;
	sampler.fresh = p;
	int r = sampler.runs ? 0 : background_run("stacks of a trace", run_sampler, NULL);
	sampler.runs = r >= 0;
	if (r < 0) {
		sampler.fresh = p->next;
		p->done = true;
		err_set(&p->why, r, "no thread is available to sample its stacks");
	}
	pthread_mutex_unlock(&sampler.lock);
	return p;
}

void trace_python_steps(struct trace_python *p, uint64_t from_ns, uint64_t to_ns)
{
	if (!p)
		return;
	atomic_store(&p->from_ns, from_ns);
	atomic_store(&p->to_ns, to_ns);
}

void trace_python_stop(struct trace_python *p)
{
	if (p)
		atomic_store(&p->stop, true);
}

static void wait_for(struct trace_python *p)
{
	trace_python_stop(p);
	pthread_mutex_lock(&sampler.lock);
	while (!p->done)
		pthread_cond_wait(&sampler.changed, &sampler.lock);
	pthread_mutex_unlock(&sampler.lock);
}

const struct seen *trace_python_wait(struct trace_python *p, const char **out_why)
{
	wait_for(p);
	*out_why = p->why.code ? p->why.text : "there was no time to sample";
	return &p->seen;
}

void trace_python_free(struct trace_python *p)
{
	if (!p)
		return;
	wait_for(p);
	seen_release(&p->seen);
	free(p);
}

/* From stacks to calls: what ended and what began between two samples. */

#define GC_NAME "<garbage collection>"

struct seen_open {
	const char *name, *file;
	int32_t first_line;
	int32_t line; /* the last one seen */
	struct seen_moment start;
	int32_t caller_line; /* it is another call when that changes */
};

/* --- calls that have ended --- */

/* Those that ended before the steps are of no use; while none has begun, those of long ago. */
static void drop_old_calls(struct seen *s, uint64_t now_ns)
{
	uint64_t before = s->from_ns != SEEN_NEVER ? s->from_ns : now_ns - SEEN_KEPT_NS;
	size_t n = 0;

	for (size_t i = 0; i < s->n; i++)
		if (s->calls[i].end.ns > before)
			s->calls[n++] = s->calls[i];
	/* Steps that have begun do not begin again: there will be no more room. */
	s->full = s->from_ns != SEEN_NEVER && n > SEEN_MAX_CALLS / 2;
	s->n = n;
}

static void add_call(struct seen *s, const struct seen_thread *th, const struct seen_open *o,
		     uint32_t depth, struct seen_moment end)
{
	if (s->from_ns != SEEN_NEVER && end.ns <= s->from_ns)
		return;
	if (s->n >= SEEN_MAX_CALLS && !s->full)
		drop_old_calls(s, end.ns);
	if (s->n >= SEEN_MAX_CALLS) {
		s->left_out++;
		return;
	}
	*XPUSH(s->calls, s->n, s->cap) = (struct seen_call){
		.start = o->start,
		.end = end,
		.name = o->name,
		.file = o->file,
		.line = o->first_line,
		.tid = th->tid,
		.depth = depth,
		.caller_line = o->caller_line,
	};
}

/* --- threads --- */

static void end_down_to(struct seen *s, struct seen_thread *th, size_t left, struct seen_moment now)
{
	while (th->n > left) {
		th->n--;
		add_call(s, th, &th->open[th->n], (uint32_t)th->n, now);
	}
}

static void push_call(struct seen_thread *th, const struct seen_open *o)
{
	*XPUSH(th->open, th->n, th->cap) = *o;
}

/* How many go on: what the reader says is the same call, as long as the line of its caller is. */
static size_t count_kept(struct seen_thread *th, const struct python_thread *is)
{
	size_t most = th->n - th->gc, i = 0;

	if (is->nframes < most)
		most = is->nframes;
	if (is->kept < most)
		most = is->kept;
	while (i < most) {
		struct seen_open *o = &th->open[i];
		const struct stack_frame *f = &is->frames[i];
		bool same_line = o->line == f->line;

		if (o->name != f->name || o->file != f->file || o->first_line != f->first_line)
			break;
		o->line = f->line;
		i++;
		if (!same_line)
			break;
	}
	return i;
}

static void add_stack(struct seen *s, struct seen_thread *th, const struct python_thread *is)
{
	struct seen_moment now = {is->time_ns > th->ns ? is->time_ns : th->ns, th->ns};
	size_t stay = count_kept(th, is);
	bool gc_stays = th->gc && is->gc && stay == is->nframes && stay + 1 == th->n;

	th->ns = now.ns;
	s->samples++;
	if (!gc_stays) {
		end_down_to(s, th, stay, now);
		th->gc = false;
	}
	for (size_t i = stay; i < is->nframes; i++) {
		const struct stack_frame *f = &is->frames[i];

		int32_t from = i ? is->frames[i - 1].line : 0;

		push_call(th,
			  &(struct seen_open){f->name, f->file, f->first_line, f->line, now, from});
	}
	if (is->gc && !gc_stays) {
		push_call(th, &(struct seen_open){GC_NAME, "", 0, 0, now, 0});
		th->gc = true;
	}
}

/* The number that the process itself has for it: as activities have it. */
static uint32_t tid_of(const struct python_thread *is)
{
	return (uint32_t)(is->inner_tid > 0 ? is->inner_tid : is->tid > 0 ? is->tid : 0);
}

static struct seen_thread *thread_of(struct seen *s, const struct python_thread *is)
{
	struct seen_thread *th = hmap_get_ptr(&s->threads, is->serial);

	if (!th) {
		th = xcalloc(1, sizeof(*th));
		hmap_put_ptr(&s->threads, is->serial, th);
	}
	if (!th->tid)
		th->tid = tid_of(is);
	if (th->tid && is->name && *is->name && is->name != th->name) {
		th->name = is->name;
		hmap_put_ptr(&s->names, th->tid, (void *)(uintptr_t)is->name);
	}
	return th;
}

static void free_thread(struct seen_thread *th)
{
	free(th->open);
	free(th);
}

/* Threads that were not there have ended. */
static void drop_ended_threads(struct seen *s, uint64_t now_ns)
{
	uint64_t key, value;
	size_t n = 0;

	for (size_t at = 0; hmap_next(&s->threads, &at, &key, &value);) {
		if (((struct seen_thread *)(uintptr_t)value)->round == s->round)
			continue;
		*XPUSH(s->old, n, s->old_cap) = key;
	}
	while (n > 0) {
		struct seen_thread *th = hmap_get_ptr(&s->threads, s->old[--n]);

		end_down_to(s, th, 0,
			    (struct seen_moment){now_ns > th->ns ? now_ns : th->ns, th->ns});
		hmap_remove(&s->threads, s->old[n]);
		free_thread(th);
	}
}

void seen_add_sample(struct seen *s, const struct python_process *p)
{
	size_t there = 0;

	s->round++;
	if (!s->first_ns)
		s->first_ns = p->time_ns;
	s->last_ns = p->time_ns;
	for (unsigned i = 0; i < p->nthreads; i++) {
		const struct python_thread *is = &p->threads[i];
		struct seen_thread *th = thread_of(s, is);

		th->round = s->round;
		there++;
		if (!is->missed)
			add_stack(s, th, is);
	}
	if (there != s->threads.count)
		drop_ended_threads(s, p->time_ns);
}

void seen_end(struct seen *s)
{
	uint64_t key, value;

	for (size_t at = 0; hmap_next(&s->threads, &at, &key, &value);) {
		struct seen_thread *th = (struct seen_thread *)(uintptr_t)value;
		uint64_t ns = s->last_ns > th->ns ? s->last_ns : th->ns;

		end_down_to(s, th, 0, (struct seen_moment){ns, ns});
		free_thread(th);
	}
	hmap_release(&s->threads);
}

void seen_release(struct seen *s)
{
	seen_end(s);
	hmap_release(&s->names);
	free(s->calls);
	free(s->old);
}
