/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What the processes of a job are and have in memory, for the recording: their rank and how they
 * ended (REC_PROCESS), and, where host memory is recorded, samples of their memory (REC_USAGE), so
 * that answers can compare the blocks that were seen with what the kernel counts. The recorder asks
 * the kernel, out of the job's way: every tenth of a second at first, then less often, once a
 * second in the end; a list of all mappings less often than that, and never for more than a
 * hundredth of the time.
 */
#ifndef SONDE_MEMORY_TRACK_JOB_MEMORY_H
#define SONDE_MEMORY_TRACK_JOB_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/containers/buf.h"
#include "memory/track/track.h"
#include "recorder/consumer.h"

struct job_memory;

struct job_memory *job_memory_new(void);
void job_memory_free(struct job_memory *h); /* h may be NULL */

/*
 * A few compares, unless a sample is due. now: the launched process is about to end, so that this
 * is the last chance. True: the payload of a FRAME_BATCH was added to batch.
 */
bool job_memory_poll(struct job_memory *h, const struct track *t, bool now, struct buf *batch);

/* A process has ended: what is known about that comes with the next poll. */
void job_memory_ended(struct job_memory *h, const struct dead_process *p);

#endif
