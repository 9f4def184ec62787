/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Leaks between marks: marks.c follows and judges, marks_report.c writes text and JSON. */
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
	struct names names; /* of the marks there are, at most MAX_NAMES … */
	uint64_t *counts; /* … and how many of each */
	size_t cap_counts;
	uint64_t steps; /* that the program marked by a call … */
	uint64_t ranges; /* … or by ranges */
};

/* --- what was leaked --- */

enum mark_problem { MARK_TROUBLE_NONE, MARK_TROUBLE_FEW, MARK_TROUBLE_START };

struct mark_result {
	const struct block_process *process;
	uint32_t device;
	const struct mark_window *window;
	bool of_process; /* the marks are */
	enum mark_problem problem;
	const struct mark_entry **leaks; /* in the order of rows */
	size_t nleaks;
	uint64_t bytes;
};

struct mark_results {
	struct mark_result *list;
	size_t n, cap;
};

/* What was leaked on each device. Release it. */
void marks_judge(const struct marks *m, struct mark_results *out);
void marks_results_release(struct mark_results *r);

/* marks_report.c: of struct analysis_ops */
void marks_text(struct analysis *a, const struct analysis_style *style, struct buf *out);
json_t *marks_json(struct analysis *a, unsigned top);

#endif
