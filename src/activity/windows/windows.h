/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Where activities go: follows the windows of every process' monitor and writes what each was
 * requested for: metrics for the daemon, a DB, Jsonl, or the trace of some steps. Fed by the event
 * stream like the track, beside it. One thread uses it: the recorder's.
 *
 * Memory is bounded: by distinct names, by marks that have not ended (limited, and counted), by
 * what a trace may hold.
 */
#ifndef SONDE_ACTIVITY_WINDOWS_WINDOWS_H
#define SONDE_ACTIVITY_WINDOWS_WINDOWS_H

#include "recorder/stream.h"

#include <stdbool.h>
#include <stdint.h>

struct activities;
struct checkpoint_ops;
extern const struct checkpoint_ops
	activities_checkpoint; /* activity/windows/checkpoint.c, see recorder/consumer.h */

struct activities *activities_new(void);
/* For who reads a recording: windows of `sonde record` go to these ops, with their state set to
 * arg; the others are nobody's. Nothing is sent or written, and no process is looked for. */
struct window_ops;
struct activities *activities_new_reader(const struct window_ops *ops, void *arg);
void activities_free(struct activities *a); /* closes what is open */

/* The listener: pass it to stream_frame() or stream_file() with the activities as argument. */
extern const struct stream_ops activities_stream;

/* Reports that are due; now is CLOCK_MONOTONIC. Cheap if nothing is. */
void activities_tick(struct activities *a, uint64_t now_ns);
/* Is the trace of some steps being taken? Then reports are due often. */
bool activities_are_tracing(const struct activities *a);
/* Everything is in its file, and reports that were due are on their way to the daemon. */
void activities_flush(struct activities *a);
/* How many of the activities that came so far are where every window wants them: in a file, sent.
 */
uint64_t activities_written(const struct activities *a);
/* Traces that have ended are still being written, beside everything else. */
bool activities_are_writing(const struct activities *a);

#endif
