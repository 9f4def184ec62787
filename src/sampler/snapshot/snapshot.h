/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * One look at all processes at once, with equal stacks put together: "510 ranks in all_reduce at
 * trainer.py:88, 2 ranks in load_batch at data.py:41".
 */
#ifndef SONDE_SAMPLER_SNAPSHOT_SNAPSHOT_H
#define SONDE_SAMPLER_SNAPSHOT_SNAPSHOT_H

#include <jansson.h>

#include "base/containers/buf.h"
#include "sampler/rounds/targets.h"

struct snapshot_options {
	bool all_threads; /* groups of all threads, not only of main ones */
	bool exact; /* stacks that differ only in a line inside libraries are different */
	unsigned top; /* frames shown of a stack; 0: all */
	const char *const *locals; /* functions whose variables are wanted; NULL: none */
	unsigned nlocals;
	const pid_t *named; /* said to be Python processes: told if they are none */
	unsigned nnamed;
	bool color;
};

struct snapshot;

/* Copies what the last round of the targets holds, native frames too if there are some. */
struct snapshot *snapshot_take(const struct targets *s, const struct snapshot_options *o);
void snapshot_free(struct snapshot *s);

/* How many processes it shows stacks of. */
unsigned snapshot_processes(const struct snapshot *s);
/* Equal while every process stands in the same place as before. */
uint64_t snapshot_hash(const struct snapshot *s);

/* The answer in a line or two, as snapshot_text() begins. */
void snapshot_answer(const struct snapshot *s, struct buf *out);
/* The answer, the groups with their ranks and stacks below. */
void snapshot_text(const struct snapshot *s, struct buf *out);
/* The stacks of each process under a line with its pid. */
void snapshot_dump(const struct snapshot *s, struct buf *out);
json_t *snapshot_json(const struct snapshot *s);

#endif
