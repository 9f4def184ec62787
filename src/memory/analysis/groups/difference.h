/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The groups of two runs side by side: which modules, call sites or types hold more in one of them.
 * Groups of all processes are added up by device. Call sites whose lines have moved are paired by
 * function and file (groups/moved_lines.h).
 */
#ifndef SONDE_MEMORY_ANALYSIS_GROUPS_DIFFERENCE_H
#define SONDE_MEMORY_ANALYSIS_GROUPS_DIFFERENCE_H

#include "base/containers/hmap.h"
#include "memory/analysis/groups/groups.h"

enum difference_side { DIFFERENCE_BASE, DIFFERENCE_OTHER };

/* A group of both, or of one of them alone. */
struct group_pair {
	size_t number;
	size_t lines; /* the last of its lines, plus 1 */
	uint32_t device;
	uint32_t depth;
	bool is_rest;
	char *name;
	char *base_name; /* NULL: the same; else the lines of a call site have moved */
	int64_t bytes[2]; /* of each side; see FIELD_DIFFERENCE */
	union group_sums sums[2];
};

/* What comes from one function of a group. Lines move when a program is edited, functions do not. */
struct pair_line {
	size_t next; /* of the same group, plus 1 */
	int64_t bytes[2];
	uint64_t most; /* of one line of it, in either … */
	char *where; /* … which is this one */
};

struct groups_difference {
	unsigned by; /* enum groups_by */
	struct group_pair *list;
	size_t n, cap;
	struct hmap by_name; /* of device and name */
	struct pair_line *lines;
	size_t nlines, cap_lines;
	struct hmap by_line; /* of pair and function */
	struct group_pair *devices; /* the sums of each, without a name */
	size_t ndevices, cap_devices;
	size_t nmoved; /* call sites with a base_name */
};

void difference_add(struct groups_difference *d, enum difference_side side, uint32_t device,
		    const struct groups *g);
/* When both sides are there: the largest differences come first. */
void difference_finish(struct groups_difference *d);
void difference_release(struct groups_difference *d);

uint64_t difference_count(const struct groups_difference *d); /* of groups that differ */
void difference_text(const struct groups_difference *d, const struct report *r);
void difference_put(json_t *o, const struct groups_difference *d, unsigned top);

#endif
