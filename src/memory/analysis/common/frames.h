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
#include <stdint.h>

#include "base/containers/buf.h"

struct frame_line {
	const char *text;
	size_t len;
};

/* Without the quotes that a database keeps, the last newline, and the words for "none". */
struct frame_line frame_trim(const char *text, size_t len);

/* Takes the next line off *text; false at the end. Empty lines are passed over. */
bool frame_next(const char **text, struct frame_line *out);

/* Whose code a frame is. For Python files the rule is that of unwind/python/origin.h. */
enum frame_origin {
	FRAME_USER, /* written for this job */
	FRAME_PACKAGE, /* a framework's, or of another installed package */
	FRAME_SYSTEM, /* ours, the driver's, an allocator's, the C, C++ or Python library's */
};
enum frame_origin frame_origin(const struct frame_line *line, bool python);
/* Of a Python package of ours, which works inside the job: no place that a user looks for. */
bool frame_is_own(const struct frame_line *line, bool python);
/* "...": stands for frames that were not recorded. */
bool frame_is_cut(const struct frame_line *line);
/* Of a framework, and says nothing: stands between the user's line and what it called. */
bool frame_is_wrapper(const struct frame_line *line, bool python);
/* An outermost frame that every thread of C has? */
bool frame_is_root(const struct frame_line *line);
/* A C frame of CPython, and whether it evaluates frames of Python? */
bool frame_is_interpreter(const struct frame_line *line, bool *out_evaluates);
/* The function as recorded, or what stands for it; never empty. */
struct frame_line frame_function(const struct frame_line *line, bool python);

/*
 * The frames that name a call stack, innermost first, at most max: those of the user's own code. If
 * there are none, of Python those of packages; if there are none either, one of ours ("sonde itself")
 * or else the innermost ones.
 */
size_t frames_pick(const char *text, bool python, struct frame_line *out, size_t max);
/* What of a framework the frame of the user's code called, which is a line of the same text; false:
 * nothing worth a word. */
bool frames_via(const char *text, const struct frame_line *user, bool python,
		struct frame_line *out);

/* The same in parts, for files that have a place for each: the function as people write it is added to
 * `name`. File and line are "" and 0 if they are not known; of C the module stands for the file. */
struct frame_parts {
	struct frame_line file;
	uint32_t line;
};
void frame_take_apart(const struct frame_line *line, bool python, struct buf *name,
		      struct frame_parts *out);

/* Adds "function (file:line)" or "function (module)", or the line as it is; printable, C++ as people
 * write it. */
void frame_describe(const struct frame_line *line, bool python, struct buf *out);

/* The function alone, if it says enough: "Linear.forward", "at::empty", else as above. */
void frame_describe_call(const struct frame_line *line, bool python, struct buf *out);

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

/* Which frames are shown. */
struct frame_choice {
	enum frames_which {
		FRAMES_USEFUL, /* from the innermost of the user's own code on */
		FRAMES_USER, /* of the user's own code alone */
		FRAMES_ALL,
	} which;
	unsigned most; /* 0: as many as people read, or all of them if all were asked for */
};

/*
 * The chosen frames of a call stack, in call order, innermost first; either text may be NULL. Those
 * of Python stand in the place of the interpreter's. If the interpreter ran several of them in one
 * of its own frames, nobody knows which C functions came between: these are left out.
 */
void frames_join(const char *py, const char *c, enum frames_which which, struct frame_list *out);
/* Cuts it to what was asked for, from the middle: both ends stay. */
void frames_shorten(struct frame_list *list, const struct frame_choice *choice);
void frame_list_release(struct frame_list *list);

#endif
