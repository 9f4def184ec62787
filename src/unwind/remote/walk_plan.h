/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What the next walk of a thread copies, by what the last one met. Part of unwind/remote/walk.c.
 *
 * A chunk of the interpreter's own stack of frames (_PyStackChunk, from 3.11 on) begins with:
 *
 *	previous	the chunk before; 0 in the first
 *	size		of the whole chunk, a power of two from 16 KiB on
 *	top		where the newest chunk ended when this one was begun
 */
#ifndef SONDE_UNWIND_REMOTE_WALK_PLAN_H
#define SONDE_UNWIND_REMOTE_WALK_PLAN_H

#include "unwind/remote/walk.h"

struct chunk_head {
	uint64_t previous, size, top;
};

/* Reads the chain of chunks anew. */
int plan_chunks(struct walker *w, struct walk_thread *t, uint64_t newest);

/* The innermost frame is here: no more than this has to be copied the next time. */
void plan_used(struct walk_thread *t, uint64_t innermost, uint32_t frame_size);

/* The frames that lie in no chunk, innermost first. */
void plan_loose(struct walk_thread *t, const uint64_t *found, unsigned n, uint32_t size);

/* Drops what could not be read. */
void plan_without(struct walk_thread *t, uint64_t addr, uint32_t size);

#endif
