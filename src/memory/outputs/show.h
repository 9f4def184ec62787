/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What happened, in words: a recording or a dump as a summary. */
#ifndef SONDE_MEMORY_OUTPUTS_SHOW_H
#define SONDE_MEMORY_OUTPUTS_SHOW_H

#include "base/containers/buf.h"
#include "base/err.h"

#include <stdbool.h>

/* path: a recording, its directory, or a dump (csv or db). `top` limits every list. */
int show_recording(const char *path, bool json, unsigned top, bool colour, struct buf *out,
		   struct err *err);

#endif
