/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Progress of long work: one line on stderr that overwrites itself, only on a terminal, only when
 * the work takes more than a second. Zero-initialise.
 */
#ifndef SONDE_BASE_PROGRESS_H
#define SONDE_BASE_PROGRESS_H

#include <stdint.h>

struct progress {
	uint64_t begin_ns;
	uint64_t next_ns; /* no look at the clock before `calls` is a multiple of 64 */
	uint32_t calls;
	int shown;
};

void progress_show(struct progress *p, const char *what, uint64_t done, uint64_t total);
/* Wipes the line. */
void progress_done(struct progress *p);

#endif
