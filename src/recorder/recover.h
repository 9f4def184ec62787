/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * After a death of job and recorder together: what the rings still hold goes behind what the
 * recording already has, once, and the dumps are written anew from the whole.
 */
#ifndef SONDE_RECORDER_RECOVER_H
#define SONDE_RECORDER_RECOVER_H

#include "base/containers/buf.h"
#include "base/err.h"

#include <stdbool.h>

/* What a person allows beyond the recording's own place (recover_places.h). NULL: nothing. */
struct recover_options {
	const char *output; /* dumps are written below this directory */
	const char *rings; /* rings are taken from this one, and deleted there */
	bool recording_alone; /* nothing else is written anew, whatever the recording says */
};

/* Adds to `report` what was found and done, for people; void after a failure. -EBUSY while a
 * recorder is alive. Root has given its rights up afterwards, if the recording is not its own. */
int recover_recording(const char *dir, const struct recover_options *options, struct buf *report,
		      struct err *err);

#endif
