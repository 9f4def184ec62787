/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Numbers as people read them. Each adds to out, in ASCII, so that bytes are columns. */
#ifndef SONDE_BASE_TEXT_NUMBER_WORDS_H
#define SONDE_BASE_TEXT_NUMBER_WORDS_H

#include "base/containers/buf.h"

#include <stdint.h>

void words_count(struct buf *out, uint64_t n); /* 12,345 */
void words_bytes(struct buf *out, uint64_t bytes); /* 512 B, 1.50 GiB */
void words_time(struct buf *out, uint64_t ns); /* 0 s, 12.5 ms, 3.2 s, 5 min 02 s */
/* "1 block", "2,000 blocks": `noun` takes an s. */
void words_of(struct buf *out, uint64_t n, const char *noun);

/* 0 where there is no whole. */
static inline double percent_of(uint64_t part, uint64_t whole)
{
	return whole ? 100.0 * (double)part / (double)whole : 0;
}

static inline const char *words_was(uint64_t n)
{
	return n == 1 ? "was" : "were";
}

#endif
