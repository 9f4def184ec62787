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

/* Does it only pass an allocation on: ours, the driver's, an allocator's, the C or C++ library's,
 * (Python) an installed package's? */
bool frame_is_plumbing(const struct frame_line *line, bool python);
/* An outermost frame that every thread of C has? */
bool frame_is_root(const struct frame_line *line);
/* A C frame of CPython, and whether it evaluates frames of Python? */
bool frame_is_interpreter(const struct frame_line *line, bool *out_evaluates);
/* The function as recorded, or what stands for it; never empty. */
struct frame_line frame_function(const struct frame_line *line, bool python);

/*
 * The lines worth showing, at most max: from the innermost that is not plumbing. Falls back on the
 * innermost ones.
 */
size_t frames_pick(const char *text, bool python, struct frame_line *out, size_t max);

/* Adds "function (file:line)" or "function (module)", or the line as it is; printable, C++ as people
 * write it. */
void frame_describe(const struct frame_line *line, bool python, struct buf *out);

/* --- whole call stacks --- */

struct shown_frame {
	struct frame_line line;
	bool python;
	bool cut; /* no frame: stands for those that are left out */
};

struct frame_list {
	struct shown_frame *list;
	size_t n, cap;
};

/*
 * The frames of a call stack worth showing, in call order, innermost first; either text may be
 * NULL. Those of Python stand in the place of the interpreter's. If the interpreter ran several of
 * them in one of its own frames, nobody knows which C functions came between: these are left out.
 */
void frames_join(const char *py, const char *c, struct frame_list *out);
/* Cuts it to what people read, from the middle: both ends stay. */
void frames_shorten(struct frame_list *list);
void frame_list_release(struct frame_list *list);

#endif
