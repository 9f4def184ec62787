/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The way of a record:
 *
 *   any thread: buffer_put()  -- lock --  no buffer yet: the user's request callback, in the lock
 *                                         80 % full: retired, completed by a thread of its own
 *                                         copied
 *   user: flush               waits for those threads, then completes the current one in the lock
 *
 * The user says no by handing out NULL: the record is lost, and as in the real library such a
 * buffer of 0 bytes is completed like any other.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "library.h"

#define WARN_BELOW (2u << 20)
#define FULL_PERCENT 80
#define MAX_NAMES 3
#define MAX_REFUSED 16 /* empty buffers that are completed together */

struct buffer {
	uint8_t *data;
	size_t size;
	size_t used;
	struct names *names;
	int refused; /* so many without bytes before it */
};

static const struct layout {
	uint8_t size;
	uint8_t names[MAX_NAMES]; /* offsets of pointers, 0: none */
} layouts[MSPTI_ACTIVITY_KIND_COUNT] = {
	[MSPTI_ACTIVITY_KIND_MARKER] = {sizeof(msptiActivityMarker), {36, 44}},
	[MSPTI_ACTIVITY_KIND_KERNEL] = {sizeof(msptiActivityKernel), {36, 44}},
	[MSPTI_ACTIVITY_KIND_API] = {sizeof(msptiActivityApi), {36}},
	[MSPTI_ACTIVITY_KIND_HCCL] = {sizeof(msptiActivityHccl), {36, 44}},
	[MSPTI_ACTIVITY_KIND_MEMORY] = {sizeof(msptiActivityMemory), {0}},
	[MSPTI_ACTIVITY_KIND_MEMSET] = {sizeof(msptiActivityMemset), {0}},
	[MSPTI_ACTIVITY_KIND_MEMCPY] = {sizeof(msptiActivityMemcpy), {0}},
	[MSPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION] = {sizeof(msptiActivityExternalCorrelation),
						      {0}},
	[MSPTI_ACTIVITY_KIND_COMMUNICATION] = {sizeof(msptiActivityCommunication), {40, 48, 56}},
	[MSPTI_ACTIVITY_KIND_ACL_API] = {sizeof(msptiActivityApi), {36}},
	[MSPTI_ACTIVITY_KIND_NODE_API] = {sizeof(msptiActivityApi), {36}},
	[MSPTI_ACTIVITY_KIND_RUNTIME_API] = {sizeof(msptiActivityApi), {36}},
};

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static struct buffer current;
static int requesting;
static msptiBuffersCallbackRequestFunc request_fn;
static msptiBuffersCallbackCompleteFunc complete_fn;
static uint64_t recorded;
static _Atomic uint64_t dropped;

/* Threads that complete buffers. */
static pthread_mutex_t work_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work_done = PTHREAD_COND_INITIALIZER;
static int working;
static __thread int completing;

size_t record_size(int32_t kind)
{
	return kind > 0 && kind < MSPTI_ACTIVITY_KIND_COUNT ? layouts[kind].size : 0;
}

uint64_t sim_mspti_dropped(void)
{
	return atomic_load(&dropped);
}

uint64_t sim_mspti_recorded(void)
{
	pthread_mutex_lock(&lock);
	uint64_t n = recorded;
	pthread_mutex_unlock(&lock);
	return n;
}

msptiResult buffer_callbacks(msptiBuffersCallbackRequestFunc request,
			     msptiBuffersCallbackCompleteFunc complete)
{
	if (!request || !complete)
		return MSPTI_ERROR_INVALID_PARAMETER;
	pthread_mutex_lock(&lock);
	request_fn = request;
	complete_fn = complete;
	pthread_mutex_unlock(&lock);
	return MSPTI_SUCCESS;
}

static void complete(struct buffer *b, msptiBuffersCallbackCompleteFunc fn)
{
	completing++;
	for (int i = 0; i < b->refused; i++)
		fn(NULL, 0, 0);
	if (b->data)
		fn(b->data, b->size, b->used);
	completing--;
	names_free(b->names);
}

struct work {
	struct buffer buffer;
	msptiBuffersCallbackCompleteFunc fn;
};

