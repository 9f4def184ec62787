/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "sampler/record/sampling.h"

#include "base/background.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/proc.h"
#include "base/sched_latency.h"
#include "sampler/record/samples.h"
#include "sampler/rounds/targets.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MS 1000000ull
#define SHARE 25 /* of a processor, that sampling takes at most: one in so many; of a machine */
#define MACHINE_SHARE 200 /* with many of them one in so many of all */
#define REFRESH_MS 500
#define REST_NS (20 * MS) /* between looks whether samples are wanted */
#define MAX_WAITING (16u << 20) /* bytes of records that the recorder has not taken */

struct sampling {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool stop, wanted, ended; /* with the lock, like the next ones */
	struct buf ready;
	struct sampling_result result;
	struct sampling_process *list; /* that are sampled */
	unsigned n;
	size_t cap;
	/* The thread's: */
	pid_t root;
	uint64_t interval_ns;
	struct targets *targets;
	struct samples *samples;
	struct buf made; /* in this round */
};

static void on_renamed(void *arg, struct target *t)
{
	struct sampling *s = arg;

	samples_renamed(s->samples, t, &s->made);
}

static void on_gone(void *arg, struct target *t)
{
	struct sampling *s = arg;

	samples_gone(s->samples, t, clock_mono_ns(), &s->made);
}

/* With the lock. */
static void note_refused(struct sampling *s)
{
	s->result.refused = 0;
	for (unsigned i = 0; i < s->targets->n; i++) {
		const struct target *t = s->targets->list[i];

		if (t->state != TARGET_REFUSED || t->err.code == -ENOEXEC || t->err.code == -ESRCH)
			continue;
		s->result.refused++;
		snprintf(s->result.why, sizeof(s->result.why), "%.255s", t->err.text);
	}
	/* Others than those of the job then. */
	if (s->result.refused && !proc_is_ours())
		s->result.refused = 1;
}

/* With the lock. */
static void note_processes(struct sampling *s)
{
	s->n = 0;
	s->list = xgrow(s->list, &s->cap, s->targets->n + 1, sizeof(*s->list));
	for (unsigned i = 0; i < s->targets->n; i++) {
		const struct target *t = s->targets->list[i];

		if (t->state == TARGET_OPEN && t->python)
			s->list[s->n++] = (struct sampling_process){t->pid, samples_own_pid(t)};
	}
}

/* True: go on. */
static bool hand_over(struct sampling *s, bool *out_wanted)
{
	const struct samples_counts *c = samples_counts(s->samples);

	pthread_mutex_lock(&s->lock);
	if (s->ready.len + s->made.len <= MAX_WAITING)
		buf_add(&s->ready, s->made.data, s->made.len);
	else
		s->result.dropped++;
	s->result.samples = c->samples;
	s->result.processes = c->processes;
	note_refused(s);
	note_processes(s);
	bool go_on = !s->stop;
	*out_wanted = s->wanted;
	pthread_mutex_unlock(&s->lock);
	buf_clear(&s->made);
	return go_on;
}

/* Or until it is to stop. */
static void sleep_until(struct sampling *s, uint64_t ns)
{
	struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};

	pthread_mutex_lock(&s->lock);
	while (!s->stop && pthread_cond_timedwait(&s->changed, &s->lock, &t) != ETIMEDOUT)
		;
	pthread_mutex_unlock(&s->lock);
}

static void make_round(struct sampling *s)
{
	uint64_t skew_ns;

	python_take_turn();
	(void)targets_refresh(s->targets, false, NULL);
	(void)targets_round(s->targets, &skew_ns);
	for (unsigned i = 0; i < s->targets->n; i++)
		if (s->targets->list[i]->state == TARGET_OPEN)
			samples_add(s->samples, s->targets->list[i], &s->made);
	python_give_turn();
}

/* A node with many ranks has many processors, too. */
static uint64_t choose_share(void)
{
	long processors = sysconf(_SC_NPROCESSORS_ONLN);
	uint64_t share = processors > 0 ? MACHINE_SHARE / (uint64_t)processors : SHARE;

	return share < 2 ? 2 : share < SHARE ? share : SHARE;
}

