/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A trace for ui.perfetto.dev as protobuf: tracks in a tree, slices, instants, counters, arrows. It is
 * written as events come and can be loaded at every moment; memory grows with tracks and distinct
 * names alone.
 *
 * Each track is a packet sequence of its own: its names are interned there, its uuid is the default,
 * and its times are differences to the event before. So an event takes some ten bytes. Events of a track
 * have to come in order of time; one that is older is written with its whole time, and the viewer sorts.
 * Slices of a track must be nested.
 *
 *	Trace { packet: TracePacket {timestamp, trusted_packet_sequence_id, track_event {…}} … }
 *
 * Not thread safe.
 */
#ifndef SONDE_FORMATS_PERFETTO_PERFETTO_H
#define SONDE_FORMATS_PERFETTO_PERFETTO_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "formats/chrome_trace/chrome_trace.h" /* struct chrome_arg */

struct perfetto_trace;

/* Replaces what is there. With gzip the file is compressed, which viewers know. */
int perfetto_trace_new(const char *path, bool gzip, struct perfetto_trace **out, struct err *err);
/* Frees the trace also on failure. */
int perfetto_trace_close(struct perfetto_trace *t, struct err *err);
uint64_t perfetto_trace_bytes(const struct perfetto_trace *t); /* before they are compressed */

struct perfetto_track {
	uint32_t parent; /* number of a track; 0: none */
	const char *name;
	int32_t order; /* among those of the same parent: lower ones are above */
	enum { PERFETTO_PLAIN, PERFETTO_COUNTER, PERFETTO_COUNTER_BYTES } kind;
};
/* The number of a new track, from 1 on. */
uint32_t perfetto_add_track(struct perfetto_trace *t, const struct perfetto_track *track);

struct perfetto_event {
	uint32_t track;
	uint64_t time_ns; /* wall clock */
	const char *name; /* compared by pointer: interned (base/containers/intern.h) */
	const struct chrome_arg *args; /* keys are interned */
	unsigned nargs;
	bool plain_texts; /* texts of args are not interned, and come once */
	uint64_t
		flow; /* events with the same number are connected by arrows, in order of time; 0: none */
};
void perfetto_begin(struct perfetto_trace *t, const struct perfetto_event *e);
void perfetto_end(struct perfetto_trace *t, uint32_t track, uint64_t time_ns);
void perfetto_instant(struct perfetto_trace *t, const struct perfetto_event *e);
void perfetto_counter(struct perfetto_trace *t, uint32_t track, uint64_t time_ns, int64_t value);
void perfetto_counter_double(struct perfetto_trace *t, uint32_t track, uint64_t time_ns,
			     double value);

#endif
