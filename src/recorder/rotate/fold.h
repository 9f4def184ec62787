/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A recording without its oldest part: what that part comes to (struct base_ops, consumer.h), then
 * the rest as it is. Reads one file and writes another; rotate.c has it done beside the recorder.
 */
#ifndef SONDE_RECORDER_ROTATE_FOLD_H
#define SONDE_RECORDER_ROTATE_FOLD_H

#include "base/err.h"
#include "recorder/consumer.h"

#include <stdint.h>

#define FOLD_BASES 4

struct fold_order {
	const char *from; /* the recording */
	const char *to; /* the new one; it must not exist */
	uint64_t end; /* so much of `from` is looked at: whole frames */
	uint64_t keep_bytes; /* of it stay about so many; or, if that is not 0: */
	uint64_t keep_from_ns; /* what happened from then on stays */
	uint64_t limit_bytes; /* that was asked for: for frame_cut; 0: a time was */
	const struct base_ops *bases[FOLD_BASES]; /* the first one knows steps */
	unsigned nbases;
};

/* out_base_bytes: that the base takes in the new file. */
int fold_recording(const struct fold_order *order, uint64_t *out_base_bytes, struct err *err);

#endif
