/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * How the stack tells libmspti what happens. The switches lie in libsimstate, which every library
 * of the stack uses: libmspti may be preloaded, loaded later or be missing. While nothing is wanted
 * a call costs one load and a branch.
 *
 * Whoever has something to tell fills the record as MSPTI lays it out and hands it to
 * sim_feed_take(); names are copied there.
 */
#ifndef SONDE_SIM_FEED_H
#define SONDE_SIM_FEED_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "mspti/mspti.h"

/* One call of a function of the stack, from enter to exit. */
struct sim_call {
	uint64_t start; /* 0: nobody wanted it when it began */
	uint64_t correlation;
	uint64_t user; /* correlationData of callbacks */
	const char *name;
	int32_t kind; /* of its record */
	int outermost;
};

struct sim_mark {
	const char *domain; /* NULL: the default domain */
	const char *message; /* NULL: the end of a range */
	void *stream; /* NULL: host only */
	uint64_t id;
	int32_t flag; /* without device */
};

/* Set by libmspti, before any switch. */
struct sim_feed_ops {
	void (*take)(const void *record, size_t size);
	void (*call)(struct sim_call *c, msptiApiCallbackSite site, const int *result);
	int (*wants_domain)(const char *name);
	/* For a new correlation of the calling thread. */
	void (*external)(uint64_t correlation);
};

/* Notes when @stream gets there; 0, or -1 when it is no stream. */
typedef int (*sim_feed_stream_fn)(void *stream, uint64_t id, int32_t flag);

struct sim_feed {
	_Atomic uint32_t wanted; /* 1 << kind; bit 0: callbacks */
	const struct sim_feed_ops *ops;
	_Atomic(sim_feed_stream_fn) mark_stream; /* set by libruntime */
};

extern struct sim_feed sim_feed;

#define SIM_FEED_CALLBACKS 1u

static inline uint32_t sim_feed_wanted(void)
{
	return atomic_load_explicit(&sim_feed.wanted, memory_order_acquire);
}

static inline int sim_feed_wants(int32_t kind)
{
	return __builtin_expect(sim_feed_wanted() >> kind & 1, 0);
}

void sim_feed_take(const void *record, size_t size);
/* Host and, with a stream, device records of a mark. */
void sim_feed_mark(const struct sim_mark *m);

/* CLOCK_REALTIME, as all records have it, of a CLOCK_MONOTONIC moment. */
uint64_t sim_wall_ns(uint64_t mono_ns);
uint32_t sim_thread_id(void);

/* The calling thread's correlation; 0 outside of calls that somebody wanted. */
uint64_t sim_call_correlation(void);
void sim_call_begin(struct sim_call *c, int32_t kind, const char *name);
void sim_call_end(struct sim_call *c, int result);

static inline void sim_call_open(struct sim_call *c, int32_t kind, const char *name)
{
	c->start = 0;
	if (__builtin_expect(sim_feed_wanted() != 0, 0))
		sim_call_begin(c, kind, name);
}

static inline int sim_call_close(struct sim_call *c, int result)
{
	if (__builtin_expect(c->start != 0, 0))
		sim_call_end(c, result);
	__asm__ volatile("" : "+r"(result)); /* as sim_layer(): no jump instead of a call */
	return result;
}

/* The body of a function that is nothing but one call into the layer below. */
#define SIM_CALL(record_kind, expression)                                                          \
	do {                                                                                       \
		struct sim_call call_;                                                             \
		sim_call_open(&call_, record_kind, __func__);                                      \
		int result_ = (expression);                                                        \
		return sim_call_close(&call_, result_);                                            \
	} while (0)

#endif
