/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What collectives say about the clocks of hosts. No rank can end an all-reduce, all-gather,
 * reduce-scatter or barrier before the last rank has begun it:
 *
 *	start_a - clock_a  <=  end_b - clock_b      for any two ranks
 *
 * so each one that two hosts have done together limits how far their clocks are apart, from both
 * sides. For that, it has to be known which of one rank is which of another. They have no numbers in
 * most files, and some may be missing; recordings begin and end when they like. But the times between
 * them are never quite the same, and ranks end them together: so a run of collectives of one rank fits
 * at one place of another rank, and nowhere else. Where it fits at several places, nothing is said.
 *
 * Not thread safe.
 */
#ifndef SONDE_TIMELINE_COLLECTIVES_H
#define SONDE_TIMELINE_COLLECTIVES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/numbers/clock_fit.h"

struct collectives;

struct collectives *collectives_new(void);
void collectives_free(struct collectives *c);

/* What follows is of this rank: a new one of a host, or one that was begun before. */
size_t collectives_begin_rank(struct collectives *c, unsigned host);
void collectives_go_on_with_rank(struct collectives *c, size_t rank);

/* The name of an operation or of a kernel: is it one for which the rule holds? */
bool collectives_is_one(const char *name);

struct collective {
	const char *group; /* interned; ranks of the same group have the same text */
	const char *name; /* interned */
	uint64_t size; /* elements, or a number of its own: the same for all ranks */
	uint64_t start_ns, end_ns;
};
void collectives_add(struct collectives *c, const struct collective *x);
/* A step that the rank has counted: the same number is the same step, about. */
void collectives_add_step(struct collectives *c, uint64_t number, uint64_t start_ns,
			  uint64_t end_ns);
/* Adds to all times of the rank. */
void collectives_shift_rank(struct collectives *c, int64_t by_ns);

/* One collective of two hosts: the clock of `a` minus that of `b` is within [low_ns, high_ns]. */
struct collective_pair {
	unsigned a, b;
	int64_t at_a_ns, at_b_ns;
	int64_t low_ns, high_ns;
};
struct collective_pairs {
	struct collective_pair *list;
	size_t n, cap;
	uint64_t
		unclear; /* ranks that share a group with another host, and fit at no or several places */
};
/*
 * What is already known of two clocks: a minus b lies in the span. False: nothing is.
 */
typedef bool (*collectives_known_fn)(void *arg, unsigned a, unsigned b, int64_t *low_ns,
				     int64_t *high_ns);
void collectives_match(struct collectives *c, collectives_known_fn known, void *arg,
		       struct collective_pairs *out);

#endif
