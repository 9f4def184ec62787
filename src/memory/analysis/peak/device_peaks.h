/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The highest moment of a device over all processes that use it. Zero-initialise and release. */
#ifndef SONDE_MEMORY_ANALYSIS_PEAK_TOGETHER_H
#define SONDE_MEMORY_ANALYSIS_PEAK_TOGETHER_H

#include <jansson.h>

#include "memory/analysis/common/blocks.h"
#include "memory/analysis/common/total.h"

struct device_peaks_device {
	uint32_t device;
	bool has_driver;
	struct total driver, pools;
};

struct device_peaks {
	struct device_peaks_device *devices;
	size_t ndevices, cap;
};

void device_peaks_add(struct device_peaks *t, const struct block_change *c, uint64_t time_ns);
/* A sentence for each device that several processes use. */
void device_peaks_describe(struct device_peaks *t, const struct blocks *b, struct buf *out);
/* A list of these devices. */
json_t *device_peaks_json(struct device_peaks *t, const struct blocks *b);
void device_peaks_release(struct device_peaks *t);

#endif
