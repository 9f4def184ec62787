/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The numbers that would be at given places of the sorted array, without sorting it: their keys are
 * found digit by digit, from the most significant one on. For each digit one pass over the array
 * counts how often each value of the digit occurs among the numbers that begin with the digits that
 * were found so far; the counts say which value the sought number has.
 *
 *	select_init(&s, in, ranks, n)
 *	do {
 *		select_count(&s, worker, keys, n)	for all numbers, by every worker
 *	} while (select_next(&s))			sums the counts, finds one digit
 *	select_key(&s, i)
 *	select_release(&s)
 *
 * Several numbers are sought at once. Those that have the same first digits share a slot: a row of
 * counters. `lanes` leads from the slots of one level, by the digit, to those of the next.
 */
#ifndef SONDE_BASE_NUMBERS_SELECT_H
#define SONDE_BASE_NUMBERS_SELECT_H

#include "base/numbers/numbers_impl.h"

#define SELECT_MAX (2 * STATISTICS_MAX_QUANTILES)
#define SELECT_MAX_LEVELS 8
#define SELECT_NONE 255 /* no slot: nobody seeks a number like this */

struct select_level {
	unsigned shift, bits;
	unsigned slots;
	uint8_t *lanes; /* [slots << bits]: slot of the next level; NULL of the last level */
};

struct select {
	unsigned nlevels, at; /* the level being counted */
	unsigned workers;
	bool wide; /* keys have 64 bits */
	struct select_level levels[SELECT_MAX_LEVELS];
	uint64_t *counts; /* [workers][slots << bits] of this level */
	size_t nranks;
	struct {
		uint64_t rank; /* among the numbers of its slot */
		uint64_t key; /* its digits so far */
		unsigned slot;
	} sought[SELECT_MAX];
};

/* `ranks` begin at 0. 0 or -ENOMEM. */
int select_init(struct select *s, const struct statistics_input *in, unsigned workers,
		const uint64_t *ranks, size_t nranks);
void select_count(struct select *s, unsigned worker, const union keys *keys, size_t n);
/* 1: count once more; 0: all keys are complete; -ENOMEM. */
int select_next(struct select *s);
uint64_t select_key(const struct select *s, size_t i);
void select_release(struct select *s);

#endif
