/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Inside of memory.c: devices, steps and addresses are in memory_scopes.c. */
#ifndef SONDE_REPORT_MEMORY_MEMORY_IMPL_H
#define SONDE_REPORT_MEMORY_MEMORY_IMPL_H

#include "memory/export/block_frames.h"
#include "report/memory/memory.h"

struct memory_out {
	struct pictures *p;
	struct tree *t;
	const struct memory_input *in;
	struct block_frames frames;
};

json_t *memory_scopes(struct memory_out *o); /* while their peaks are the moment that counts */
void memory_put_levels(struct memory_out *o);
void memory_put_steps(struct memory_out *o);
/* With the maps of the first `most` of them that have blocks; after the sites were put. */
json_t *memory_pools(struct memory_out *o);

#endif
