/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The oldest part of a recording, which was dropped to keep it below its limit. Every answer says it
 * first.
 *
 * In JSON, for every answer: dropped, null if nothing was, else
 *
 *	limit_bytes, recording_bytes, times (how often something was dropped), from_ns, until_ns,
 *	first_step, last_step (null without steps), events (that were recorded until then),
 *	ended_processes (that are not in the recording any more), kept_first_step, kept_last_step
 *	(null: none has ended since)
 *	earlier_peaks[]  pid, device, pool, bytes, time_ns: more than at any time since
 */
#ifndef SONDE_MEMORY_ANALYSIS_PROCESSES_DROPPED_H
#define SONDE_MEMORY_ANALYSIS_PROCESSES_DROPPED_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/containers/buf.h"
#include "memory/dump/row.h"
#include "wire/recording.h"

struct dropped_peak {
	uint32_t pid, device;
	enum row_type type;
	uint64_t bytes, time_ns;
};

/* Zero-initialised: nothing was dropped. */
struct dropped {
	bool yes;
	struct frame_cut cut; /* its times since the epoch */
	uint64_t newest_ns; /* the end of what was kept */
	uint64_t last_step; /* that has ended in it; cut.last_step: none has */
	uint64_t recording_bytes;
	struct dropped_peak *peaks;
	size_t npeaks, cap_peaks;
};

void dropped_release(struct dropped *d);
/* Sentences, each a line; nothing if nothing was dropped. */
void dropped_text(const struct dropped *d, struct buf *out);
json_t *dropped_json(const struct dropped *d); /* a new value */

#endif
