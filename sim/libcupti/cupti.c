/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Buffers and callbacks. Records are written under one lock; callbacks are called without it, by
 * the thread that filled the buffer or that flushes.
 */
#include "cupti/cupti.h"

#include "record.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define KINDS 64
#define BUFFERS 64

struct buffer {
	uint8_t *at;
	size_t size, used;
	uint64_t last_end; /* of what was written into it */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static CUpti_BuffersCallbackRequestFunc request_fn;
static CUpti_BuffersCallbackCompleteFunc complete_fn;
static CUpti_TimestampCallbackFunc clock_fn;
static uint64_t enabled;
static uint64_t calls[2][16]; /* of driver and runtime, that are not reported */
static uint64_t alone[2]
		     [16]; /* that are, without their kind: switched on before any call was made */
static int called;
static struct buffer open_buffer; /* that is being written */
static struct buffer full[BUFFERS]; /* whose kernels may still run */
static unsigned nfull;
static size_t dropped;
static int thread_ids;

uint64_t sim_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* What the registered clock says more than ours: records are converted to it. */
static uint64_t clock_offset(void)
{
	return clock_fn ? clock_fn() - sim_now() : 0;
}

int cuptiGetTimestamp(uint64_t *out)
{
	*out = clock_fn ? clock_fn() : sim_now();
	return CUPTI_SUCCESS;
}

int cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request,
				   CUpti_BuffersCallbackCompleteFunc complete)
{
	if (!request || !complete)
		return CUPTI_ERROR_INVALID_PARAMETER;
	if (getenv("SIM_CUPTI_BUSY"))
		return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
	pthread_mutex_lock(&lock);
	request_fn = request;
	complete_fn = complete;
	pthread_mutex_unlock(&lock);
	return CUPTI_SUCCESS;
}

int cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc clock)
{
	if (!clock)
		return CUPTI_ERROR_INVALID_PARAMETER;
	clock_fn = clock;
	return CUPTI_SUCCESS;
}

static int switch_kind(int kind, int on)
{
	if (kind <= 0 || kind >= KINDS)
		return CUPTI_ERROR_INVALID_KIND;
	pthread_mutex_lock(&lock);
	enabled = on ? enabled | 1ull << kind : enabled & ~(1ull << kind);
	if (on && (kind == CUPTI_ACTIVITY_KIND_RUNTIME || kind == CUPTI_ACTIVITY_KIND_DRIVER))
		memset(calls[kind == CUPTI_ACTIVITY_KIND_RUNTIME], 0, sizeof(calls[0]));
	pthread_mutex_unlock(&lock);
	return CUPTI_SUCCESS;
}

int cuptiActivityEnable(int kind)
{
	return switch_kind(kind, 1);
}

int cuptiActivityDisable(int kind)
{
	return switch_kind(kind, 0);
}

static int switch_call(int runtime, uint32_t cbid, uint8_t on)
{
	if (cbid >= 1024)
		return CUPTI_ERROR_INVALID_PARAMETER;
	pthread_mutex_lock(&lock);
	uint64_t bit = 1ull << cbid % 64, *word = &calls[runtime][cbid / 64];
	*word = on ? *word & ~bit : *word | bit;
	if (!on)
		alone[runtime][cbid / 64] &= ~bit;
	else if (!called && !getenv("SIM_CUPTI_KINDS_ONLY"))
		alone[runtime][cbid / 64] |= bit;
	pthread_mutex_unlock(&lock);
	return CUPTI_SUCCESS;
}

int cuptiActivityEnableRuntimeApi(uint32_t cbid, uint8_t on)
{
	return switch_call(1, cbid, on);
}

int cuptiActivityEnableDriverApi(uint32_t cbid, uint8_t on)
{
	return switch_call(0, cbid, on);
}

int sim_call_is_on(int kind, uint32_t cbid)
{
	int runtime = kind == CUPTI_ACTIVITY_KIND_RUNTIME;

	called = 1;
	if (alone[runtime][cbid / 64] >> cbid % 64 & 1)
		return 1;
	return (enabled >> kind & 1) && !(calls[runtime][cbid / 64] >> cbid % 64 & 1);
}

