/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The two kinds of input: input.c finds out which it is, merge.c reads dumps, recording.c recordings. */
#ifndef SONDE_MEMORY_INPUT_INPUT_IMPL_H
#define SONDE_MEMORY_INPUT_INPUT_IMPL_H

#include "memory/input/input.h"

int input_read_dumps(const struct input_paths *paths, const struct input_sink *sink,
		     struct err *err);
int input_read_recording(const char *file, const struct input_sink *sink, struct err *err);

/* A sentence for the reader. */
__attribute__((format(printf, 2, 3))) void input_note(const struct input_sink *sink,
						      const char *fmt, ...);

#endif