static void *work_main(void *arg)
{
	struct work *w = arg;
	pthread_setname_np(pthread_self(), "sim-mspti");
	complete(&w->buffer, w->fn);
	free(w);
	pthread_mutex_lock(&work_lock);
	if (!--working)
		pthread_cond_broadcast(&work_done);
	pthread_mutex_unlock(&work_lock);
	return NULL;
}

/* Called with the lock held. */
static void retire(void)
{
	struct buffer b = current;
	struct work *w = malloc(sizeof(*w));
	pthread_t thread;
	memset(&current, 0, sizeof(current));
	if (w) {
		*w = (struct work){b, complete_fn};
		pthread_mutex_lock(&work_lock);
		working++;
		pthread_mutex_unlock(&work_lock);
		if (!pthread_create(&thread, NULL, work_main, w)) {
			pthread_detach(thread);
			return;
		}
		pthread_mutex_lock(&work_lock);
		working--;
		pthread_mutex_unlock(&work_lock);
		free(w);
	}
	complete(&b, complete_fn);
}

static int request(void)
{
	size_t records = 0;
	if (!request_fn || requesting)
		return -1;
	requesting = 1;
	request_fn(&current.data, &current.size, &records);
	requesting = 0;
	current.used = 0;
	if (!current.data || !current.size) {
		current.data = NULL;
		if (current.refused < MAX_REFUSED)
			current.refused++;
		return -1;
	}
	if (current.size < WARN_BELOW)
		fprintf(stderr,
			"[WARNING] mspti: an activity buffer should have 2 MB or more, this one "
			"has "
			"%zu bytes.\n",
			current.size);
	current.names = names_new();
	return 0;
}

static int put(const void *record, size_t size, const struct layout *l)
{
	if (current.data && current.used * 100 >= current.size * FULL_PERCENT)
		retire();
	if ((!current.data && request()) || size > current.size - current.used || !current.names)
		return -1;
	uint8_t *at = current.data + current.used;
	memcpy(at, record, size);
	for (int i = 0; i < MAX_NAMES && l->names[i]; i++) {
		const char *name;
		memcpy(&name, at + l->names[i], sizeof(name));
		name = names_add(current.names, name);
		memcpy(at + l->names[i], &name, sizeof(name));
	}
	current.used += size;
	return 0;
}

int buffer_try(const void *record, size_t size)
{
	int32_t kind;
	memcpy(&kind, record, sizeof(kind));
	if (record_size(kind) != size)
		return -1;
	pthread_mutex_lock(&lock);
	int r = put(record, size, &layouts[kind]);
	recorded += !r;
	pthread_mutex_unlock(&lock);
	return r;
}

int buffer_put(const void *record, size_t size)
{
	int r = buffer_try(record, size);
	if (r)
		atomic_fetch_add_explicit(&dropped, 1, memory_order_relaxed);
	return r;
}

void buffer_lock(void)
{
	pthread_mutex_lock(&lock);
}

void buffer_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

/* SIM_MSPTI_FLUSH_WAITS=0: older ones do not wait for the threads. */
static int flush_waits(void)
{
	const char *text = getenv("SIM_MSPTI_FLUSH_WAITS");
	return !text || *text != '0';
}

void buffer_flush(void)
{
	pthread_mutex_lock(&work_lock);
	while (working && !completing && flush_waits())
		pthread_cond_wait(&work_done, &work_lock);
	pthread_mutex_unlock(&work_lock);
	pthread_mutex_lock(&lock);
	if ((current.data || current.refused) && complete_fn && !requesting) {
		struct buffer b = current;
		memset(&current, 0, sizeof(current));
		complete(&b, complete_fn);
	}
	pthread_mutex_unlock(&lock);
}

/* The threads stayed with the parent, and what they had belongs to it. */
void buffer_after_fork(void)
{
	pthread_mutexattr_t attr;
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
	pthread_mutex_init(&lock, &attr);
	pthread_mutexattr_destroy(&attr);
	pthread_mutex_init(&work_lock, NULL);
	pthread_cond_init(&work_done, NULL);
	memset(&current, 0, sizeof(current));
	working = 0;
	requesting = 0;
	request_fn = NULL;
	complete_fn = NULL;
}
