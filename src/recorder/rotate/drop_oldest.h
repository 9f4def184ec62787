/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A recording without its oldest part: what that part comes to (struct checkpoint_ops, consumer.h),
 * then the rest as it is. Reads one file and writes another; rotate.c has it done beside the
 * recorder.
 */
#ifndef SONDE_RECORDER_ROTATE_DROP_OLDEST_H
#define SONDE_RECORDER_ROTATE_DROP_OLDEST_H

#include "base/err.h"
#include "recorder/consumer.h"

#include <stdint.h>

#define MAX_CHECKPOINTS 4

struct drop_request {
	const char *from; /* the recording */
	const char *to; /* the new one; it must not exist */
	uint64_t end; /* so much of `from` is looked at: whole frames */
	uint64_t keep_bytes; /* of it stay about so many; or, if that is not 0: */
	uint64_t keep_from_ns; /* what happened from then on stays */
	uint64_t limit_bytes; /* that was asked for: for frame_cut; 0: a time was */
	const struct checkpoint_ops *checkpoints[MAX_CHECKPOINTS]; /* the first one knows steps */
	unsigned ncheckpoints;
};

/* out_checkpoint_bytes: that the checkpoint takes in the new file. */
int drop_oldest(const struct drop_request *request, uint64_t *out_checkpoint_bytes,
		struct err *err);

#endif
