/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Call sites of two runs between which somebody edited the program. "train (job.py:18) < main
 * (job.py:40)" and "train (job.py:21) < main (job.py:43)" have the same functions in the same files, so
 * they are the same if the other call sites of these functions fit, too: they come in the same order of
 * lines. Where one side has more of them, those stay alone whose memory fits worst.
 */
#ifndef SONDE_MEMORY_ANALYSIS_GROUPS_MOVED_LINES_H
#define SONDE_MEMORY_ANALYSIS_GROUPS_MOVED_LINES_H

#include <stddef.h>
#include <stdint.h>

#define MOVED_LINES 5 /* of a call site: as many frames are compared */
#define MOVED_NONE SIZE_MAX

struct moved_site {
	uint64_t group; /* equal: the same functions and files */
	uint32_t lines[MOVED_LINES];
	uint64_t bytes; /* what it held: the better this fits, the better the pair */
	size_t place; /* the caller's number of it */
	size_t pair; /* out: `place` of its counterpart, or MOVED_NONE */
};

/* Fills in group and lines from what frame_describe() wrote; context: what else must be equal. */
void moved_site_read(struct moved_site *s, const char *name, size_t len, uint64_t context);
/* Finds the pairs; changes the order of both lists. */
void moved_sites_pair(struct moved_site *base, size_t nbase, struct moved_site *compare,
		      size_t ncompare);

#endif
