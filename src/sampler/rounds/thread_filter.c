/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "sampler/rounds/thread_filter.h"

#include <string.h>

static bool is_main(const struct python_thread *t)
{
	return t->name && !strcmp(t->name, "MainThread");
}

struct thread_filter thread_filter_of(const struct python_process *p, bool all_threads)
{
	struct thread_filter f = {.all = true};

	for (unsigned i = 0; i < p->nthreads && !all_threads && f.all; i++)
		f.all = !is_main(&p->threads[i]);
	return f;
}

bool thread_filter_wants(void *filter, const struct python_thread *t)
{
	const struct thread_filter *f = filter;

	return f->all || is_main(t);
}

bool thread_moment_counts(struct thread_moments m, const struct python_thread *t)
{
	return (!m.gil || t->has_gil) && (!m.running || t->state == THREAD_RUNNING);
}
