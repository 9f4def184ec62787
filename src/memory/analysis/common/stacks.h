/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The call stacks of rows, each kept once and known by a small number. Number 0 is "no call stack
 * recorded". Zero-initialise and release. Their lines are kept once, and put together when they are
 * asked for: the texts of a million stacks are gigabytes.
 */
#ifndef SONDE_MEMORY_ANALYSIS_COMMON_STACKS_H
#define SONDE_MEMORY_ANALYSIS_COMMON_STACKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/containers/buf.h"
#include "base/containers/chains.h"
#include "base/containers/hmap.h"
#include "memory/dump/row.h"

#define STACKS_SHOWN 8u
#define STACKS_MAX_BYTES (64u << 10) /* the rest of a longer text is cut off */

struct stack {
	const char *c; /* lines as recorded, innermost first; NULL for none */
	const char *py;
};

struct kept_stack {
	uint64_t check; /* the upper half of the hash; the lower one is the key */
	uint32_t c, py; /* in the lines; 0 for none */
};

struct shown_stack {
	uint32_t number;
	struct buf c, py;
};

struct stacks {
	struct kept_stack *list;
	size_t count, cap;
	struct hmap by_hash;
	struct chains lines; /* pointers to interned texts */
	struct shown_stack shown[STACKS_SHOWN];
	unsigned nshown; /* so far */
	struct hmap callers; /* stacks_where() */
	size_t learned;
};

/* The number of the row's call stack. */
uint32_t stacks_of(struct stacks *s, const struct row *row);

/* What is behind a number; good until STACKS_SHOWN others were asked for. */
struct stack stacks_get(const struct stacks *s, uint32_t number);

/*
 * Adds the line of the user's own code that names a call stack: "train_step (train.py:18)"; false for
 * number 0. In Python it is the innermost one. In C that is often a wrapper through which everything is
 * allocated: functions that were called from several others, with the same ones inside, are passed over.
 */
bool stacks_place(const struct stacks *s, uint32_t number, struct buf *out);
/* Adds what of a framework it called: "Linear.forward"; false: nothing, or not worth a word. */
bool stacks_via(const struct stacks *s, uint32_t number, struct buf *out);
/* Both: "train_step (train.py:18) via Linear.forward". */
bool stacks_where(const struct stacks *s, uint32_t number, struct buf *out);

void stacks_release(struct stacks *s);

#endif
