/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "base/numbers/statistics.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/numbers/numbers_impl.h"
#include "base/numbers/select.h"

#define LANES 8 /* independent sums, which a compiler turns into vectors */

struct pass {
	const struct statistics_input *in;
	unsigned workers;
	struct statistics *pieces; /* of each piece; NULL: they are known */
	struct select *select; /* NULL: no quantiles */
};

static void empty_statistics(struct statistics *s)
{
	*s = (struct statistics){.min = INFINITY, .max = -INFINITY};
	s->int_min = (__int128)UINT64_MAX;
	s->int_max = INT64_MIN;
}

/* x - x is 0 of every number, and NaN of infinities and NaN. */
#define ADD_FLOATS(type, abs)                                                                      \
	struct lanes_##type {                                                                      \
		double sum[LANES], l1[LANES];                                                      \
		type min[LANES], max[LANES];                                                       \
		uint32_t nans[LANES], odd[LANES];                                                  \
	};                                                                                         \
                                                                                                   \
	static inline void add_to_lane_##type(struct lanes_##type *l, size_t k, type v)            \
	{                                                                                          \
		l->sum[k] += (double)v;                                                            \
		l->l1[k] += (double)abs(v);                                                        \
		l->min[k] = v < l->min[k] ? v : l->min[k];                                         \
		l->max[k] = v > l->max[k] ? v : l->max[k];                                         \
		l->nans[k] += v != v;                                                              \
		l->odd[k] += v - v != 0;                                                           \
	}                                                                                          \
                                                                                                   \
	static void add_##type(struct statistics *s, const type *x, size_t n)                      \
	{                                                                                          \
		struct lanes_##type l = {0};                                                       \
		size_t i = 0;                                                                      \
                                                                                                   \
		for (size_t k = 0; k < LANES; k++) {                                               \
			l.min[k] = (type)INFINITY;                                                 \
			l.max[k] = (type)-INFINITY;                                                \
		}                                                                                  \
		for (; i + LANES <= n; i += LANES)                                                 \
			for (size_t k = 0; k < LANES; k++)                                         \
				add_to_lane_##type(&l, k, x[i + k]);                               \
		for (size_t k = 0; i < n; i++, k++)                                                \
			add_to_lane_##type(&l, k, x[i]);                                           \
		for (size_t k = 0; k < LANES; k++) {                                               \
			s->sum += l.sum[k];                                                        \
			s->l1 += l.l1[k];                                                          \
			s->min = (double)l.min[k] < s->min ? (double)l.min[k] : s->min;            \
			s->max = (double)l.max[k] > s->max ? (double)l.max[k] : s->max;            \
			s->nans += l.nans[k];                                                      \
			s->infs += l.odd[k] - l.nans[k];                                           \
		}                                                                                  \
	}

ADD_FLOATS(float, fabsf)
ADD_FLOATS(double, fabs)

/* Of integers up to 32 bits: a block's sum fits. */
#define ADD_INTEGERS(type)                                                                         \
	static void add_##type(struct statistics *s, const type *x, size_t n)                      \
	{                                                                                          \
		int64_t sum = 0, l1 = 0;                                                           \
		type min = x[0], max = x[0];                                                       \
                                                                                                   \
		for (size_t i = 0; i < n; i++) {                                                   \
			int64_t v = x[i];                                                          \
			sum += v;                                                                  \
			l1 += v < 0 ? -v : v;                                                      \
			min = x[i] < min ? x[i] : min;                                             \
			max = x[i] > max ? x[i] : max;                                             \
		}                                                                                  \
		s->int_sum += sum;                                                                 \
		s->int_l1 += l1;                                                                   \
		s->int_min = min < s->int_min ? min : s->int_min;                                  \
		s->int_max = max > s->int_max ? max : s->int_max;                                  \
	}

ADD_INTEGERS(int32_t)
ADD_INTEGERS(int16_t)
ADD_INTEGERS(int8_t)
ADD_INTEGERS(uint32_t)
ADD_INTEGERS(uint16_t)
ADD_INTEGERS(uint8_t)

#define ADD_WIDE(type)                                                                             \
	static void add_##type(struct statistics *s, const type *x, size_t n)                      \
	{                                                                                          \
		for (size_t i = 0; i < n; i++) {                                                   \
			__int128 v = x[i];                                                         \
			s->int_sum += v;                                                           \
			s->int_l1 += v < 0 ? -v : v;                                               \
			s->int_min = v < s->int_min ? v : s->int_min;                              \
			s->int_max = v > s->int_max ? v : s->int_max;                              \
		}                                                                                  \
	}

ADD_WIDE(int64_t)
ADD_WIDE(uint64_t)

static void add_complex(struct statistics *s, const double *x, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		double re = x[2 * i], im = x[2 * i + 1];

		s->sum += re;
		s->imaginary += im;
		s->l1 += hypot(re, im);
		bool nan = re != re || im != im;
		s->nans += nan;
		s->infs += !nan && (isinf(re) || isinf(im));
	}
	s->min = s->max = 0;
}

static void add_small_floats(struct statistics *s, enum number_kind kind, const uint16_t *x,
			     size_t n)
{
	float wide[BLOCK];

	if (kind == NUMBER_BF16)
		number_widen_bf16(x, n, wide);
	else
		for (size_t i = 0; i < n; i++)
			wide[i] = half_to_float(x[i]);
	add_float(s, wide, n);
}

static void add_small_complex(struct statistics *s, const float *x, size_t n)
{
	double wide[2 * BLOCK];

	for (size_t i = 0; i < 2 * n; i++)
		wide[i] = x[i];
	add_complex(s, wide, n);
}

#define ADD(type) return add_##type(s, (const type *)in->data + at, n)

