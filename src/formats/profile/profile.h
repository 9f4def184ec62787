/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Stacks counted instead of drawn over time: collapsed text, speedscope, pprof, and a flame graph as
 * a picture (SVG). The same stacks are kept once; memory grows with distinct stacks, not with samples,
 * and only so far: when there is no more room, stacks that were never seen end where the known ones
 * do.
 */
#ifndef SONDE_FORMATS_PROFILE_PROFILE_H
#define SONDE_FORMATS_PROFILE_PROFILE_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

enum profile_format { PROFILE_COLLAPSED, PROFILE_SPEEDSCOPE, PROFILE_PPROF, PROFILE_FLAME };

/* Texts are compared and kept by pointer: they are interned (base/containers/intern.h). */
struct profile_frame {
	const char *name, *file;
	int32_t line, first_line;
	bool users; /* code of the user's own; a flame graph shows which */
};

struct profile;

/* What is counted: times of samples if nothing else is said. */
#define PROFILE_MAX_VALUES 4
struct profile_values {
	unsigned n;
	struct {
		const char *name, *unit; /* as pprof calls them */
	} list[PROFILE_MAX_VALUES];
	unsigned main; /* the one that is shown first, and the only one but in pprof */
	const char *title; /* speedscope's unit: "bytes" */
	const char *ids[2],
		*names[2]; /* labels of pprof for a root's pid and tid, process and thread */
};

struct profile_options {
	const struct profile_values *values; /* NULL: samples of period_ns */
	enum profile_format format;
	uint64_t period_ns; /* what one sample stands for */
	bool lines; /* lines distinguish frames, as they always do in pprof; else functions do */
	const char *title;
	int64_t start_real_ns;
	uint32_t most_nodes; /* of the trees of stacks; 0: as many as is usual */
};

struct profile *profile_new(const struct profile_options *o);
void profile_free(struct profile *p);

/* process and thread are root frames that are not Python ("process 41 rank 3", "thread 42
 * MainThread"), interned; NULL ones are left out. Frames outermost first. */
void profile_add(struct profile *p, const char *process, const char *thread, int64_t pid,
		 int64_t tid, const struct profile_frame *frames, unsigned n, uint64_t count);

/* The same with a number for each of options.values. */
void profile_add_values(struct profile *p, const char *process, const char *thread, int64_t pid,
			int64_t tid, const struct profile_frame *frames, unsigned n,
			const uint64_t *values);

/* Writes everything so far, in one step (rename); into a device or a pipe as it is. pprof is gzip,
 * as its readers expect. */
int profile_write(const struct profile *p, const char *path, struct err *err);

/* What a frame is called wherever stacks are drawn: "Trainer.step (app/train.py:41)". */

#define FRAME_LABEL_BYTES 512

/*
 * The function, and the last two parts of its file: enough to know it by, short enough for a box on
 * a screen. No line if it is 0; the function alone if the file is "". Cut where it is too long.
 */
void frame_label(char out[FRAME_LABEL_BYTES], const char *name, const char *file, int32_t line);

#endif
