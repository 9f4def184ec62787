/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The inside of the peak: peak.c finds it, report.c tells it. */
#ifndef SONDE_MEMORY_ANALYSIS_PEAK_PEAK_IMPL_H
#define SONDE_MEMORY_ANALYSIS_PEAK_PEAK_IMPL_H

#include "memory/analysis/common/breakdown.h"
#include "memory/analysis/common/report.h"
#include "memory/analysis/owners/tree.h"
#include "memory/analysis/peak/device_peaks.h"
#include "memory/analysis/peak/peak.h"

/* How full a device was. */
struct height {
	uint64_t driver_bytes, pool_bytes;
	uint32_t step; /* 0: outside of steps */
	bool known;
};

/* The highest moments of a device by step; in own[1] of struct block_device. */
struct heights {
	struct height now; /* of the step that runs, or of the time between two */
	struct height first, second; /* of steps that have ended */
};

struct peak {
	struct analysis base;
	struct peak_options options;
	struct breakdown *breakdown;
	struct device_peaks peaks;
	struct heights **heights;
	size_t nheights, cap_heights;
	bool has_steps;
};

/* Everything about the peak of a device. */
struct peak_device {
	struct block_device *device;
	struct breakdown_moment *moment;
	struct breakdown_shares shares; /* blocks, the largest first; then what is free */
	size_t nblocks; /* of them */
	struct owner_tree tree;
	struct groups groups; /* none by owners */
	struct call_site *sites; /* the largest first */
	size_t nsites;
	struct call_site *places; /* the same, merged */
	size_t nplaces;
	struct height next; /* the highest of the other steps */
};

static inline const struct stacks *peak_stacks(const struct peak *p)
{
	return &p->base.blocks->stacks;
}

/* What the limit is about. */
static inline uint64_t peak_bytes(const struct peak_device *d)
{
	return d->device->has_driver ? d->moment->driver_bytes : d->moment->pool_bytes;
}

static inline bool peak_is_above_limit(const struct peak *p, const struct peak_device *d)
{
	return p->options.limit_bytes && peak_bytes(d) > p->options.limit_bytes;
}

/* All devices with a peak, the highest first; to be released. */
struct peak_device *peak_list_devices(struct peak *p, size_t *out_n);
void peak_release_devices(struct peak_device *list, size_t n);

/* --- report.c --- */

void peak_text(struct analysis *a, const struct analysis_style *style, struct buf *out);
json_t *peak_json(struct analysis *a, unsigned top);

#endif
