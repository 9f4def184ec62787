/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A source of metrics read by a thread of its own, because a driver may hang. What it read comes to
 * the loop as an event; the loop never waits for the thread, not even at the end.
 */
#ifndef SONDE_DAEMON_METRICS_READER_H
#define SONDE_DAEMON_METRICS_READER_H

#include <event2/event.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "device/metrics.h"

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

#endif
