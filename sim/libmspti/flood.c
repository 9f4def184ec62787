/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * SIM_MSPTI_FLOOD=N[:KIND]: the first msptiActivityEnable() of that kind (a number, 2 for kernels
 * if none is given; markers and all APIs can be had too) starts a thread that notes N synthetic
 * records as fast as it goes, for measuring whoever reads them. Where the user has no buffer to
 * give it waits instead of losing the record, unless SIM_MSPTI_FLOOD_DROP=1.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "library.h"
#include "sim/state.h"

#define BATCH 64
#define NAMES 32
#define STREAMS 4
#define KERNEL_NS 1000

static uint64_t left;
static msptiActivityKind flooded;
static char names[NAMES][48];

static void fill_kernel(msptiActivityKernel *r, uint64_t i, uint64_t from)
{
	uint64_t start = from + i / STREAMS * KERNEL_NS;
	*r = (msptiActivityKernel){.kind = MSPTI_ACTIVITY_KIND_KERNEL,
				   .start = start,
				   .end = start + KERNEL_NS - 100,
				   .ds = {0, (uint32_t)(i % STREAMS)},
				   .correlationId = i + 1,
				   .type = "KERNEL_AICORE",
				   .name = names[i % NAMES]};
}

static void fill_api(msptiActivityApi *r, uint64_t i, uint64_t from)
{
	uint64_t start = from + i * KERNEL_NS;
	*r = (msptiActivityApi){.kind = flooded,
				.start = start,
				.end = start + KERNEL_NS / 2,
				.pt = {(uint32_t)getpid(), sim_thread_id()},
				.correlationId = i + 1,
				.name = names[i % NAMES]};
}

/* Two records make one range. */
static void fill_marker(msptiActivityMarker *r, uint64_t i, uint64_t from)
{
	int end = i % 2;
	*r = (msptiActivityMarker){.kind = MSPTI_ACTIVITY_KIND_MARKER,
				   .flag = end ? MSPTI_ACTIVITY_FLAG_MARKER_END
					       : MSPTI_ACTIVITY_FLAG_MARKER_START,
				   .timestamp = from + i * KERNEL_NS,
				   .id = i / 2 + 1,
				   .name = end ? NULL : names[i / 2 % NAMES]};
	r->objectId.pt.processId = (uint32_t)getpid();
	r->objectId.pt.threadId = sim_thread_id();
}

static int put_one(uint64_t i, uint64_t from, int waits)
{
	union {
		msptiActivityKernel kernel;
		msptiActivityApi api;
		msptiActivityMarker marker;
	} r;
	if (flooded == MSPTI_ACTIVITY_KIND_KERNEL)
		fill_kernel(&r.kernel, i, from);
	else if (flooded == MSPTI_ACTIVITY_KIND_MARKER)
		fill_marker(&r.marker, i, from);
	else
		fill_api(&r.api, i, from);
	return waits ? buffer_try(&r, record_size(flooded)) : buffer_put(&r, record_size(flooded));
}

static void *flood_main(void *arg)
{
	(void)arg;
	const char *drop = getenv("SIM_MSPTI_FLOOD_DROP");
	int waits = !drop || *drop != '1';
	uint64_t from = sim_wall_ns(sim_now_ns());
	pthread_setname_np(pthread_self(), "sim-mspti-flood");
	for (uint64_t i = 0; i < left && sim_feed_wants(flooded);) {
		int full = 0;
		buffer_lock();
		for (int n = 0; n < BATCH && i < left && !full; n++) {
			full = put_one(i, from, waits) && waits;
			i += !full;
		}
		buffer_unlock();
		if (full)
			nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
	}
	return NULL;
}

static int can_flood(long kind)
{
	return kind == MSPTI_ACTIVITY_KIND_KERNEL || kind == MSPTI_ACTIVITY_KIND_MARKER ||
	       kind == MSPTI_ACTIVITY_KIND_API ||
	       (kind >= MSPTI_ACTIVITY_KIND_ACL_API && kind <= MSPTI_ACTIVITY_KIND_RUNTIME_API);
}

void flood_begin(msptiActivityKind kind)
{
	static _Atomic int begun;
	const char *text = getenv("SIM_MSPTI_FLOOD");
	char *end;
	pthread_t thread;
	if (!text || !*text)
		return;
	uint64_t count = strtoull(text, &end, 10);
	long wanted = *end == ':' ? strtol(end + 1, NULL, 10) : MSPTI_ACTIVITY_KIND_KERNEL;
	if (!count || (long)kind != wanted || !can_flood(wanted) || atomic_exchange(&begun, 1))
		return;
	left = count;
	flooded = kind;
	for (int i = 0; i < NAMES; i++)
		snprintf(names[i], sizeof(names[i]), "SyntheticKernel_%d", i);
	if (!pthread_create(&thread, NULL, flood_main, NULL))
		pthread_detach(thread);
}
