/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "sim/feed.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "sim/state.h"

struct sim_feed sim_feed;

static int64_t wall_minus_mono;
static _Atomic uint64_t last_correlation;
static __thread uint64_t correlation;
static __thread uint32_t tid;

static int64_t clock_ns(clockid_t id)
{
	struct timespec ts;
	clock_gettime(id, &ts);
	return (int64_t)ts.tv_sec * 1000000000ll + ts.tv_nsec;
}

/* The best of some tries: the one that nothing came in between. */
static int64_t measure_wall_offset(void)
{
	int64_t best = INT64_MAX;
	int64_t offset = 0;
	for (int i = 0; i < 8; i++) {
		int64_t before = clock_ns(CLOCK_MONOTONIC);
		int64_t wall = clock_ns(CLOCK_REALTIME);
		int64_t after = clock_ns(CLOCK_MONOTONIC);
		if (after - before < best) {
			best = after - before;
			offset = wall - (before + (after - before) / 2);
		}
	}
	return offset;
}

/* SIM_WALL_MINUS_MONO: ranks of one job take that of their launcher, so that a common moment has
 * one time. */
static __attribute__((constructor)) void read_clocks(void)
{
	const char *text = getenv("SIM_WALL_MINUS_MONO");
	char *end = NULL;
	long long v = text ? strtoll(text, &end, 10) : 0;
	wall_minus_mono = text && *text && !*end ? v : measure_wall_offset();
}

uint64_t sim_wall_ns(uint64_t mono_ns)
{
	return mono_ns + (uint64_t)wall_minus_mono;
}

static void forget_thread(void)
{
	tid = 0;
}

uint32_t sim_thread_id(void)
{
	if (!tid) {
		static _Atomic int watched;
		if (!atomic_exchange(&watched, 1))
			pthread_atfork(NULL, NULL, forget_thread);
		tid = (uint32_t)gettid();
	}
	return tid;
}

void sim_feed_take(const void *record, size_t size)
{
	if (sim_feed_wanted())
		sim_feed.ops->take(record, size);
}

void sim_feed_mark(const struct sim_mark *m)
{
	sim_feed_stream_fn on_stream =
		atomic_load_explicit(&sim_feed.mark_stream, memory_order_acquire);
	uint64_t now = sim_now_ns();
	int32_t flag = m->flag;
	if (m->stream && on_stream && !on_stream(m->stream, m->id, flag << 3))
		flag <<= 3; /* as numbered: with device */
	msptiActivityMarker r = {.kind = MSPTI_ACTIVITY_KIND_MARKER,
				 .flag = flag,
				 .sourceKind = MSPTI_ACTIVITY_SOURCE_KIND_HOST,
				 .timestamp = sim_wall_ns(now),
				 .id = m->id,
				 .name = m->message,
				 .domain = m->domain};
	r.objectId.pt.processId = (uint32_t)getpid();
	r.objectId.pt.threadId = sim_thread_id();
	sim_feed_take(&r, sizeof(r));
}

uint64_t sim_call_correlation(void)
{
	return correlation;
}

void sim_call_begin(struct sim_call *c, int32_t kind, const char *name)
{
	c->kind = kind;
	c->name = name;
	c->user = 0;
	c->outermost = !correlation;
	if (c->outermost) {
		correlation = atomic_fetch_add(&last_correlation, 1) + 1;
		if (sim_feed_wants(MSPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION))
			sim_feed.ops->external(correlation);
	}
	c->correlation = correlation;
	if (sim_feed_wanted() & SIM_FEED_CALLBACKS)
		sim_feed.ops->call(c, MSPTI_API_ENTER, NULL);
	c->start = sim_now_ns();
}

void sim_call_end(struct sim_call *c, int result)
{
	uint64_t end = sim_now_ns();
	if (sim_feed_wanted() & SIM_FEED_CALLBACKS)
		sim_feed.ops->call(c, MSPTI_API_EXIT, &result);
	if (sim_feed_wants(c->kind)) {
		msptiActivityApi r = {.kind = c->kind,
				      .start = sim_wall_ns(c->start),
				      .end = sim_wall_ns(end),
				      .correlationId = c->correlation,
				      .name = c->name};
		r.pt.processId = (uint32_t)getpid();
		r.pt.threadId = sim_thread_id();
		sim_feed.ops->take(&r, sizeof(r));
	}
	if (c->outermost)
		correlation = 0;
}
