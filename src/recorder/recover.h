/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * After a death of job and recorder together: what the rings still hold goes behind what the
 * recording already has, once, and the dumps are written anew from the whole.
 */
#ifndef SONDE_RECORDER_RECOVER_H
#define SONDE_RECORDER_RECOVER_H

#include "base/containers/buf.h"
#include "base/err.h"

/* Adds to `report` what was found and done, for people; void after a failure. -EBUSY while a
 * recorder is alive. */
int recover_recording(const char *dir, struct buf *report, struct err *err);

#endif
