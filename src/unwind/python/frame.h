/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Frames of the interpreter as they lie in memory, and the walk from the innermost to the outermost
 * one. Works in both worlds.
 *
 * Decoding is arithmetic on a copy (python_frame_decode()); it believes nothing. The walk here
 * follows `back` pointers one read at a time, which is right for a thread that stands still: our
 * own, or one that is stopped. For one that runs see unwind/remote/walk.h, which copies first and
 * decodes afterwards.
 */
#ifndef SONDE_UNWIND_PYTHON_FRAME_H
#define SONDE_UNWIND_PYTHON_FRAME_H

#include <stdbool.h>
#include <stdint.h>

#include "unwind/python/layout.h"
#include "unwind/python/reader.h"

/* A frame as it was copied. What a version does not say stays false or 0. */
struct python_raw_frame {
	uint64_t address;
	uint64_t code; /* 0 where no Python function runs */
	uint64_t back;
	/* To 3.10 f_lasti, in the version's own unit; later the address of the instruction. */
	uint64_t instr;
	uint32_t tlbc; /* which copy of the code, in free-threaded interpreters */
	bool shim; /* no Python function: the border to the C code that called in */
	bool dead; /* it does not run: it was left, or is a generator that waits (reported to 3.10)
		    */
	bool generator; /* of a generator or coroutine (reported from 3.11 on) */
	bool entry; /* called from C */
	bool hidden; /* for who resolves it: no function of Python's */
};

/* `bytes` holds layout.frame.size bytes that were at `address`. */
void python_frame_decode(const struct python_layout *l, uint64_t address, const void *bytes,
			 struct python_raw_frame *out);

/* The two frames are the same call at the same instruction. */
static inline bool python_frame_same(const struct python_raw_frame *a,
				     const struct python_raw_frame *b)
{
	return a->address == b->address && a->code == b->code && a->back == b->back &&
	       a->instr == b->instr;
}

/* The stack of a thread that stands still, frame by frame, innermost first, shims among them. */
struct python_walk {
	const struct python_reader *reader;
	const struct python_layout *layout;
	uint64_t at; /* the next frame; 0 at the end */
};

int python_walk_begin(struct python_walk *w, const struct python_reader *r,
		      const struct python_layout *l, uint64_t tstate);
/* 1, or 0 behind the outermost; a negative errno if it cannot be read. */
int python_walk_next(struct python_walk *w, struct python_raw_frame *out);

/* A word inside bytes that were copied. */
static inline uint64_t python_word(const void *bytes, uint32_t at)
{
	uint64_t v;

	__builtin_memcpy(&v, (const char *)bytes + at, sizeof(v));
	return v;
}

/*
 * From 3.13 on the interpreter puts a frame of its own between a call of a class and its __init__. The
 * code object of that is nobody's: one and the same str is its file and its name.
 */
bool python_is_trampoline(const struct python_reader *r, const struct python_layout *l,
			  uint64_t file, uint64_t name);

#endif
