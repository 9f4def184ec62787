/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * How evenly a pool is used within a step. For each step from the second on: the least memory that
 * was in use, divided by the most. A low value is a pool that fills and empties; two very different
 * values are steps that are not alike.
 *
 * In use is what rows say: `used`, and `total` for host memory. The first step is the warm-up. Rows
 * between two steps belong to the one that follows.
 *
 * The JSON object (bytes and counts are integers, ratios are numbers from 0 to 1):
 *
 *	findings       pools whose steps are uneven: the highest and the lowest ratio differ by more
 *	               than max_spread_percent
 *	pools[]        pid, device ("0", "cpu", "N/A"), pool, steps (that are compared),
 *	               min_gap, max_gap: {ratio, min_bytes, max_bytes, step}, uneven
 */
#ifndef SONDE_MEMORY_ANALYSIS_GAPS_GAPS_H
#define SONDE_MEMORY_ANALYSIS_GAPS_GAPS_H

#include "memory/analysis/common/analysis.h"

#define GAP_MAX_SPREAD_PERCENT 20

struct gap_options {
	unsigned max_spread_percent;
};

/* options may be NULL. */
struct analysis *gap_new(const struct gap_options *options);

#endif
