/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * From the stacks of a round to records (wire/record.h, REC_FRAME and REC_SAMPLE): a tree of calls,
 * in which a stack is its innermost one. One thread uses it, that of the sampler.
 */
#ifndef SONDE_SAMPLER_RECORD_SAMPLES_H
#define SONDE_SAMPLER_RECORD_SAMPLES_H

#include "base/containers/buf.h"
#include "sampler/rounds/targets.h"

#include <stdint.h>

#define SAMPLES_MAX_FRAMES (1u << 20) /* distinct ones; stacks with more are counted, and cut */

struct samples;
struct checkpoint_ops;
extern const struct checkpoint_ops
	samples_checkpoint; /* sampler/record/checkpoint.c, see recorder/consumer.h */

struct samples_counts {
	uint64_t samples; /* of threads, whether they have changed or not */
	uint64_t cut; /* stacks of which the innermost calls are not shown: there is no room */
	unsigned processes;
};

struct samples *samples_new(void);
void samples_free(struct samples *s);

/* After a round, of one that is open. */
void samples_add(struct samples *s, struct target *t, struct buf *out);
void samples_renamed(struct samples *s, const struct target *t, struct buf *out);
void samples_gone(struct samples *s, struct target *t, uint64_t time_ns, struct buf *out);
/* The command of a process of which nothing else is known. */
void samples_put_name(struct buf *out, uint64_t time_ns, uint32_t pid, const char *command);
/* The number that the process has for itself, as records have it. */
uint32_t samples_own_pid(const struct target *t);
/* Sampling pauses, or ends. */
void samples_end_all(struct samples *s, uint64_t time_ns, struct buf *out);

const struct samples_counts *samples_counts(const struct samples *s);

#endif
