/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Threads for one pass over a large array. They take no signals: those are the program's own. */
#include <pthread.h>
#include <signal.h>

#include "base/numbers/numbers_impl.h"

#define MAX_WORKERS 16
#define BYTES_PER_WORKER (8u << 20) /* a millisecond's work and more: worth a thread */

struct worker {
	void (*fn)(void *ctx, unsigned worker);
	void *ctx;
	unsigned number;
	bool started;
	pthread_t thread;
};

static void *run_worker(void *arg)
{
	struct worker *w = arg;

	w->fn(w->ctx, w->number);
	return NULL;
}

void run_workers(unsigned threads, void (*fn)(void *ctx, unsigned worker), void *ctx)
{
	struct worker workers[MAX_WORKERS];
	sigset_t all, before;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	for (unsigned i = 1; i < threads; i++) {
		workers[i] = (struct worker){.fn = fn, .ctx = ctx, .number = i};
		workers[i].started =
			pthread_create(&workers[i].thread, NULL, run_worker, &workers[i]) == 0;
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	fn(ctx, 0);
	for (unsigned i = 1; i < threads; i++) {
		if (workers[i].started)
			pthread_join(workers[i].thread, NULL);
		else
			fn(ctx, i);
	}
}

unsigned workers_for(const struct statistics_input *in)
{
	size_t worth = in->count * number_bytes(in->kind) / BYTES_PER_WORKER;
	size_t workers = in->threads < MAX_WORKERS ? in->threads : MAX_WORKERS;

	if (workers > worth)
		workers = worth;
	return workers ? (unsigned)workers : 1;
}

size_t piece_count(const struct statistics_input *in)
{
	return (in->count + PIECE - 1) / PIECE;
}

struct pieces pieces_of(const struct statistics_input *in, unsigned worker, unsigned workers)
{
	size_t n = piece_count(in), each = n / workers, more = n % workers;
	size_t first = worker * each + (worker < more ? worker : more);

	return (struct pieces){first, first + each + (worker < more)};
}
