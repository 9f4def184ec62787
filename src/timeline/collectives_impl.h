/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Inside of collectives.h: collectives.c keeps them, collectives_match.c compares ranks. */
#ifndef SONDE_TIMELINE_COLLECTIVES_IMPL_H
#define SONDE_TIMELINE_COLLECTIVES_IMPL_H

#include "base/containers/hmap.h"
#include "timeline/collectives.h"

#define KEPT_MAX 65536u /* of a rank and group */
#define STEPS_MAX 100000u
#define STRETCH_NS 10000000000ull
#define TIME_MAX (1ull << 61) /* so that differences of differences fit */

struct item {
	uint64_t start_ns, end_ns;
	uint32_t what; /* the same for all ranks, or it is another one */
};

/* Those of a rank in a group. */
struct series {
	const char *group;
	size_t rank;
	struct item *list;
	size_t n, cap;
	unsigned keep; /* of so many stretches of time one */
};

struct rank_step {
	uint64_t number, start_ns, end_ns;
};

struct rank {
	unsigned host;
	struct rank_step *steps;
	size_t nsteps, cap_steps;
};

struct collectives {
	struct series *series;
	size_t nseries, cap_series;
	struct rank *ranks;
	size_t nranks, cap_ranks;
	size_t rank; /* that is being added */
	struct hmap by_group; /* hash of rank and group to the number of its series */
};

#endif
