/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Lines of call stacks as dumps have them, innermost first: `module(function+offset) [address]` for
 * C, with ` file:line` behind it or inside where debug information gave it, `file(line): function`
 * for Python. Anything else is shown as it is.
 */
#ifndef SONDE_MEMORY_ANALYSIS_COMMON_FRAMES_H
#define SONDE_MEMORY_ANALYSIS_COMMON_FRAMES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/containers/buf.h"

struct frame_line {
	const char *text;
	size_t len;
};

/* Without the quotes that a database keeps, the last newline, and the words for "none". */
struct frame_line frame_trim(const char *text, size_t len);

/* Takes the next line off *text; false at the end. Empty lines are passed over. */
bool frame_next(const char **text, struct frame_line *out);

/*
 * The lines worth showing, at most max: from the innermost that is neither ours nor of the driver,
 * the C library or (Python) an installed package. Falls back on the innermost ones.
 */
size_t frames_pick(const char *text, bool python, struct frame_line *out, size_t max);

/* Adds "function (file:line)" or "function (module)", or the line as it is; printable. */
void frame_describe(const struct frame_line *line, bool python, struct buf *out);

#endif
