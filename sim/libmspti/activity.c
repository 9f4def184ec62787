/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Which kinds are wanted, reading of buffers, flushing. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "library.h"

#define NEED_PRELOAD                                                                               \
	(1u << MSPTI_ACTIVITY_KIND_HCCL | 1u << MSPTI_ACTIVITY_KIND_MEMORY |                       \
	 1u << MSPTI_ACTIVITY_KIND_MEMSET | 1u << MSPTI_ACTIVITY_KIND_MEMCPY)

static pthread_mutex_t period_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t period_changed;
static uint32_t period_ms;
static int period_thread;

static void take(const void *record, size_t size)
{
	int32_t kind;
	memcpy(&kind, record, sizeof(kind));
	if (record_size(kind) && sim_feed_wants(kind))
		(void)buffer_put(record, size);
}

static const struct sim_feed_ops ops = {
	.take = take,
	.call = callback_call,
	.wants_domain = marker_wants_domain,
	.external = external_note,
};

static void init_period(void)
{
	pthread_condattr_t attr;
	pthread_mutex_init(&period_lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&period_changed, &attr);
	pthread_condattr_destroy(&attr);
	period_ms = 0;
	period_thread = 0;
}

/* A child has not asked for anything yet. */
static void after_fork_in_child(void)
{
	atomic_store(&sim_feed.wanted, 0);
	buffer_after_fork();
	callback_after_fork();
	init_period();
}

/* Stays for good: the stack may be on its way into it. */
static __attribute__((constructor)) void library_init(void)
{
	Dl_info self;
	if (dladdr((void *)(uintptr_t)&sim_mspti_dropped, &self) && self.dli_fname)
		(void)dlopen(self.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
	init_period();
	sim_feed.ops = &ops;
	pthread_atfork(NULL, NULL, after_fork_in_child);
}

int library_preloaded(void)
{
	const char *list = getenv("LD_PRELOAD");
	return list && strstr(list, "libmspti.so");
}

void library_want(uint32_t bits, int on)
{
	if (on)
		atomic_fetch_or(&sim_feed.wanted, bits);
	else
		atomic_fetch_and(&sim_feed.wanted, ~bits);
}

msptiResult msptiActivityRegisterCallbacks(msptiBuffersCallbackRequestFunc request,
					   msptiBuffersCallbackCompleteFunc complete)
{
	return buffer_callbacks(request, complete);
}

msptiResult msptiActivityEnable(msptiActivityKind kind)
{
	if (!record_size(kind))
		return MSPTI_ERROR_INVALID_PARAMETER;
	if (NEED_PRELOAD >> kind & 1 && !library_preloaded())
		return MSPTI_ERROR_WITHOUT_LD_PRELOAD;
	library_want(1u << kind, 1);
	flood_begin(kind);
	return MSPTI_SUCCESS;
}

msptiResult msptiActivityDisable(msptiActivityKind kind)
{
	if (!record_size(kind))
		return MSPTI_ERROR_INVALID_PARAMETER;
	library_want(1u << kind, 0);
	return MSPTI_SUCCESS;
}

bool msptiActivityIsEnabled(msptiActivityKind kind)
{
	return record_size(kind) && sim_feed_wants(kind);
}

/* The cursor is the thread's, whatever buffer it is called with; only the end resets it. */
msptiResult msptiActivityGetNextRecord(uint8_t *buffer, size_t validBytes, msptiActivity **record)
{
	static __thread size_t cursor;
	int32_t kind;
	if (!buffer || !record)
		return MSPTI_ERROR_INVALID_PARAMETER;
	if (cursor >= validBytes) {
		cursor = 0;
		return MSPTI_ERROR_MAX_LIMIT_REACHED;
	}
	memcpy(&kind, buffer + cursor, sizeof(kind));
	if (!record_size(kind))
		return MSPTI_ERROR_INNER;
	*record = (msptiActivity *)(void *)(buffer + cursor);
	cursor += record_size(kind);
	return MSPTI_SUCCESS;
}

msptiResult msptiActivityFlushAll(uint32_t flag)
{
	(void)flag;
	buffer_flush();
	return MSPTI_SUCCESS;
}

static void *period_main(void *arg)
{
	(void)arg;
	pthread_setname_np(pthread_self(), "sim-mspti-flush");
	pthread_mutex_lock(&period_lock);
	while (period_ms) {
		struct timespec until;
		clock_gettime(CLOCK_MONOTONIC, &until);
		uint64_t ns = (uint64_t)until.tv_nsec + period_ms * 1000000ull;
		until.tv_sec += (time_t)(ns / 1000000000ull);
		until.tv_nsec = (long)(ns % 1000000000ull);
		if (!pthread_cond_timedwait(&period_changed, &period_lock, &until))
			continue; /* another period, from now */
		pthread_mutex_unlock(&period_lock);
		buffer_flush();
		pthread_mutex_lock(&period_lock);
	}
	period_thread = 0;
	pthread_mutex_unlock(&period_lock);
	return NULL;
}

msptiResult msptiActivityFlushPeriod(uint32_t ms)
{
	pthread_t thread;
	pthread_mutex_lock(&period_lock);
	period_ms = ms;
	if (ms && !period_thread && !pthread_create(&thread, NULL, period_main, NULL)) {
		pthread_detach(thread);
		period_thread = 1;
	}
	pthread_cond_broadcast(&period_changed);
	pthread_mutex_unlock(&period_lock);
	return MSPTI_SUCCESS;
}
