/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * How often which duration was seen: 32 equal steps for each power of two, so that an answer is at
 * most 1.6 % away from a value that was there. Only the range that occurs is kept: most kernels
 * need less than a hundred counters.
 */
#ifndef SONDE_ACTIVITY_LIVE_HISTOGRAM_H
#define SONDE_ACTIVITY_LIVE_HISTOGRAM_H

#include <stdint.h>

/* Zero-initialise and release. */
struct histogram {
	uint32_t *counts;
	uint16_t base, n; /* counts[0] is of the step `base` */
	uint64_t total;
};

void histogram_add(struct histogram *h, uint64_t ns);
/* The smallest value that at least this part (0 to 1) of all do not exceed; 0 if there are none. */
uint64_t histogram_quantile(const struct histogram *h, double part);
void histogram_release(struct histogram *h);

#endif
