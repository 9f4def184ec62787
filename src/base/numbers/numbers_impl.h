/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What the files of this folder share. */
#ifndef SONDE_BASE_NUMBERS_NUMBERS_IMPL_H
#define SONDE_BASE_NUMBERS_NUMBERS_IMPL_H

#include "base/numbers/statistics.h"

/* Numbers are taken in blocks that stay in the first cache, blocks in pieces that threads take. */
#define BLOCK 1024
#define PIECE (64 * BLOCK)

unsigned key_bits(enum number_kind kind);

/* Keys that are ordered as the numbers are, the smallest 0. Not of complex numbers and NaN. Those
 * of numbers of up to 32 bits are narrow. */
union keys {
	uint32_t narrow[BLOCK];
	uint64_t wide[BLOCK];
};

void keys_fill(enum number_kind kind, const void *data, size_t at, size_t n, union keys *keys);
double key_value(enum number_kind kind, uint64_t key);

float half_to_float(uint16_t h);

/* Calls fn(ctx, 0) to fn(ctx, threads - 1), at once where threads can be made. */
void run_workers(unsigned threads, void (*fn)(void *ctx, unsigned worker), void *ctx);
unsigned workers_for(const struct statistics_input *in);

/* The pieces of a worker: from `first` up to `end`. */
struct pieces {
	size_t first, end;
};
struct pieces pieces_of(const struct statistics_input *in, unsigned worker, unsigned workers);
size_t piece_count(const struct statistics_input *in);

#endif
