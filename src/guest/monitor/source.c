/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Where activities come from in this process: the first of the known libraries that is there. A
 * vendor's library has locks of its own; a fork() while one of our threads is inside would leave
 * them taken in the child, which may want to use the library itself. So fork() waits for us, at
 * most 200 ms (before_fork()).
 */
#include "guest/monitor/monitor_impl.h"

#include <pthread.h>

#define FORK_WAITS_MS 200

/* Held while a thread of ours is in the vendor's library. */
static struct fork_safe_lock inside;

static const struct activity_source *const sources[] = {&mspti_source, &cupti_source};

const struct activity_source *source_find(void)
{
	const struct activity_source *found = NULL;

	fork_safe_lock_take(&inside);
	for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]) && !found; i++)
		if (sources[i]->is_there())
			found = sources[i];
	fork_safe_lock_release(&inside);
	return found;
}

void source_prepare(void)
{
	fork_safe_lock_take(&inside);
	for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]); i++)
		if (sources[i]->prepare && sources[i]->is_there())
			sources[i]->prepare();
	fork_safe_lock_release(&inside);
}

int source_start(const struct activity_source *s, uint32_t kinds)
{
	fork_safe_lock_take(&inside);
	int r = s->start(kinds);
	fork_safe_lock_release(&inside);
	return r;
}

int source_change(const struct activity_source *s, uint32_t kinds)
{
	fork_safe_lock_take(&inside);
	int r = s->change(kinds);
	fork_safe_lock_release(&inside);
	return r;
}

void source_flush(const struct activity_source *s)
{
	fork_safe_lock_take(&inside);
	s->flush();
	fork_safe_lock_release(&inside);
}

void source_stop(const struct activity_source *s)
{
	fork_safe_lock_take(&inside);
	s->stop();
	fork_safe_lock_release(&inside);
}

/* --- fork: what we hold of the vendor's library at that moment nobody would give back --- */

static void before_fork(void)
{
	if (!guest_is_sealed() && !fork_safe_lock_is_mine(&inside))
		(void)fork_safe_lock_try(&inside, FORK_WAITS_MS);
}

static void after_fork(void)
{
	if (!guest_is_sealed() && fork_safe_lock_is_mine(&inside))
		fork_safe_lock_release(&inside);
}

void source_watch_forks(void)
{
	static _Atomic bool done; /* children inherit it */

	if (!atomic_exchange(&done, true))
		(void)pthread_atfork(before_fork, after_fork, NULL);
}

const char *monitor_source(void)
{
	const struct activity_source *s = source_find();

	return s ? s->name : "";
}
