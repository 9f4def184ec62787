/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Where samples go: the timeline, or a profile of counted stacks; and the copies of it that are
 * saved while it grows.
 */
#ifndef SONDE_SAMPLER_SESSION_OUTPUT_H
#define SONDE_SAMPLER_SESSION_OUTPUT_H

#include "base/containers/buf.h"
#include "base/err.h"
#include "sampler/counters/counters.h"
#include "sampler/rounds/targets.h"
#include "sampler/session/options.h"

struct stack_output;

int stack_output_open(const struct stack_options *o, uint64_t start_ns, struct stack_output **out,
		      struct err *err);
/* Ends what is open and completes the file; frees it also on failure. *out_count: events of the
 * timeline, samples of the profile. */
int stack_output_close(struct stack_output *out, uint64_t end_ns, uint64_t *out_count,
		       struct err *err);

void stack_output_new(struct stack_output *out, struct target *t);
void stack_output_renamed(struct stack_output *out, struct target *t);
void stack_output_sample(struct stack_output *out, struct target *t);
/* So many steps of it have ended, as it counts them itself. */
void stack_output_steps(struct stack_output *out, const struct target *t, int64_t ended,
			uint64_t time_ns);
void stack_output_guessed_steps(struct stack_output *out, const struct target *t, int64_t ended,
				uint64_t time_ns);
void stack_output_gone(struct stack_output *out, struct target *t, uint64_t time_ns);
void stack_output_counter(struct stack_output *out, const struct counter *c);

/* What came since the last flush is in the file now. Profiles are kept until they are saved. */
int stack_output_flush(struct stack_output *out, struct err *err);

/* A complete file as of now under `path`. If that is the path of the output itself, what is in it
 * is sent to the disk. */
int stack_output_save(struct stack_output *out, const char *path, struct err *err);

/* The same under the name with the time in it, which is added to out_path. */
int stack_output_snapshot(struct stack_output *out, struct buf *out_path, struct err *err);

/* "dir/stem.<YYYYmmdd_HHMMSS>_<mmm>.ext" of "dir/stem.ext" */
void stack_output_tagged(const char *path, int64_t real_ns, struct buf *out);

#endif
