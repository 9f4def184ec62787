/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Statistics of an array of numbers: what one line about a tensor says.
 *
 *	struct statistics_input in = {.data = p, .count = n, .kind = NUMBER_F32, .threads = 4};
 *	const double q[] = {0.5};
 *	double median;
 *	statistics_compute(&in, q, 1, &s, &median);
 *
 * The array is read once for sums, extremes and the first digit of the quantiles, and once for each
 * further digit of the selection (select.h): 16-bit numbers once, 32-bit numbers twice. Nothing is
 * sorted or copied, and no more than a few MiB are allocated.
 *
 * Sums are double, or exact for integers. The same array gives the same bits whatever the number of
 * threads: sums are taken in pieces of a fixed size, and added in the order of the pieces.
 */
#ifndef SONDE_BASE_NUMBERS_STATISTICS_H
#define SONDE_BASE_NUMBERS_STATISTICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum number_kind {
	NUMBER_F64,
	NUMBER_F32,
	NUMBER_F16,
	NUMBER_BF16,
	NUMBER_I64,
	NUMBER_I32,
	NUMBER_I16,
	NUMBER_I8,
	NUMBER_U64,
	NUMBER_U32,
	NUMBER_U16,
	NUMBER_U8, /* and bool */
	NUMBER_C128, /* complex: pairs of double */
	NUMBER_C64, /* pairs of float */
	NUMBER_KINDS
};

#define STATISTICS_MAX_QUANTILES 16

struct statistics_input {
	const void *data; /* aligned for its kind */
	size_t count;
	enum number_kind kind;
	unsigned threads; /* at most; 0 and 1: the calling thread alone */
};

struct statistics {
	uint64_t nans, infs; /* complex: numbers with such a part */
	/* of floats; min and max are NaN as soon as one number is, as are quantiles */
	double sum, l1, min, max;
	double imaginary; /* sum of the imaginary parts; l1 is of the moduli, min and max are 0 */
	/* of integers */
	__int128 int_sum, int_l1, int_min, int_max;
};

bool number_is_integer(enum number_kind kind);
bool number_is_complex(enum number_kind kind);
size_t number_bytes(enum number_kind kind);

/*
 * 0, or -EINVAL (count 0, too many quantiles, quantiles of complex numbers, a quantile that is not
 * in 0 to 1) or -ENOMEM. Quantiles between two numbers are interpolated linearly, in double.
 */
int statistics_compute(const struct statistics_input *in, const double *quantiles,
		       size_t nquantiles, struct statistics *out, double *out_quantiles);

/* `count` numbers of NUMBER_BF16 as float. */
void number_widen_bf16(const void *data, size_t count, float *out);

#endif
