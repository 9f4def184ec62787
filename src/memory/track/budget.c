/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Recordings are compressed, so a small file can be made that says more than any memory holds: names,
 * live blocks, stacks, processes. What is kept of a recording is therefore bounded by the size of its
 * file. A real recording stays far below: its records differ at least in their times, so each takes
 * a byte or two of the file. What goes beyond is left out and counted as lost.
 *
 * A recorder has no such bound: what it follows is what its own job does.
 */
#include "memory/track/track_impl.h"

#define BASE_BYTES (64ull << 20)
#define BYTES_PER_BYTE 256 /* of the file */

void budget_set(struct track *t, const struct stat *recording)
{
	uint64_t bytes = (uint64_t)recording->st_size;
	uint64_t stored = (uint64_t)recording->st_blocks * 512; /* a sparse one has less */

	t->budget = BASE_BYTES + BYTES_PER_BYTE * (stored < bytes ? stored : bytes);
}

bool budget_take(struct proc *p, size_t bytes)
{
	struct track *t = p->track;

	if (t->budget && t->kept + bytes > t->budget) {
		t->refused++;
		p->refused++;
		return false;
	}
	t->kept += bytes;
	return true;
}

void budget_give_back(struct track *t, size_t bytes)
{
	t->kept -= bytes;
}

void budget_keep(struct track *t, size_t bytes)
{
	t->kept += bytes;
}

/* Blocks and stacks are counted where they are made. */
bool budget_allows(struct proc *p, const struct rec *r)
{
	switch (r->type) {
	case REC_NAME:
	case REC_PYTHON:
	case REC_MODULE:
	case REC_HEAP:
	case REC_LIBRARY:
	case REC_MARK:
	case REC_CALL:
	case REC_THREAD:
	case REC_STATE:
		return budget_take(p, r->size);
	default:
		return true;
	}
}

uint64_t track_refused(const struct track *t, uint64_t *out_bytes)
{
	*out_bytes = t->budget;
	return t->refused;
}
