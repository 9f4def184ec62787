/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "activity/live/histogram.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define STEPS 32u
#define STEP_BITS 5u
#define MAX_BITS 44u /* five hours; what is longer counts as that */
#define SLACK 8u

static unsigned step_of(uint64_t ns)
{
	if (ns < STEPS)
		return (unsigned)ns;
	if (ns >> MAX_BITS)
		ns = (1ull << MAX_BITS) - 1;
	unsigned top = 63u - (unsigned)__builtin_clzll(ns);
	return (top - STEP_BITS + 1) * STEPS + (unsigned)(ns >> (top - STEP_BITS) & (STEPS - 1));
}

static uint64_t middle_of(unsigned step)
{
	if (step < STEPS)
		return step;
	unsigned shift = step / STEPS - 1;
	return ((uint64_t)(STEPS + step % STEPS) << shift) + ((1ull << shift) >> 1);
}

static void widen_range(struct histogram *h, unsigned step)
{
	unsigned from = step > SLACK ? step - SLACK : 0, to = step + SLACK;

	if (h->n && h->base < from)
		from = h->base;
	if (h->n && h->base + h->n > to)
		to = h->base + h->n;
	uint32_t *counts = xcalloc(to - from, sizeof(*counts));
	if (h->n)
		memcpy(counts + (h->base - from), h->counts, h->n * sizeof(*counts));
	free(h->counts);
	h->counts = counts;
	h->base = (uint16_t)from;
	h->n = (uint16_t)(to - from);
}

void histogram_add(struct histogram *h, uint64_t ns)
{
	unsigned step = step_of(ns);

	if (step < h->base || step >= (unsigned)h->base + h->n)
		widen_range(h, step);
	h->counts[step - h->base]++;
	h->total++;
}

uint64_t histogram_quantile(const struct histogram *h, double part)
{
	double want = ceil((double)h->total * part);
	uint64_t seen = 0;

	for (unsigned i = 0; i < h->n; i++) {
		seen += h->counts[i];
		if (h->counts[i] && (double)seen >= want)
			return middle_of(h->base + i);
	}
	return 0;
}

void histogram_release(struct histogram *h)
{
	free(h->counts);
	*h = (struct histogram){0};
}
