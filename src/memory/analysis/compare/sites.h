/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Two recordings compared by call site: what the blocks of each held at most, and what was left of
 * them. For any recording, since every block comes from somewhere; without call stacks blocks are
 * told apart by their sizes. Call sites of the two sides are the same if their shown frames are, or
 * if these have the same functions in the same files and lines have moved (groups/moved_lines.h).
 *
 * What is kept grows with live blocks and with call sites. In JSON:
 *
 *	identical, what ("site")
 *	devices[]      device, base_peak_bytes, compare_peak_bytes, diff_bytes: all processes together
 *	moved_sites    how many call sites have other lines in compare
 *	sites_total, sites[]   those that differ, the largest difference first: device, pool, name (the
 *	               frames, innermost first), base_name (null, unless its lines are others),
 *	               held_at_most and left: {base_bytes, compare_bytes, diff_bytes}, allocations:
 *	               {base, compare}
 *	notes[]
 */
#ifndef SONDE_MEMORY_ANALYSIS_COMPARE_SITES_H
#define SONDE_MEMORY_ANALYSIS_COMPARE_SITES_H

#include "memory/analysis/common/blocks.h"
#include "memory/analysis/common/report.h"
#include "memory/analysis/compare/compare.h"
#include "memory/analysis/peak/device_peaks.h"

/* What the blocks of one call site came to. */
struct site_sum {
	uint64_t allocations;
	uint64_t live, most; /* bytes */
	uint64_t left;
};

/* A call site as one side has it: blocks of all call stacks that look the same, or of one size.
 * They are added up as they come and go, so that `most` was held at one moment. */
struct site_place {
	uint32_t device;
	enum row_type type;
	uint32_t name;
	struct site_sum sum;
};

struct sites_side {
	struct blocks *blocks;
	struct device_peaks peaks;
	struct hmap by_stack, by_name; /* index in places */
	struct site_place *places;
	size_t nplaces, cap;
};

/* A call site of both. */
struct site {
	uint32_t device;
	enum row_type type;
	uint32_t name, base_name; /* not the same: lines have moved */
	struct site_sum base, compare;
};

struct compare_sites {
	struct sites_side side[2];
	struct names *names;
	struct site *sites; /* after sites_finish(): the largest difference first */
	size_t nsites, cap, ndifferent, nmoved;
};

struct compare_sites *sites_new(struct names *names);
void sites_free(struct compare_sites *s); /* s may be NULL */
void sites_add(struct compare_sites *s, enum compare_side side, const struct row *row);
bool sites_unordered(const struct compare_sites *s, enum compare_side side);
void sites_restart(struct compare_sites *s, enum compare_side side);
/* -ENODATA: neither side has a block. */
int sites_finish(struct compare_sites *s, struct err *err);
void sites_text(struct compare_sites *s, const struct report *r);
void sites_json(struct compare_sites *s, unsigned top, json_t *out);

#endif
