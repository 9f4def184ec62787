/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "marks.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/feed.h"

#define MAX_DOMAINS 256
#define MAX_NAME 256
#define OUR_RANGE (1ull << 63)

struct mstxDomain {
	mstxDomainHandle_t tools;
	char name[MAX_NAME];
};

/* A range that libmspti was told the start of. */
struct range {
	struct range *next;
	mstxRangeId id; /* as the program has it */
	uint64_t mark; /* as libmspti has it */
	void *stream;
	const char *domain;
};

static struct mstxDomain domains[MAX_DOMAINS];
static _Atomic int domain_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct range *ranges;
static _Atomic int open_ranges;
static _Atomic uint64_t last_mark;

static void after_fork_in_child(void)
{
	pthread_mutex_init(&lock, NULL);
}

static __attribute__((constructor)) void watch_forks(void)
{
	pthread_atfork(NULL, NULL, after_fork_in_child);
}

static int is_ours(mstxDomainHandle_t d)
{
	return d >= domains && d < domains + MAX_DOMAINS;
}

mstxDomainHandle_t marks_tools_domain(mstxDomainHandle_t domain)
{
	return is_ours(domain) ? NULL : domain;
}

mstxDomainHandle_t marks_domain(mstxDomainHandle_t tools, const char *name)
{
	if (!name)
		return tools;
	struct mstxDomain *d = NULL;
	pthread_mutex_lock(&lock);
	int n = atomic_load(&domain_count);
	for (int i = 0; i < n && !d; i++)
		if (domains[i].tools == tools && !strncmp(domains[i].name, name, MAX_NAME - 1))
			d = &domains[i];
	if (!d && n < MAX_DOMAINS) {
		d = &domains[n];
		d->tools = tools;
		snprintf(d->name, sizeof(d->name), "%s", name);
		atomic_store(&domain_count, n + 1);
	}
	pthread_mutex_unlock(&lock);
	return tools ? tools : d;
}

static const char *domain_name(mstxDomainHandle_t d)
{
	if (!d)
		return NULL;
	if (is_ours(d))
		return d->name;
	for (int i = atomic_load(&domain_count) - 1; i >= 0; i--)
		if (domains[i].tools == d)
			return domains[i].name;
	return NULL;
}

static int wanted(const char *domain, const char *message)
{
	return message && sim_feed_wants(MSPTI_ACTIVITY_KIND_MARKER) &&
	       sim_feed.ops->wants_domain(domain);
}

void marks_instant(mstxDomainHandle_t domain, const char *message, void *stream)
{
	if (!sim_feed_wants(MSPTI_ACTIVITY_KIND_MARKER))
		return;
	const char *name = domain_name(domain);
	if (!wanted(name, message))
		return;
	sim_feed_mark(&(struct sim_mark){.domain = name,
					 .message = message,
					 .stream = stream,
					 .id = atomic_fetch_add(&last_mark, 1) + 1,
					 .flag = MSPTI_ACTIVITY_FLAG_MARKER_INSTANTANEOUS});
}

mstxRangeId marks_start(mstxDomainHandle_t domain, const char *message, void *stream,
			mstxRangeId tools)
{
	if (!sim_feed_wants(MSPTI_ACTIVITY_KIND_MARKER))
		return tools;
	const char *name = domain_name(domain);
	struct range *r = wanted(name, message) ? malloc(sizeof(*r)) : NULL;
	if (!r)
		return tools;
	uint64_t mark = atomic_fetch_add(&last_mark, 1) + 1;
	mstxRangeId id = tools ? tools : mark | OUR_RANGE;
	*r = (struct range){.id = id, .mark = mark, .stream = stream, .domain = name};
	sim_feed_mark(&(struct sim_mark){.domain = name,
					 .message = message,
					 .stream = stream,
					 .id = mark,
					 .flag = MSPTI_ACTIVITY_FLAG_MARKER_START});
	pthread_mutex_lock(&lock);
	r->next = ranges;
	ranges = r;
	atomic_fetch_add(&open_ranges, 1);
	pthread_mutex_unlock(&lock);
	return id;
}

int marks_is_ours(mstxRangeId id)
{
	return (id & OUR_RANGE) != 0;
}

void marks_end(mstxRangeId id)
{
	if (!atomic_load_explicit(&open_ranges, memory_order_relaxed))
		return;
	pthread_mutex_lock(&lock);
	struct range **at = &ranges;
	while (*at && (*at)->id != id)
		at = &(*at)->next;
	struct range *r = *at;
	if (r) {
		*at = r->next;
		atomic_fetch_sub(&open_ranges, 1);
	}
	pthread_mutex_unlock(&lock);
	if (r && sim_feed_wants(MSPTI_ACTIVITY_KIND_MARKER) &&
	    sim_feed.ops->wants_domain(r->domain))
		sim_feed_mark(&(struct sim_mark){.stream = r->stream,
						 .id = r->mark,
						 .flag = MSPTI_ACTIVITY_FLAG_MARKER_END});
	free(r);
}
