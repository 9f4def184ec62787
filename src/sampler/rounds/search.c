/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What the thread and the sampler share is counted, and freed by whichever leaves last. */
#include "sampler/rounds/search.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/background.h"
#include "base/clock.h"
#include "base/mem.h"

#define MS 1000000ull
#define SHARE 20 /* searching takes at most this part of a core */
#define PATIENCE_MS 10000 /* for drivers, beyond what their programs may take */
#define EXIT_MS 200
#define THREAD_NAME "search for processes"

struct known_pids {
	pid_t *pids;
	uint64_t *ticks; /* when each began */
	size_t pids_cap, ticks_cap;
	unsigned n;
};

struct search {
	pthread_mutex_t lock;
	pthread_cond_t done;
	unsigned users; /* the sampler, and the thread while it is there */
	bool running, answered;
	int result;
	struct err err;
	struct discovery found;
	uint64_t took_ns;
	/* The thread's while it runs: */
	struct discover_rules rules;
	struct known_pids pids, parents;
	char **names, **cgroups;
	/* The sampler's: */
	uint64_t next_ns; /* when to search again */
	bool once; /* was done */
};

/* --- rules of our own --- */

static void known_copy(struct known_pids *k, const pid_t *pids, unsigned n)
{
	k->n = n;
	k->pids = xcalloc(n + 1, sizeof(*k->pids));
	k->ticks = xcalloc(n + 1, sizeof(*k->ticks));
	k->pids_cap = k->ticks_cap = n + 1;
	for (unsigned i = 0; i < n; i++) {
		k->pids[i] = pids[i];
		k->ticks[i] = process_start_ticks(pids[i]);
	}
}

static void known_add(struct known_pids *k, pid_t pid, uint64_t ticks)
{
	for (unsigned i = 0; i < k->n; i++)
		if (k->pids[i] == pid && k->ticks[i] == ticks)
			return;
	k->pids = xgrow(k->pids, &k->pids_cap, k->n + 1, sizeof(*k->pids));
	k->ticks = xgrow(k->ticks, &k->ticks_cap, k->n + 1, sizeof(*k->ticks));
	k->pids[k->n] = pid;
	k->ticks[k->n++] = ticks;
}

/* A pid that belongs to another process by now is not meant. */
static void known_forget_dead(struct known_pids *k)
{
	unsigned n = 0;

	for (unsigned i = 0; i < k->n; i++) {
		if (!k->ticks[i] || process_start_ticks(k->pids[i]) != k->ticks[i])
			continue;
		k->pids[n] = k->pids[i];
		k->ticks[n++] = k->ticks[i];
	}
	k->n = n;
}

static char **texts_copy(const char *const *texts, unsigned n)
{
	char **copy = xcalloc(n + 1, sizeof(*copy));

	for (unsigned i = 0; i < n; i++)
		copy[i] = xstrdup(texts[i]);
	return copy;
}

static void texts_free(char **texts)
{
	for (char **t = texts; *t; t++)
		free(*t);
	free(texts);
}

struct search *search_new(const struct discover_rules *rules)
{
	struct search *s = xcalloc(1, sizeof(*s));
	pthread_condattr_t attr;

	s->rules = *rules;
	known_copy(&s->pids, rules->pids, rules->npids);
	known_copy(&s->parents, rules->parents, rules->nparents);
	s->names = texts_copy(rules->names, rules->nnames);
	s->cgroups = texts_copy(rules->cgroups, rules->ncgroups);
	s->rules.names = (const char *const *)s->names;
	s->rules.cgroups = (const char *const *)s->cgroups;
	s->users = 1;
	pthread_mutex_init(&s->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&s->done, &attr);
	pthread_condattr_destroy(&attr);
	return s;
}

