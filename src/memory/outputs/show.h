/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What happened, in words: a recording or a dump as a summary. */
#ifndef SONDE_MEMORY_OUTPUTS_SHOW_H
#define SONDE_MEMORY_OUTPUTS_SHOW_H

#include "base/containers/buf.h"
#include "base/err.h"
#include "memory/input/input.h"

#include <stdbool.h>

struct show_style {
	bool json, colour;
	unsigned top; /* limits every list */
	const struct input_choice *choice; /* of processes; NULL: all */
};

/* path: a recording, its directory, or a dump (csv or db). */
int show_recording(const char *path, const struct show_style *style, struct buf *out,
		   struct err *err);

#endif
