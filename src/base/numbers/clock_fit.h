/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * How far one clock is ahead of another, and how exactly that is known. Each span says between which
 * values the difference lay at one time: a round trip gives one (the other clock was read between the
 * question and the answer), two ends of a collective another. Between the spans the difference is a
 * straight line: an offset and a drift.
 *
 * All lines through all spans are possible. The answer is the middle of them, and its bound is how
 * far the others are from it. Where no line goes through all spans, because a clock was set or its
 * rate changed, spans are widened until one does, and the bound with them.
 */
#ifndef SONDE_BASE_NUMBERS_CLOCK_FIT_H
#define SONDE_BASE_NUMBERS_CLOCK_FIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* No two clocks of computers drift apart faster, unless one of them is being corrected. */
#define CLOCK_DRIFT_MAX 200e-6

#define CLOCK_OPEN_LOW INT64_MIN
#define CLOCK_OPEN_HIGH INT64_MAX

/* The difference at a time: one of the two may be open. Differences are below 2^61. */
struct clock_span {
	int64_t at_ns, low_ns, high_ns;
};

struct clock_line {
	int64_t from_ns, to_ns; /* of what it was asked for */
	int64_t offset_ns; /* at from_ns */
	double drift; /* nanoseconds of difference per nanosecond */
	int64_t bound_ns; /* between from_ns and to_ns the difference is no farther from the line */
	int64_t bent_ns; /* by which the spans miss every straight line; 0: they do not */
};

/* False: the spans say too little; they must limit the difference on both sides. */
bool clock_fit(const struct clock_span *spans, size_t n, int64_t from_ns, int64_t to_ns,
	       struct clock_line *out);

/* The difference at a time. */
int64_t clock_line_at(const struct clock_line *l, int64_t at_ns);

#endif
