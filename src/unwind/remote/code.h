/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Code objects of another process, each read once: names, file and lines. Code objects come and go
 * and their addresses are used again: one that is met in a new call is compared with the process'
 * memory before it is believed, many of them in one read.
 *
 *	round n: frame names code object at A
 *	    A is known, checked in this round		use it
 *	    A is known, its eight words are the same	checked now, use it
 *	    anything else				read it: name, file, lines, opcodes
 *
 * The eight words (type, file, name, qualified name, first line, line table, size, instructions)
 * are pointers and numbers that no two living code objects share.
 */
#ifndef SONDE_UNWIND_REMOTE_CODE_H
#define SONDE_UNWIND_REMOTE_CODE_H

#include "base/containers/hmap.h"
#include "unwind/python/frame.h"
#include "unwind/remote/find/find.h"

#define CODE_WORDS 8

/* What a frame can be doing at an instruction. */
enum code_kind { CODE_ANY, CODE_CALLS_NOTHING, CODE_RETURNS };

struct code_run {
	uint32_t start; /* byte in the code; ends where the next begins */
	int32_t line; /* 0: none */
};

struct remote_code {
	uint64_t addr;
	const char *name, *file; /* interned */
	int32_t first_line;
	uint32_t bytes; /* of instructions */
	bool is_code; /* false: some other object; nothing else is set */
	bool generator; /* or coroutine */
	bool trampoline; /* of the interpreter itself (unwind/python/frame.h): not shown */
	struct code_run *runs;
	unsigned nruns;
	uint8_t *kinds; /* enum code_kind of each two bytes; NULL: unknown */
	uint64_t words[CODE_WORDS]; /* what tells it from another one at its place */
	uint64_t checked; /* round in which it was last seen to be the same */
	uint64_t *tlbc; /* where its copies for threads begin */
	uint32_t ntlbc;
};

struct code_cache {
	struct remote *remote;
	const struct python_place *place;
	struct hmap by_addr;
	uint64_t round;
};

void code_cache_init(struct code_cache *c, struct remote *r, const struct python_place *place);
void code_cache_release(struct code_cache *c);

/* A new round: what was checked before has to be checked again, unless it `holds`. */
void code_cache_round(struct code_cache *c, bool holds);

/* Makes sure that these are known and the same as before: one or two reads for all of them. */
int code_cache_check(struct code_cache *c, const uint64_t *addrs, unsigned n);

/* NULL if there is no code object that could be read. */
const struct remote_code *code_cache_get(struct code_cache *c, uint64_t addr);

/* The byte of the code at which the frame is: -1 or -2 before its start. False if it lies outside
 * of the code: the frame was copied while it changed. */
bool code_lasti(struct code_cache *c, const struct remote_code *code,
		const struct python_raw_frame *f, int64_t *out);
/* CODE_ANY where it is not known. */
enum code_kind code_kind_at(const struct remote_code *code, int64_t lasti);
int32_t code_line(const struct remote_code *code, int64_t lasti);

#endif
