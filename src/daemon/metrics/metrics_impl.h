/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Inside the metrics hub: what its files share. */
#ifndef SONDE_DAEMON_METRICS_METRICS_IMPL_H
#define SONDE_DAEMON_METRICS_METRICS_IMPL_H

#include <event2/event.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/containers/hmap.h"
#include "base/err.h"
#include "daemon/metrics/history.h"
#include "daemon/metrics/metrics.h"
#include "daemon/user_limit.h"
#include "device/metrics.h"

/* --- store --- */

/*
 * The latest sample of every source and device, and of every kind of activity, with sums of what
 * adds up. Bounded: what processes send cannot make it grow without end.
 */

#define STORE_MAX 1024 /* samples kept */
#define STORE_DATA_MAX 512 /* of them what processes send: devices always find room */
#define STORE_FORGET_S 600 /* what was silent for so long makes room for others */

/* A sample that owns what it points to: one block of memory. */
struct stored {
	struct sample sample;
	uint64_t heard_ns; /* CLOCK_MONOTONIC, when it was stored */
	uint64_t
		interval_ns; /* since the one before it: what is counted is of this time; 0: none */
	uint64_t records; /* how many of its key there were */
	double *sums; /* of each metric, since the first */
	struct stored *next; /* for lists of its owner */
};

struct stored *stored_copy(const struct sample *s); /* free() it */

struct store {
	struct hmap index; /* hash of the key -> position */
	struct stored **items;
	size_t n, cap, ndata;
	struct hmap per_uid; /* how many of what processes sent each user has */
	uint64_t full_until_ns; /* before that nothing of a user's own can make room */
	uint64_t refused; /* samples that found no room */
};

/* Keeps a copy in the place of the last one of its source, user, device, kind and domain. False:
 * there is no room for one more. Where processes have filled it, the user with most of them loses
 * one to another who has fewer: nobody's made-up kinds keep those of others out. */
bool store_put(struct store *st, const struct sample *s, uint64_t now_ns);
void store_release(struct store *st);

/* --- reader --- */

/*
 * A source of metrics read by a thread of its own, because a driver may hang. What it read comes to
 * the loop as an event; the loop never waits for the thread, not even at the end.
 */

#define READER_HANGS_S 30 /* a round that takes longer is logged */

enum reader_state {
	READER_OPENING,
	READER_ABSENT, /* no such hardware here */
	READER_FAILED, /* it could not be opened */
	READER_WORKS,
};

struct reader;

struct reader_options {
	const struct metrics_source *source;
	struct metrics_options options; /* texts are borrowed */
	unsigned interval_s;
	bool requested; /* by name: its absence is worth a warning */
	sample_fn fn; /* called on the loop */
	void *arg;
};

int reader_new(struct event_base *base, const struct reader_options *o, struct reader **out,
	       struct err *err);
/* Comes back at once; the thread closes the source when its round is over. r may be NULL. */
void reader_free(struct reader *r);

/* Hardware counters off or on. False: the source has none, or is not there. */
bool reader_pause(struct reader *r, bool paused);

struct reader_info {
	const char *source;
	bool has_thread; /* rounds of its own */
	enum reader_state state;
	double round_s; /* of a round that is going on: since when; else 0 */
	uint64_t failures;
	char why[256]; /* the last failure */
};
struct reader_info reader_info(struct reader *r);
const char *reader_state_text(enum reader_state state);

/* --- the hub --- */

#define METRICS_SINKS 4
#define METRICS_READERS 2

/* A source that is read on the loop: files of /proc and counters of the kernel never hang. */
struct metrics_loop {
	const struct metrics_source *source;
	void *self; /* NULL: not opened */
	struct event *timer;
	unsigned interval_s;
	uint64_t failures;
	char why[256]; /* the last failure */
	struct metrics *hub;
};

struct metrics {
	struct daemon *d;
	struct store store;
	struct history history;
	struct sink *sinks[METRICS_SINKS];
	unsigned nsinks;
	struct metrics_loop loops[2]; /* kernel, perf */
	struct reader *readers[METRICS_READERS];
	unsigned nreaders;
	bool found_opened; /* devices that were found are read */
	struct event *resume; /* of what was paused */
	struct user_limit *record_limit; /* of what processes send, for sinks; NULL: none */
	uint64_t bad_data; /* messages of monitors that could not be used */
};

/* The state of source i; false: there is none. */
#define METRICS_SOURCES (2 + METRICS_READERS)
bool metrics_source_info(const struct metrics *m, unsigned i, struct reader_info *out);

/* Whether a stored sample is too old to be shown. */
bool metrics_is_stale(const struct metrics *m, const struct stored *s, uint64_t now_ns);

#endif
