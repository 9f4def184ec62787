/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A recording as a memory snapshot of PyTorch (a pickle), for the viewer at pytorch.org/memory_viz
 * and for torch.cuda._memory_viz: the allocations and frees of each device up to a moment, and the
 * segments and blocks that were alive at it. A file per process, as torch writes them.
 *
 * Driver blocks that a pool cuts from are segments, the blocks of pools their blocks; a driver block
 * that no pool uses is a segment with one block. The host is one more device behind the others. Events
 * wait in a file without a name beside the output, so memory grows with what is alive, not with events.
 */
#ifndef SONDE_MEMORY_EXPORT_TORCH_SNAPSHOT_H
#define SONDE_MEMORY_EXPORT_TORCH_SNAPSHOT_H

#include "memory/analysis/owners/owners.h"
#include "memory/export/block_profile.h"

struct torch_snapshot_options {
	struct owners_at at;
	const char
		*path; /* of the output; of several processes each has its pid before the suffix */
};

struct analysis *torch_snapshot_new(const struct torch_snapshot_options *o);

/* Writes the files; *out is of all, and out_files has their names, one per line. */
int torch_snapshot_write(struct analysis *a, struct export_sums *out, struct buf *out_files,
			 struct err *err);

#endif
