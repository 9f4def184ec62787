/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What memory/analysis/leaks/marks.c (rows) and memory/analysis/leaks/marks_report.c (answers)
 * share. */
#ifndef SONDE_MEMORY_ANALYSIS_LEAKS_MARKS_IMPL_H
#define SONDE_MEMORY_ANALYSIS_LEAKS_MARKS_IMPL_H

#include "base/containers/names.h"
#include "memory/analysis/common/blocks.h"
#include "memory/analysis/leaks/marks.h"

/* A block that was allocated between A and B and is not freed yet. */
struct mark_entry {
	const struct block_pool *pool; /* NULL: the entry is not in use */
	uint64_t ptr, bytes, row, time_ns;
	uint64_t key;
	uint32_t stack;
	uint32_t older; /* entry + 1 at the same address, without allocation ids; 0: none */
};

struct mark_window {
	uint64_t marks; /* seen so far */
	struct mark_entry *entries;
	size_t nentries, cap;
	uint32_t unused; /* entry + 1; the list goes on in `older` */
	struct hmap by_key; /* newest entry, in dumps without allocation ids */
};

/* What is known of a device of a process; there is a window for the process, too. */
struct mark_device {
	uint32_t device;
	bool has_memory;
	struct mark_window window;
};

struct mark_process {
	struct mark_window all;
	struct mark_device *devices;
	size_t ndevices, cap;
};

struct marks {
	struct analysis base;
	char *text;
	unsigned start;
	struct blocks *blocks;
	struct names
		names; /* of the marks there are, and how many of each; at most MARKS_MAX_NAMES */
	uint64_t *counts;
	size_t cap_counts;
	uint64_t steps; /* that the program told by a call */
	uint64_t ranges; /* … by ranges */
};

#define MARKS_MAX_NAMES 10000u

/* --- memory/analysis/leaks/marks_report.c --- */

size_t marks_findings(struct analysis *a);
void marks_text(struct analysis *a, const struct analysis_style *style, struct buf *out);
json_t *marks_json(struct analysis *a, unsigned top);

#endif
