/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Profiles of stacks as a part of the model: collapsed text, speedscope's JSON, Chrome traces of
 * `sonde stack` and of others, recordings of `sonde record`. Every byte is foreign.
 */
#ifndef SONDE_REPORT_PROFILES_H
#define SONDE_REPORT_PROFILES_H

#include <jansson.h>

#include "base/containers/hmap.h"
#include "base/err.h"
#include "memory/input/input.h"
#include "report/tree.h"

enum profile_input {
	PROFILE_INPUT_NONE,
	PROFILE_INPUT_TEXT,
	PROFILE_INPUT_SPEEDSCOPE,
	PROFILE_INPUT_CHROME,
};
/* By its first bytes. */
enum profile_input profile_input_of(const char *path);

/* A profile in the making: what was spent in each node itself. */
struct stacks_read {
	struct tree *tree;
	struct hmap own; /* node to amount */
	const char *unit; /* "samples", "ns", "bytes" */
	uint64_t total, bad;
};
void stacks_read_add(struct stacks_read *s, uint32_t node, uint64_t amount);
/* The node of a label, "step (train.py:3)", below another. */
uint32_t stacks_read_node(struct stacks_read *s, uint32_t parent, const char *label, size_t len);
uint32_t stacks_read_frame(struct stacks_read *s, uint32_t parent, const char *name,
			   const char *file, int32_t line);

/* Of the text of a file, which need not end with NUL; -EBADMSG. */
int profile_read_collapsed(struct stacks_read *s, const char *text, size_t len, struct err *err);
int profile_read_speedscope(struct stacks_read *s, const char *text, size_t len, struct err *err);
int profile_read_chrome(struct stacks_read *s, const char *path, struct err *err);
/* The stacks in a recording of `sonde record`; -ENOENT: there are none. */
int profile_read_recording(struct stacks_read *s, const char *path,
			   const struct input_choice *choice, struct err *err);

/* A flame graph as a picture of its own (SVG). */
int profiles_write_svg(const char *path, const char *output, struct err *err);
/* Adds the profile to the list. */
int profiles_add(json_t *list, unsigned number, const char *path, struct tree *t, struct err *err);
/* The same of a recording, which people call `title`. */
int profiles_add_recording(json_t *list, unsigned number, const char *path, const char *title,
			   const struct input_choice *choice, struct tree *t, struct err *err);

#endif
