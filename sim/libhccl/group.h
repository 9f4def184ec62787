/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Where ranks meet: a file below $SIM_NPU_STATE that all of them map. A meeting has a number, the
 * same for every rank; two of them can be going on, since nobody comes to the next but one before
 * all have left this one.
 */
#ifndef SONDE_SIM_HCCL_GROUP_H
#define SONDE_SIM_HCCL_GROUP_H

#include <stddef.h>
#include <stdint.h>

#include "hccl/hccl.h"

#define PART_BYTES 64

#pragma GCC visibility push(hidden)

struct group;

/* What one rank brings: a part for each rank. Lives in shared memory. */
typedef unsigned char group_parts[SIM_HCCL_MAX_RANKS][PART_BYTES];

/* Waits for the others. HCCL_SUCCESS, or why not. */
HcclResult group_join(const char *name, uint32_t ranks, uint32_t rank, struct group **out);
void group_leave(struct group *g);
uint32_t group_ranks(const struct group *g);
uint32_t group_rank(const struct group *g);

/* What @rank brings to a meeting. */
group_parts *group_parts_of(struct group *g, uint64_t meeting, uint32_t rank);
/*
 * Comes to a meeting at @begin_ns; returns when it ended, @cost_ns after the last had come, or 0
 * when not all came. What the others brought can be read until this rank comes to the next.
 */
uint64_t group_meet(struct group *g, uint64_t meeting, uint64_t begin_ns, uint64_t cost_ns);

#pragma GCC visibility pop

#endif
