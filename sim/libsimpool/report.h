/* SPDX-License-Identifier: MulanPSL-2.0 */
/* How each framework tells mstx about its pool. Called with the pool locked. */
#ifndef SONDE_SIM_REPORT_H
#define SONDE_SIM_REPORT_H

#include <stdint.h>

#include "mstx/ms_tools_ext.h"
#include "sim/pool.h"

/* Not part of any interface: other libraries of a process may use the same names. */
#pragma GCC visibility push(hidden)

struct pool_report {
	enum sim_pool_kind kind;
	uint32_t device;
	int on;
	mstxDomainHandle_t domain;
};

void report_init(struct pool_report *r, enum sim_pool_kind kind, int device);
/* A segment was taken from or given back to the device; only ATB announces segments as heaps. */
void report_segment(struct pool_report *r, const void *base, size_t size, void **out_heap);
void report_segment_gone(struct pool_report *r, void *heap);
/* @heap and @io_region are ATB's handles; the other frameworks have none. */
void report_block(struct pool_report *r, const void *ptr, size_t size, size_t reserved, void *heap,
		  void **out_region);
void report_block_gone(struct pool_report *r, const void *ptr, size_t reserved, void *region);

#pragma GCC visibility pop

#endif
