/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What was alive when a device held most: by owner, by call stack, and the blocks that weigh most.
 * The height is that of the driver's bytes; of moments that are equal in those, the one with the
 * fullest pools counts.
 */
#ifndef SONDE_MEMORY_ANALYSIS_PEAK_PEAK_H
#define SONDE_MEMORY_ANALYSIS_PEAK_PEAK_H

#include "memory/analysis/common/analysis.h"
#include "memory/analysis/groups/groups.h"

struct peak_options {
	uint64_t limit_bytes; /* a device that peaks above this is a finding; 0: none is */
	struct groups_options groups; /* how the memory of the peak is divided */
};

struct analysis *peak_new(const struct peak_options *o); /* NULL: the defaults */

#endif