/* Rounds that are missed are not made up for; where they cost much there are fewer. */
static void sample(struct sampling *s)
{
	uint64_t next_ns = clock_mono_ns();
	uint64_t share = choose_share();
	bool wanted = false, before = false;

	while (hand_over(s, &wanted)) {
		if (before && !wanted)
			samples_end_all(s->samples, clock_mono_ns(), &s->made);
		before = wanted;
		if (!wanted) {
			sleep_until(s, clock_mono_ns() + REST_NS);
			next_ns = clock_mono_ns();
			continue;
		}
		uint64_t cpu_ns = clock_thread_cpu_ns();
		make_round(s);
		uint64_t rest_ns = (clock_thread_cpu_ns() - cpu_ns) * share,
			 now_ns = clock_mono_ns();
		next_ns += rest_ns > s->interval_ns ? rest_ns : s->interval_ns;
		if (next_ns < now_ns)
			next_ns = now_ns;
		sleep_until(s, next_ns);
	}
}

static void run_sampling(void *arg)
{
	struct sampling *s = arg;
	const struct discover_rules rules = {.parents = &s->root,
					     .nparents = 1,
					     .refresh_ms = REFRESH_MS,
					     .refresh_empty_ms = 50};
	const struct targets_options o = {
		.rules = &rules,
		.python = {.names = true},
		.on_renamed = on_renamed,
		.on_gone = on_gone,
		.arg = s,
	};

	(void)sched_latency_lower(); /* or a busy job is seen only where it rests */
	s->samples = samples_new();
	s->targets = targets_new(&o);
	sample(s);
	python_take_turn();
	targets_free(s->targets);
	python_give_turn();
	samples_free(s->samples);
	buf_release(&s->made);
	pthread_mutex_lock(&s->lock);
	s->ended = true;
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
}

struct sampling *sampling_start(pid_t root, uint32_t interval_us)
{
	static bool watches_forks;
	struct sampling *s = xcalloc(1, sizeof(*s));
	pthread_condattr_t attr;

	/* A copy of the recorder must not find locks that our thread has taken. */
	if (!watches_forks)
		watches_forks =
			pthread_atfork(python_take_turn, python_give_turn, python_give_turn) == 0;
	s->root = root;
	s->interval_ns = interval_us * 1000ull;
	pthread_mutex_init(&s->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&s->changed, &attr);
	pthread_condattr_destroy(&attr);
	if (background_run("Python stacks", run_sampling, s) == 0)
		return s;
	free(s);
	return NULL;
}

void sampling_want(struct sampling *s, bool wanted)
{
	if (!s)
		return;
	pthread_mutex_lock(&s->lock);
	s->wanted = wanted;
	pthread_mutex_unlock(&s->lock);
}

void sampling_take(struct sampling *s, struct buf *out)
{
	if (!s)
		return;
	pthread_mutex_lock(&s->lock);
	buf_add(out, s->ready.data, s->ready.len);
	buf_clear(&s->ready);
	pthread_mutex_unlock(&s->lock);
}

void sampling_result(struct sampling *s, struct sampling_result *out)
{
	pthread_mutex_lock(&s->lock);
	*out = s->result;
	pthread_mutex_unlock(&s->lock);
}

unsigned sampling_processes(struct sampling *s, struct sampling_process *out, unsigned most)
{
	if (!s)
		return 0;
	pthread_mutex_lock(&s->lock);
	unsigned n = s->n;
	if (n)
		memcpy(out, s->list, (n < most ? n : most) * sizeof(*out));
	pthread_mutex_unlock(&s->lock);
	return n;
}

void sampling_stop(struct sampling *s)
{
	struct timespec until;

	if (!s)
		return;
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec++;
	pthread_mutex_lock(&s->lock);
	s->stop = true;
	pthread_cond_broadcast(&s->changed);
	while (!s->ended && pthread_cond_timedwait(&s->changed, &s->lock, &until) != ETIMEDOUT)
		;
	bool ended = s->ended;
	pthread_mutex_unlock(&s->lock);
	if (!ended)
		return; /* it is left behind, with what it uses: the process ends soon */
	buf_release(&s->ready);
	free(s->list);
	free(s);
}