static void add_block(struct statistics *s, const struct statistics_input *in, size_t at, size_t n)
{
	switch (in->kind) {
	case NUMBER_F64:
		ADD(double);
	case NUMBER_F32:
		ADD(float);
	case NUMBER_F16:
	case NUMBER_BF16:
		return add_small_floats(s, in->kind, (const uint16_t *)in->data + at, n);
	case NUMBER_I64:
		ADD(int64_t);
	case NUMBER_I32:
		ADD(int32_t);
	case NUMBER_I16:
		ADD(int16_t);
	case NUMBER_I8:
		ADD(int8_t);
	case NUMBER_U64:
		ADD(uint64_t);
	case NUMBER_U32:
		ADD(uint32_t);
	case NUMBER_U16:
		ADD(uint16_t);
	case NUMBER_C128:
		return add_complex(s, (const double *)in->data + 2 * at, n);
	case NUMBER_C64:
		return add_small_complex(s, (const float *)in->data + 2 * at, n);
	default:
		ADD(uint8_t);
	}
}

static void read_piece(const struct pass *p, unsigned worker, size_t piece)
{
	size_t at = piece * PIECE, end = at + PIECE < p->in->count ? at + PIECE : p->in->count;
	union keys keys;

	if (p->pieces)
		empty_statistics(&p->pieces[piece]);
	for (; at < end; at += BLOCK) {
		size_t n = end - at < BLOCK ? end - at : BLOCK;

		if (p->pieces)
			add_block(&p->pieces[piece], p->in, at, n);
		if (p->select) {
			keys_fill(p->in->kind, p->in->data, at, n, &keys);
			select_count(p->select, worker, &keys, n);
		}
	}
}

static void read_pieces(void *ctx, unsigned worker)
{
	const struct pass *p = ctx;
	struct pieces mine = pieces_of(p->in, worker, p->workers);

	for (size_t i = mine.first; i < mine.end; i++)
		read_piece(p, worker, i);
}

static void sum_pieces(const struct statistics *pieces, size_t n, struct statistics *out)
{
	empty_statistics(out);
	for (size_t i = 0; i < n; i++) {
		const struct statistics *s = &pieces[i];

		out->nans += s->nans;
		out->infs += s->infs;
		out->sum += s->sum;
		out->l1 += s->l1;
		out->imaginary += s->imaginary;
		out->min = s->min < out->min ? s->min : out->min;
		out->max = s->max > out->max ? s->max : out->max;
		out->int_sum += s->int_sum;
		out->int_l1 += s->int_l1;
		out->int_min = s->int_min < out->int_min ? s->int_min : out->int_min;
		out->int_max = s->int_max > out->int_max ? s->int_max : out->int_max;
	}
	if (out->nans)
		out->min = out->max = NAN;
}

/* The two neighbours of each quantile. */
static void find_ranks(size_t count, const double *quantiles, size_t n, uint64_t *ranks)
{
	for (size_t i = 0; i < n; i++) {
		double at = quantiles[i] * (double)(count - 1);

		ranks[2 * i] = (uint64_t)floor(at);
		ranks[2 * i + 1] = (uint64_t)ceil(at);
	}
}

static double interpolate(double below, double above, double weight)
{
	if (weight == 0 || below == above)
		return below;
	return weight < 0.5 ? below + weight * (above - below)
			    : above - (above - below) * (1 - weight);
}

static int read_quantiles(struct pass *p, const struct statistics *s, const double *quantiles,
			  size_t n, double *out)
{
	int r = 1;

	for (size_t i = 0; s->nans && i < n; i++)
		out[i] = NAN;
	if (s->nans)
		return 0;
	p->pieces = NULL;
	while ((r = select_next(p->select)) > 0)
		run_workers(p->workers, read_pieces, p);
	for (size_t i = 0; r == 0 && i < n; i++) {
		double at = quantiles[i] * (double)(p->in->count - 1);

		out[i] = interpolate(key_value(p->in->kind, select_key(p->select, 2 * i)),
				     key_value(p->in->kind, select_key(p->select, 2 * i + 1)),
				     at - floor(at));
	}
	return r;
}

static bool are_quantiles(const struct statistics_input *in, const double *quantiles, size_t n)
{
	if (n > STATISTICS_MAX_QUANTILES || (n && number_is_complex(in->kind)))
		return false;
	for (size_t i = 0; i < n; i++)
		if (!(quantiles[i] >= 0 && quantiles[i] <= 1))
			return false;
	return true;
}

int statistics_compute(const struct statistics_input *in, const double *quantiles,
		       size_t nquantiles, struct statistics *out, double *out_quantiles)
{
	uint64_t ranks[SELECT_MAX];
	struct select select = {0};
	struct pass p = {.in = in, .workers = workers_for(in)};
	struct statistics one, *pieces = &one;
	int r = 0;

	if (!in->count || !are_quantiles(in, quantiles, nquantiles))
		return -EINVAL;
	if (piece_count(in) > 1)
		pieces = malloc(piece_count(in) * sizeof(*pieces));
	if (nquantiles) {
		find_ranks(in->count, quantiles, nquantiles, ranks);
		r = select_init(&select, in, p.workers, ranks, 2 * nquantiles);
		p.select = &select;
	}
	if (!pieces || r < 0) {
		r = -ENOMEM;
		goto out;
	}
	p.pieces = pieces;
	run_workers(p.workers, read_pieces, &p);
	sum_pieces(pieces, piece_count(in), out);
	if (nquantiles)
		r = read_quantiles(&p, out, quantiles, nquantiles, out_quantiles);
out:
	select_release(&select);
	if (pieces != &one)
		free(pieces);
	return r;
}
