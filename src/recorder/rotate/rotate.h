/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A recording that stays below a number of bytes. When it has grown, a copy of the recorder writes
 * a new file beside it that lacks the oldest part (drop_oldest.h), while the recorder goes on. Then
 * the frames that came meanwhile are copied behind that, and the new file takes the place of the
 * old one in one step. At any moment the file of that name is whole; who reads the old one can do
 * so to its end.
 *
 * Both files together stay below the limit: work begins at 5/8 of it and leaves at most half of
 * that. Where a time is kept, it begins when the file has half as much again.
 */
#ifndef SONDE_RECORDER_ROTATE_H
#define SONDE_RECORDER_ROTATE_H

#include "recorder/consumers.h"
#include "recorder/recording.h"

#include <stdbool.h>

struct rotate;

/* For the open recording `out` at `path`, as the consumers want it; NULL: it may have any size. */
struct rotate *rotate_new(const char *path, struct recording_writer *out,
			  const struct consumers *all);
void rotate_free(struct rotate *r); /* r may be NULL, here and below */

/* Begins, or ends, what is due; cheap if nothing is. hold: nothing goes for its age. */
void rotate_tick(struct rotate *r, bool hold);
/* Is there something to do, or being done? */
bool rotate_is_due(const struct rotate *r);
/* Gives up for now and removes the new file; false: there was none. */
bool rotate_cancel(struct rotate *r);

/* Removes what a killed recorder has left of this. */
void rotate_clean(const char *recording);

#endif