/* With the lock held, which is gone afterwards. */
static void drop_user(struct search *s)
{
	bool last = --s->users == 0;

	pthread_mutex_unlock(&s->lock);
	if (!last)
		return;
	discovery_release(&s->found);
	free(s->pids.pids);
	free(s->pids.ticks);
	free(s->parents.pids);
	free(s->parents.ticks);
	texts_free(s->names);
	texts_free(s->cgroups);
	pthread_cond_destroy(&s->done);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

void search_free(struct search *s)
{
	pthread_mutex_lock(&s->lock);
	bool running = s->running;
	drop_user(s);
	/* A thread inside of a driver would make trouble at the end of the program. */
	if (running)
		background_wait(THREAD_NAME, EXIT_MS);
}

void search_follow(struct search *s, pid_t pid, uint64_t start_ticks)
{
	pthread_mutex_lock(&s->lock);
	if (!s->running && start_ticks && (s->rules.children || s->parents.n))
		known_add(&s->parents, pid, start_ticks);
	pthread_mutex_unlock(&s->lock);
}

/* --- the search --- */

static int search_once(struct search *s, struct discovery *found, struct err *err)
{
	if (s->once) {
		known_forget_dead(&s->pids);
		known_forget_dead(&s->parents);
	}
	s->rules.pids = s->pids.pids;
	s->rules.npids = s->pids.n;
	s->rules.parents = s->parents.pids;
	s->rules.nparents = s->parents.n;
	return discover(&s->rules, found, err);
}

static void run_search(void *arg)
{
	struct search *s = arg;
	struct discovery found = {0};
	struct err err = {0};
	uint64_t began_ns = clock_mono_ns();
	int r = search_once(s, &found, &err);

	pthread_mutex_lock(&s->lock);
	s->took_ns = clock_mono_ns() - began_ns;
	s->found = found;
	s->result = r;
	s->err = err;
	s->answered = true;
	s->running = false;
	pthread_cond_signal(&s->done);
	drop_user(s);
}

/* With the lock held. */
static int start_thread(struct search *s, struct err *err)
{
	s->users++;
	s->running = true;
	int r = background_run(THREAD_NAME, run_search, s);
	if (r == 0)
		return 0;
	s->users--;
	s->running = false;
	return err_sys(err, r, "cannot start a thread");
}

static bool is_due(const struct search *s, bool empty, uint64_t now_ns)
{
	uint64_t sooner_ns = s->rules.refresh_empty_ms * MS;

	if (!s->once)
		return true;
	if (!s->rules.refresh_ms || s->running)
		return false;
	if (empty && sooner_ns && sooner_ns < s->rules.refresh_ms * MS)
		now_ns += s->rules.refresh_ms * MS - sooner_ns;
	return now_ns >= s->next_ns;
}

/* With the lock held. */
static int take_answer(struct search *s, struct discovery *out, struct err *err)
{
	uint64_t pause_ns = s->rules.refresh_ms * MS;

	if (pause_ns < s->took_ns * SHARE)
		pause_ns = s->took_ns * SHARE;
	s->next_ns = clock_mono_ns() + pause_ns;
	s->answered = false;
	s->once = true;
	*out = s->found;
	s->found = (struct discovery){0};
	if (s->result < 0 && err)
		*err = s->err;
	return s->result < 0 ? s->result : 1;
}

/* With the lock held. */
static int wait_for_end(struct search *s, struct err *err)
{
	uint64_t until_ns = clock_mono_ns() + (PATIENCE_MS + s->rules.timeout_ms) * MS;
	struct timespec until = {(time_t)(until_ns / 1000000000), (long)(until_ns % 1000000000)};

	while (s->running && clock_mono_ns() < until_ns)
		pthread_cond_timedwait(&s->done, &s->lock, &until);
	if (s->running)
		return err_set(err, -ETIMEDOUT,
			       "the search for processes does not end: does a driver hang?");
	return 0;
}

/* With the lock held. One that runs began before this was asked for: its answer may be too old. */
static int search_now(struct search *s, struct err *err)
{
	int r = wait_for_end(s, err);

	if (r < 0)
		return r;
	discovery_release(&s->found);
	s->answered = false;
	r = start_thread(s, err);
	return r < 0 ? r : wait_for_end(s, err);
}

int search_take(struct search *s, bool now, bool empty, struct discovery *out, struct err *err)
{
	int r = 0;

	pthread_mutex_lock(&s->lock);
	if (now || !s->once)
		r = search_now(s, err);
	else if (!s->answered && is_due(s, empty, clock_mono_ns()))
		r = start_thread(s, err);
	if (r == 0 && s->answered)
		r = take_answer(s, out, err);
	pthread_mutex_unlock(&s->lock);
	return r;
}
