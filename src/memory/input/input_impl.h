/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Between input.c and memory/input/recording.c; nobody else includes this. */
#ifndef SONDE_MEMORY_INPUT_INPUT_IMPL_H
#define SONDE_MEMORY_INPUT_INPUT_IMPL_H

#include "memory/input/input.h"

static inline void input_note(const struct input_sink *sink, const char *text)
{
	if (sink->note)
		sink->note(sink->arg, text);
}

/* Feeds the events of a recording, the file itself. */
int input_recording(const char *file, const struct input_sink *sink, struct err *err);

#endif
