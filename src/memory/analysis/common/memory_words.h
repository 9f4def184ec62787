/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Sentences of answers. add_text() adds a text to a buffer; each {} in it stands for the next word:
 *
 *	say(out, "Process {} kept {}.", NUMBER(pid), HELD(bytes, blocks));
 *
 * adds "Process 12 kept 1.00 MiB in 3 blocks.". Bytes, counts, times, devices and pools read the
 * same in every answer because they are all written here.
 */
#ifndef SONDE_MEMORY_ANALYSIS_COMMON_MEMORY_WORDS_H
#define SONDE_MEMORY_ANALYSIS_COMMON_MEMORY_WORDS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/containers/buf.h"
#include "base/text/number_words.h"
#include "memory/analysis/common/stacks.h"
#include "memory/dump/row.h"

enum word_kind {
	WORD_NUMBER,
	WORD_COUNT,
	WORD_COUNT_OF,
	WORD_BYTES,
	WORD_HELD,
	WORD_DURATION,
	WORD_TEXT,
	WORD_PRINTABLE,
	WORD_DEVICE,
	WORD_POOL,
	WORD_WHERE,
	WORD_PLACE,
	WORD_KINDS,
};

struct word {
	enum word_kind kind;
	uint64_t n, blocks;
	const char *text;
	const struct stacks *stacks;
};

/* clang-format off */
#define NUMBER(n_) {WORD_NUMBER, n_, 0, NULL, NULL} /* 12345 */
#define COUNT(n_) {WORD_COUNT, n_, 0, NULL, NULL} /* 12,345 */
#define COUNT_OF(n_, noun_) {WORD_COUNT_OF, n_, 0, noun_, NULL} /* 1 block, 12,345 blocks */
#define BYTES(n_) {WORD_BYTES, n_, 0, NULL, NULL} /* 1.50 GiB */
#define HELD(bytes_, blocks_) {WORD_HELD, bytes_, blocks_, NULL, NULL} /* 1.00 MiB in 1 block */
#define DURATION(ns_) {WORD_DURATION, ns_, 0, NULL, NULL} /* 3.2 s */
#define TEXT(text_) {WORD_TEXT, 0, 0, text_, NULL}
#define PRINTABLE(text_) {WORD_PRINTABLE, 0, 0, text_, NULL} /* what a job called something */
#define DEVICE(number_) {WORD_DEVICE, number_, 0, NULL, NULL} /* 0, cpu, N/A */
#define POOL(type_) {WORD_POOL, type_, 0, NULL, NULL} /* PTA, HAL, …: as in the dumps */
/* The function that names a call stack; nothing for number 0. */
#define WHERE(stacks_, number_) {WORD_WHERE, number_, 0, NULL, stacks_}
/* Of a struct call_site that may stand for several call stacks. */
#define WHERE_SITE(stacks_, site_)                                                                 \
	{(site_)->mixed ? WORD_PLACE : WORD_WHERE, (site_)->stack, 0, NULL, stacks_}
/* clang-format on */

#define add_text(out_, text_, ...)                                                                 \
	words_add(out_, text_, (const struct word[]){__VA_ARGS__},                                 \
		  sizeof((const struct word[]){__VA_ARGS__}) / sizeof(struct word))
void words_add(struct buf *out, const char *text, const struct word *words, size_t n);

/* "device 0", "host memory" or "an unknown device"; at the beginning of a sentence "Device 0". */
void words_device(struct buf *out, uint32_t device, bool begins_sentence);

/* "PTA", "HAL", …: as in the dumps. */
static inline const char *words_pool(enum row_type type)
{
	return row_type_text(type, ROW_SEED);
}

/* Does this command line run Python? NULL: not known. */
bool words_is_python(const char *command);
/* What to record so that call stacks are there: "--call-stack=python (call_stack=… )". */
void words_stacks_hint(struct buf *out, bool python);

/*
 * What stands for the call site of blocks without a call stack: "blocks of 1.29 KiB (1,324 bytes)
 * without a call stack", in bytes where the size is rounded, so that two sizes read differently;
 * bytes 0: of sizes up to another.
 */
void words_blocks_of(struct buf *out, bool mappings, uint64_t bytes, uint64_t up_to);

/* How a job marks its steps; ends a sentence that begins with "Mark the steps of the job". */
#define WORDS_MARK_STEPS                                                                           \
	"msmemscope.step() at the end of each (Python), mstx ranges named \"step start\", or "     \
	"sonde_step()."

#endif