uint64_t sim_call_clock(void)
{
	return clock_fn ? clock_fn() : sim_now();
}

int simCuptiEnabled(int kind)
{
	return enabled >> kind & 1;
}

int cuptiGetThreadIdType(int *type)
{
	*type = thread_ids;
	return CUPTI_SUCCESS;
}

int cuptiSetThreadIdType(int type)
{
	thread_ids = type;
	return CUPTI_SUCCESS;
}

int sim_thread_ids(void)
{
	return thread_ids;
}

/* --- completing --- */

static void complete(struct buffer *b, CUpti_BuffersCallbackCompleteFunc fn, int forced)
{
	if (forced)
		sim_cut_unfinished(b->at, b->used, sim_now());
	sim_convert(b->at, b->used, clock_offset());
	if (fn)
		fn(NULL, 0, b->at, b->size, b->used);
}

/* One that may be returned now, out of those that are full or, for a flush, all. With the lock. */
static int take_done(struct buffer *out, int flush, int forced)
{
	uint64_t now = sim_now();

	for (unsigned i = 0; i < nfull; i++) {
		if (!forced && full[i].last_end > now)
			continue;
		*out = full[i];
		full[i] = full[--nfull];
		return 1;
	}
	if (!flush || !open_buffer.at || (!forced && open_buffer.last_end > now))
		return 0;
	*out = open_buffer;
	open_buffer = (struct buffer){0};
	return 1;
}

static void deliver(int flush, int forced)
{
	struct buffer b;

	for (;;) {
		pthread_mutex_lock(&lock);
		int found = take_done(&b, flush, forced);
		CUpti_BuffersCallbackCompleteFunc fn = complete_fn;
		pthread_mutex_unlock(&lock);
		if (!found)
			return;
		complete(&b, fn, forced);
	}
}

int cuptiActivityFlushAll(uint32_t flag)
{
	if (!complete_fn)
		return CUPTI_ERROR_INVALID_OPERATION;
	deliver(1, flag & 1);
	return CUPTI_SUCCESS;
}

int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *out)
{
	(void)context;
	(void)stream;
	pthread_mutex_lock(&lock);
	*out = dropped;
	dropped = 0;
	pthread_mutex_unlock(&lock);
	return CUPTI_SUCCESS;
}

int cuptiFinalize(void)
{
	pthread_mutex_lock(&lock);
	request_fn = NULL;
	complete_fn = NULL;
	clock_fn = NULL;
	enabled = 0;
	nfull = 0;
	open_buffer = (struct buffer){0};
	pthread_mutex_unlock(&lock);
	return CUPTI_SUCCESS;
}

/* --- writing --- */

/* With the lock. 0: there is no room. */
static int have_room(size_t bytes)
{
	size_t max = 0;

	if (open_buffer.at && open_buffer.size - open_buffer.used < bytes && nfull < BUFFERS) {
		full[nfull++] = open_buffer;
		open_buffer = (struct buffer){0};
	}
	if (!open_buffer.at && request_fn)
		request_fn(&open_buffer.at, &open_buffer.size, &max);
	if (!open_buffer.at || open_buffer.size - open_buffer.used < bytes)
		return 0;
	return 1;
}

void sim_note(int kind, const void *record, size_t bytes, uint64_t ends)
{
	pthread_mutex_lock(&lock);
	int call = kind == CUPTI_ACTIVITY_KIND_RUNTIME || kind == CUPTI_ACTIVITY_KIND_DRIVER;
	int on = call || (enabled >> kind & 1); /* who makes calls has asked */
	if (on && have_room(bytes)) {
		memcpy(open_buffer.at + open_buffer.used, record, bytes);
		open_buffer.used += bytes;
		if (ends > open_buffer.last_end)
			open_buffer.last_end = ends;
	} else if (on) {
		dropped++;
	}
	int some = nfull != 0;
	pthread_mutex_unlock(&lock);
	if (some)
		deliver(0, 0);
}
