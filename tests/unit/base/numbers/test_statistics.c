/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "base/numbers/statistics.h"

#include "test.h"

#include <errno.h>
#include <math.h>

static const double wanted[] = {0, 0.001, 0.1, 0.5, 0.9, 0.999, 1};
#define WANTED (sizeof(wanted) / sizeof(wanted[0]))

static uint64_t seed = 88172645463325252ull;

static uint64_t next_random(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	return seed ^= seed << 17;
}

static int compare_doubles(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

/* The same by sorting. */
static double sorted_quantile(const double *sorted, size_t n, double q)
{
	double at = q * (double)(n - 1);
	double below = sorted[(size_t)floor(at)], above = sorted[(size_t)ceil(at)];

	return below + (at - floor(at)) * (above - below);
}

static void check_quantiles(const struct statistics_input *in, double *values)
{
	double found[WANTED];
	struct statistics s;

	CHECK(statistics_compute(in, wanted, WANTED, &s, found) == 0);
	qsort(values, in->count, sizeof(*values), compare_doubles);
	for (size_t i = 0; i < WANTED; i++) {
		double want = sorted_quantile(values, in->count, wanted[i]);

		CHECK(fabs(found[i] - want) <= 1e-12 * fabs(want) + 1e-300);
	}
	CHECK(found[0] == values[0] && found[WANTED - 1] == values[in->count - 1]);
}

/* Of each width of digits, and around its borders. */
static const size_t counts[] = {1, 2, 1023, 1025, 16383, 16384, 70000};

TEST(statistics, floats_as_by_sorting)
{
	for (size_t k = 0; k < sizeof(counts) / sizeof(counts[0]); k++) {
		size_t n = counts[k];
		float *f = malloc(n * sizeof(*f));
		double *d = malloc(n * sizeof(*d)), sum = 0, l1 = 0;
		struct statistics s;

		for (size_t i = 0; i < n; i++) {
			f[i] = (float)((int64_t)next_random() >> (next_random() & 31)) * 1e-9f;
			d[i] = f[i];
			sum += d[i];
			l1 += fabs(d[i]);
		}
		struct statistics_input in = {.data = f, .count = n, .kind = NUMBER_F32};
		CHECK(statistics_compute(&in, NULL, 0, &s, NULL) == 0);
		CHECK(fabs(s.sum - sum) <= 1e-9 * l1 && fabs(s.l1 - l1) <= 1e-9 * l1);
		CHECK(s.nans == 0 && s.infs == 0);
		check_quantiles(&in, d);
		for (size_t i = 0; i < n; i++)
			d[i] = (double)(int64_t)next_random() * 1e-3;
		double *copy = malloc(n * sizeof(*d));
		memcpy(copy, d, n * sizeof(*d));
		check_quantiles(
			&(struct statistics_input){.data = d, .count = n, .kind = NUMBER_F64},
			copy);
		free(f);
		free(d);
		free(copy);
	}
}

TEST(statistics, integers_are_exact)
{
	const int64_t wide[] = {INT64_MAX, INT64_MAX, INT64_MIN};
	const uint64_t most[] = {UINT64_MAX, UINT64_MAX};
	const int8_t small[] = {-128, 127, -1, 0};
	struct statistics s;
	double q[1];

	CHECK(statistics_compute(&(struct statistics_input){wide, 3, NUMBER_I64, 1},
				 (double[]){0.5}, 1, &s, q) == 0);
	CHECK(s.int_sum == (__int128)INT64_MAX - 1 && s.int_min == INT64_MIN);
	CHECK(s.int_l1 == 3 * (__int128)INT64_MAX + 1 && q[0] == (double)INT64_MAX);
	CHECK(statistics_compute(&(struct statistics_input){most, 2, NUMBER_U64, 1}, NULL, 0, &s,
				 NULL) == 0);
	CHECK(s.int_sum == 2 * (__int128)UINT64_MAX && s.int_max == UINT64_MAX);
	CHECK(statistics_compute(&(struct statistics_input){small, 4, NUMBER_I8, 1},
				 (double[]){0.5}, 1, &s, q) == 0);
	CHECK(s.int_sum == -2 && s.int_l1 == 256 && s.int_min == -128 && q[0] == -0.5);
}

TEST(statistics, halves)
{
	/* 1, -2, the smallest, the largest, -infinity, of IEEE's half */
	const uint16_t halves[] = {0x3c00, 0xc000, 0x0001, 0x7bff, 0xfc00};
	const uint16_t brain[] = {0x3f80, 0xc000, 0x7fc0};
	struct statistics s;
	float wide[3];

	CHECK(statistics_compute(&(struct statistics_input){halves, 4, NUMBER_F16, 1}, NULL, 0, &s,
				 NULL) == 0);
	CHECK(s.sum == 1 - 2 + 0x1p-24 + 65504 && s.min == -2 && s.max == 65504 && !s.infs);
	CHECK(statistics_compute(&(struct statistics_input){halves, 5, NUMBER_F16, 1}, NULL, 0, &s,
				 NULL) == 0);
	CHECK(s.infs == 1 && isinf(s.min));
	CHECK(statistics_compute(&(struct statistics_input){brain, 3, NUMBER_BF16, 1}, NULL, 0, &s,
				 NULL) == 0);
	CHECK(s.nans == 1 && isnan(s.max) && isnan(s.sum));
	number_widen_bf16(brain, 3, wide);
	CHECK(wide[0] == 1 && wide[1] == -2 && isnan(wide[2]));
}

TEST(statistics, complex_numbers_have_no_order)
{
	const double pairs[] = {3, 4, -1, 0, INFINITY, 1, NAN, 0};
	struct statistics_input in = {pairs, 2, NUMBER_C128, 1};
	struct statistics s;
	double q[1];

	CHECK(statistics_compute(&in, NULL, 0, &s, NULL) == 0);
	CHECK(s.sum == 2 && s.imaginary == 4 && s.l1 == 6 && !s.nans && !s.infs);
	CHECK(statistics_compute(&in, (double[]){0.5}, 1, &s, q) == -EINVAL);
	in.count = 4;
	CHECK(statistics_compute(&in, NULL, 0, &s, NULL) == 0 && s.nans == 1 && s.infs == 1);
}

TEST(statistics, threads_change_nothing)
{
	size_t n = (24u << 20) / sizeof(float);
	float *f = malloc(n * sizeof(*f));
	struct statistics a, b;
	double qa[WANTED], qb[WANTED];

	for (size_t i = 0; i < n; i++)
		f[i] = (float)(int32_t)next_random();
	CHECK(statistics_compute(&(struct statistics_input){f, n, NUMBER_F32, 1}, wanted, WANTED,
				 &a, qa) == 0);
	CHECK(statistics_compute(&(struct statistics_input){f, n, NUMBER_F32, 3}, wanted, WANTED,
				 &b, qb) == 0);
	CHECK(a.sum == b.sum && a.l1 == b.l1 && a.min == b.min && a.max == b.max);
	CHECK(!memcmp(qa, qb, sizeof(qa)));
	free(f);
}

TEST(statistics, what_makes_no_sense)
{
	const float f[] = {1};
	struct statistics_input in = {f, 1, NUMBER_F32, 1};
	double q[STATISTICS_MAX_QUANTILES + 1] = {0};
	struct statistics s;

	CHECK(statistics_compute(&in, q, STATISTICS_MAX_QUANTILES + 1, &s, q) == -EINVAL);
	CHECK(statistics_compute(&in, (double[]){-0.1}, 1, &s, q) == -EINVAL);
	CHECK(statistics_compute(&in, (double[]){NAN}, 1, &s, q) == -EINVAL);
	in.count = 0;
	CHECK(statistics_compute(&in, NULL, 0, &s, NULL) == -EINVAL);
}
