/* SPDX-License-Identifier: MulanPSL-2.0 */
/* All sources of metrics of this machine, read in rounds in the thread of the caller. */
#ifndef SONDE_DEVICE_METRICS_READER_H
#define SONDE_DEVICE_METRICS_READER_H

#include "device/metrics.h"

#define METRICS_SOURCES 4
extern const struct metrics_source *const metrics_sources[METRICS_SOURCES];

struct metrics_reader {
	struct metrics_opened {
		void *self; /* NULL: not there */
		struct err err; /* why not, or why the last round failed */
	} sources[METRICS_SOURCES];
};

struct metrics_rounds {
	unsigned interval_s; /* what rates are over */
	bool once;
	sample_fn sample;
	/* After the samples of a round, `n` of them. False ends it. */
	bool (*round_done)(void *arg, unsigned n);
	void *arg; /* of both */
};

/* wanted: bits of metrics_sources; 0: all that are there. */
void metrics_reader_open(struct metrics_reader *r, unsigned wanted);
bool metrics_reader_has_any(const struct metrics_reader *r);
/* The first round only sets the marks for rates, and is not reported. */
void metrics_reader_run(struct metrics_reader *r, const struct metrics_rounds *rounds);
void metrics_reader_close(struct metrics_reader *r);

#endif
