/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What the windows of `sonde record` come to, in the recorder that makes the recording. */
#ifndef SONDE_ACTIVITY_WINDOWS_RECORD_H
#define SONDE_ACTIVITY_WINDOWS_RECORD_H

#include <stdint.h>

#include "activity/steps/step_split.h"

struct record_totals {
	unsigned windows, devices;
	uint64_t activities, lost; /* of windows that have closed, like the rest */
	/* Between the first and the last work of each device: the time of a part that is not hidden
	 * behind the parts before it. */
	uint64_t part_ns[SPLIT_PARTS];
};

const struct record_totals *record_totals(void);

#endif
