/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Where activities come from: one ops table per vendor's library. A source turns what that library
 * has noted into collect_activity() calls and keeps nothing. While it is off it holds nothing of
 * the library: no subscription, no callbacks, no buffers.
 *
 * start, change, flush and stop are called by one thread at a time, which may wait; what the
 * library calls back comes by any thread.
 */
#ifndef SONDE_DEVICE_ACTIVITY_H
#define SONDE_DEVICE_ACTIVITY_H

#include "wire/record.h"

#include <stdbool.h>
#include <stdint.h>

struct activity_source {
	const char *name; /* of the library, for people */
	uint32_t kinds; /* that it can report, ACTIVITY_BIT() each */
	/* Is it in this process, or can be? Loads nothing. */
	bool (*is_there)(void);
	/* Both take the kinds that it can report out of those given. 0 or a negative errno. */
	int (*start)(uint32_t kinds);
	int (*change)(uint32_t kinds);
	/* What has ended before this call has been reported when it returns. */
	void (*flush)(void);
	/* The same; then everything is given back. */
	void (*stop)(void);
	/* Activities that were not reported for want of room, since start. */
	uint64_t (*lost)(void);
	/* What it could not do, in words for people; "": all is well. */
	const char *(*problem)(void);
	/* From the next start or change on: launches are reported, too (collect_launch()), and
	 * each thread that launches something says what for (collect_work_launch()). NULL: it
	 * cannot. */
	void (*attribute)(bool on);
	/* While the program initialises its devices, if it was started for --attribute: launches
	 * cost less then than where that is asked for later. NULL: they do not. */
	void (*prepare)(void);
	/* Another tool in this process uses the library: nothing is reported until it is done. */
	bool (*is_paused)(void);
};

/* The process ends: what still runs on a device is not waited for any more. Any thread. */
void cupti_hurry(void);

/* A range with this message is a step of the job. */
#define ACTIVITY_STEP_MESSAGE "step start"
/*
 * What is called when a program begins a range by NVTX that may have that message (the first
 * character is the same), whether the source is on or not; by the program's own thread.
 */
void nvtx_on_range(void (*fn)(const char *message));

extern const struct activity_source mspti_source; /* ascend/activity.c */
extern const struct activity_source cupti_source; /* cuda/activity.c */

#endif
