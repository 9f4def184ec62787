/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The search in align.h, in three parts.
 *
 * 1. Forward. Row d holds x for k = -d, -d + 2, …, d; x[j] belongs to k = 2j - d. Then row d comes
 *    from row d - 1 by x[j] = max(x[j], x[j - 1] + 1), with -1 for what is missing at both ends,
 *    from high j to low j in place. Elements are compared for many j at once.
 * 2. Checkpoints: a copy of the row every `gap` steps. The gap doubles, and every second copy goes,
 *    when there are more of them than steps between two.
 * 3. Back. From the end (D, N - M) to d = 0, block by block: the rows behind the checkpoint are
 *    computed again, as far as they matter, and one bit per (d, j) says where x came from.
 *
 * What may be left out. N and M are the lengths, D is the number of edits, and a cell is a pair
 * (d, k). To get from diagonal k to that of the end, N - M, takes |k - (N - M)| edits at least: a
 * cell on the path that is walked back has d + |k - (N - M)| <= D. Call all cells for which that
 * holds live. Both parents of a cell, (d - 1, k - 1) and (d - 1, k + 1), have a sum that is not
 * larger. So
 *   (a) values of live cells come from live cells alone, and leaving out any cells that are not
 *       live changes no value and no choice on the path. With a bound >= D in place of D the cells
 *       with a sum <= bound are closed in the same way, and contain the live ones.
 *   (b) the cells from which (d, k) can be reached are live if (d, k) is: part 3 needs |k' - k| <=
 *       d - d' only, and finds all of that in the checkpoint.
 *   (c) a cell with x = N or y = M can go straight to the end, so D <= d + |k - (N - M)|: each one
 *       lowers the bound. What would leave the rectangle next to it has a sum of two more and is
 *       left out. So x <= N and y <= M for every cell that is kept, and the algorithm as it stands
 *       in align.h, which does walk outside, has the same values in all live cells.
 *
 * The bound at the start is the number of edits of some script that need not be the shortest: that
 * of the same search within a narrow band of diagonals. Where the two sequences do not drift far
 * apart it is D itself or nearly so, and half of the cells are left out.
 */
#include "memory/analysis/compare/align.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#if defined(__x86_64__)
#	include <immintrin.h>
#endif

#define PAD 8 /* elements behind the end that may be read */
#define END_BASE UINT32_MAX
#define END_COMPARE (UINT32_MAX - 1)
#define NOTHING (-1) /* x of a cell that is not there; one more is no gain either */

#define FIRST_GAP 16
#define MAX_WORDS (64u << 20)
#define BAND 512

/* A row as it was after step d: x[lo] and on. */
struct checkpoint {
	int32_t d, lo, count;
	int32_t *x;
};

struct search {
	uint32_t *a, *b; /* copies with an end that equals nothing */
	int32_t n, m, end_k;
	int32_t bound; /* D is not larger */
	int32_t *room; /* x[-1] is its first word */
	int32_t *x;
	size_t cap;
	struct checkpoint *checkpoints;
	size_t ncheckpoints, checkpoints_cap;
	size_t words, max_words; /* in the checkpoints */
	int32_t gap;
	void (*step)(struct search *s, int32_t d, int32_t lo, int32_t hi);
};

static uint32_t *copy_with_end(const uint32_t *from, size_t n, uint32_t end)
{
	uint32_t *to = xmalloc((n + PAD) * sizeof(*to));

	if (n)
		memcpy(to, from, n * sizeof(*to));
	for (size_t i = n; i < n + PAD; i++)
		to[i] = end;
	return to;
}

/* How many elements are equal from here on. The two ends differ from each other and the rest. */
static int32_t equal_run(const uint32_t *a, const uint32_t *b)
{
	uint64_t p[2], q[2];
	int32_t i = 0;

	for (;; i += 4) {
		memcpy(p, a + i, sizeof(p));
		memcpy(q, b + i, sizeof(q));
		if (p[0] != q[0] || p[1] != q[1])
			break;
	}
	while (a[i] == b[i])
		i++;
	return i;
}

static int32_t at_least(int32_t v, int32_t least)
{
	return v > least ? v : least;
}

static int32_t at_most(int32_t v, int32_t most)
{
	return v < most ? v : most;
}

static int32_t distance(const struct search *s, int32_t k)
{
	return k > s->end_k ? k - s->end_k : s->end_k - k;
}

/* Follows equal elements from x[j], and notes the bound of (c) above. */
static void follow_equal(struct search *s, int32_t d, int32_t j)
{
	int32_t k = 2 * j - d;
	int32_t x = s->x[j];

	x += equal_run(s->a + x, s->b + (x - k));
	s->x[j] = x;
	if ((x == s->n || x - k == s->m) && d + distance(s, k) < s->bound)
		s->bound = d + distance(s, k);
}

static void step_plain(struct search *s, int32_t d, int32_t lo, int32_t hi)
{
	const uint32_t *a = s->a, *b = s->b;
	int32_t *x = s->x;

	for (int32_t j = hi; j >= lo; j--) {
		int32_t at = x[j] > x[j - 1] ? x[j] : x[j - 1] + 1;
		int32_t y = at - 2 * j + d;

		x[j] = at;
		if (a[at] == b[y] || at == s->n || y == s->m)
			follow_equal(s, d, j);
	}
}

#if defined(__x86_64__)
/* Eight cells at once. */
__attribute__((target("avx2"))) static void step_avx2(struct search *s, int32_t d, int32_t lo,
						      int32_t hi)
{
	const __m256i one = _mm256_set1_epi32(1), n = _mm256_set1_epi32(s->n),
		      m = _mm256_set1_epi32(s->m);
	const __m256i spread = _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14);
	const int *a = (const int *)s->a, *b = (const int *)s->b;
	int32_t j = hi - 7;

	for (; j >= lo; j -= 8) {
		__m256i x = _mm256_loadu_si256((const __m256i *)(s->x + j));
		__m256i left = _mm256_loadu_si256((const __m256i *)(s->x + j - 1));
		__m256i k = _mm256_add_epi32(_mm256_set1_epi32(2 * j - d), spread);

		x = _mm256_max_epi32(x, _mm256_add_epi32(left, one));
		_mm256_storeu_si256((__m256i *)(s->x + j), x);
		__m256i y = _mm256_sub_epi32(x, k);
		__m256i equal = _mm256_cmpeq_epi32(_mm256_i32gather_epi32(a, x, 4),
						   _mm256_i32gather_epi32(b, y, 4));
		__m256i side = _mm256_or_si256(_mm256_cmpeq_epi32(x, n), _mm256_cmpeq_epi32(y, m));
		unsigned lanes = (unsigned)_mm256_movemask_ps(
			_mm256_castsi256_ps(_mm256_or_si256(equal, side)));
		for (; lanes; lanes &= lanes - 1)
			follow_equal(s, d, j + __builtin_ctz(lanes));
	}
	step_plain(s, d, lo, j + 7);
}
#endif

static void choose_step(struct search *s, bool plain)
{
	s->step = step_plain;
#if defined(__x86_64__)
	if (!plain && __builtin_cpu_supports("avx2"))
		s->step = step_avx2;
#else
	(void)plain;
#endif
}

static void make_room(struct search *s, int32_t d)
{
	if ((size_t)d + 2 <= s->cap)
		return;
	s->room = xgrow(s->room, &s->cap, (size_t)d + 2, sizeof(*s->room));
	s->x = s->room + 1;
}

/* Row 0. */
static void begin_search(struct search *s)
{
	make_room(s, 64);
	s->x[-1] = NOTHING;
	s->x[0] = 0;
	follow_equal(s, 0, 0);
}

/* The cells of row d whose sum is within the bound. */
static void is_kept(const struct search *s, int32_t d, int32_t *lo, int32_t *hi)
{
	int32_t spare = s->bound - d;

	*lo = (at_least(s->end_k - spare, -d) + d) / 2;
	*hi = (at_most(s->end_k + spare, d) + d) / 2;
}

static void advance_search(struct search *s, int32_t d, int32_t lo, int32_t hi)
{
	make_room(s, d);
	if (hi == d)
		s->x[d] = NOTHING;
	s->step(s, d, lo, hi);
}

/* --- the first bound --- */

/* The cell that has consumed most: x + y, which is 2x - 2j + d. */
static int32_t furthest(const struct search *s, int32_t lo, int32_t hi)
{
	int32_t best = lo;

	for (int32_t j = lo; j <= hi; j++)
		if (s->x[j] - j > s->x[best] - best)
			best = j;
	return best;
}

/*
 * The same search in the diagonals around the furthest cell alone. A cell is left out by what is
 * known then, so its neighbours may get less than they could; all they say is still true.
 */
static void estimate_bound(struct search *s, int32_t band)
{
	int32_t lo = 0, hi = 0;

	begin_search(s);
	for (int32_t d = 1; d < s->bound && lo <= hi; d++) {
		int32_t old_lo = lo, old_hi = hi, best = furthest(s, lo, hi);

		is_kept(s, d, &lo, &hi);
		lo = at_least(lo, at_least(best - band / 2, old_lo));
		hi = at_most(hi, at_most(best + band / 2, old_hi + 1));
		make_room(s, d);
		s->x[old_lo - 1] = NOTHING;
		s->x[old_hi + 1] = NOTHING;
		s->step(s, d, lo, hi);
	}
}

/* --- checkpoints --- */

static void thin_out(struct search *s)
{
	size_t n = 0;

	s->gap *= 2;
	for (size_t i = 0; i < s->ncheckpoints; i++) {
		struct checkpoint *c = &s->checkpoints[i];

		if (c->d % s->gap == 0) {
			s->checkpoints[n++] = *c;
			continue;
		}
		s->words -= (size_t)c->count;
		free(c->x);
	}
	s->ncheckpoints = n;
}

static void keep_row(struct search *s, int32_t d, int32_t lo, int32_t hi)
{
	struct checkpoint c = {.d = d, .lo = lo, .count = hi - lo + 1};

	if (d % s->gap)
		return;
	c.x = xmalloc((size_t)c.count * sizeof(*c.x));
	memcpy(c.x, s->x + lo, (size_t)c.count * sizeof(*c.x));
	s->checkpoints = xgrow(s->checkpoints, &s->checkpoints_cap, s->ncheckpoints + 1, sizeof(c));
	s->checkpoints[s->ncheckpoints++] = c;
	s->words += (size_t)c.count;
	while (s->ncheckpoints > 2 && (s->words > s->max_words || s->ncheckpoints > (size_t)s->gap))
		thin_out(s);
}

/* --- forward --- */

static void report_progress(const struct search *s, const struct align_options *options,
			    int32_t middle)
{
	/* Elements consumed by a cell in the middle, which is seldom far from the best. */
	if (options->progress)
		options->progress(options->arg, (uint64_t)s->x[middle], (uint64_t)s->n + 1);
}

/* Until the end is reached; returns D. */
static int32_t search_forward(struct search *s, const struct align_options *options)
{
	int32_t d = 0, lo = 0, hi = 0;

	begin_search(s);
	keep_row(s, 0, 0, 0);
	/* The cell of the end lowers the bound to its own d; so does one on the way that is sure.
	 */
	for (;;) {
		int32_t end_j = (s->end_k + d) / 2;

		if (distance(s, d) % 2 == 0 && end_j >= lo && end_j <= hi && s->x[end_j] == s->n)
			return d;
		d++;
		is_kept(s, d, &lo, &hi);
		advance_search(s, d, lo, hi);
		keep_row(s, d, lo, hi);
		report_progress(s, options, lo + (hi - lo) / 2);
	}
}

/* --- back --- */

/* Bit j of a line: x[j] came from k + 1, by a compare-only element. */
static void note_choices(const struct search *s, uint64_t *line, int32_t from, int32_t lo,
			 int32_t hi)
{
	for (int32_t j = lo; j <= hi; j++)
		if (s->x[j] > s->x[j - 1])
			line[(j - from) / 64] |= 1ull << (j - from) % 64;
}

/*
 * From cell (d, k) back to the row of checkpoint c. In terms of j the cells that lead to it are
 * j_end - (d - d') … j_end in row d', where j_end belongs to (d, k).
 */
static int32_t walk_block(struct search *s, const struct checkpoint *c, int32_t d, int32_t k,
			  uint64_t *moves)
{
	int32_t steps = d - c->d, j_end = (k + d) / 2, from = at_least(j_end - steps, 0);
	size_t words = ((size_t)steps + 64) / 64;
	uint64_t *choices = xcalloc((size_t)steps, words * sizeof(*choices));

	make_room(s, d);
	s->x[-1] = NOTHING;
	for (int32_t j = at_least(from, c->lo); j <= j_end && j < c->lo + c->count; j++)
		s->x[j] = c->x[j - c->lo];
	for (int32_t i = 1; i <= steps; i++) {
		int32_t row = c->d + i;
		int32_t lo = at_least(j_end - (steps - i), 0), hi = at_most(j_end, row);

		if (hi == row)
			s->x[row] = NOTHING;
		note_choices(s, choices + (size_t)(i - 1) * words, from, lo, hi);
		s->step(s, row, lo, hi);
	}
	for (int32_t i = steps, j = j_end; i > 0; i--) {
		const uint64_t *line = choices + (size_t)(i - 1) * words;
		uint64_t bit = line[(j - from) / 64] >> (j - from) % 64 & 1;
		int32_t edit = c->d + i - 1;

		moves[edit / 64] |= bit << edit % 64;
		k += bit ? 1 : -1;
		j -= bit ? 0 : 1;
	}
	free(choices);
	return k;
}

static void walk_back(struct search *s, int32_t d, uint64_t *moves)
{
	int32_t k = s->end_k;

	for (size_t i = s->ncheckpoints; i > 0; i--) {
		const struct checkpoint *c = &s->checkpoints[i - 1];

		if (c->d >= d)
			continue;
		k = walk_block(s, c, d, k, moves);
		d = c->d;
	}
	BUG_ON(d != 0 || k != 0);
}

static void search_release(struct search *s)
{
	for (size_t i = 0; i < s->ncheckpoints; i++)
		free(s->checkpoints[i].x);
	free(s->checkpoints);
	free(s->room);
	free(s->a);
	free(s->b);
}

void align_init(struct align *out, const struct align_pair *pair,
		const struct align_options *options)
{
	BUG_ON(pair->base_len > ALIGN_MAX_LENGTH || pair->compare_len > ALIGN_MAX_LENGTH);
	struct search s = {
		.a = copy_with_end(pair->base, pair->base_len, END_BASE),
		.b = copy_with_end(pair->compare, pair->compare_len, END_COMPARE),
		.n = (int32_t)pair->base_len,
		.m = (int32_t)pair->compare_len,
		.gap = options->block_steps ? (int32_t)options->block_steps : FIRST_GAP,
		.max_words = options->max_words ? options->max_words : MAX_WORDS,
	};

	s.end_k = s.n - s.m;
	s.bound = s.n + s.m;
	choose_step(&s, options->plain);
	estimate_bound(&s, options->band ? (int32_t)options->band : BAND);
	int32_t d = search_forward(&s, options);
	*out = (struct align){.pair = *pair, .edits = (uint32_t)d};
	out->moves = xcalloc((size_t)d / 64 + 1, sizeof(*out->moves));
	walk_back(&s, d, out->moves);
	search_release(&s);
}

void align_release(struct align *a)
{
	free(a->moves);
	a->moves = NULL;
}

enum align_kind align_next(struct align_walk *w)
{
	const struct align_pair *p = &w->align->pair;

	w->x = w->next_x;
	w->y = w->next_y;
	if (w->x < p->base_len && w->y < p->compare_len && p->base[w->x] == p->compare[w->y]) {
		w->next_x++;
		w->next_y++;
		return ALIGN_BOTH;
	}
	if (w->edit == w->align->edits)
		return ALIGN_END;
	bool insertion = w->align->moves[w->edit / 64] >> w->edit % 64 & 1;
	w->edit++;
	w->next_x += !insertion;
	w->next_y += insertion;
	return insertion ? ALIGN_COMPARE : ALIGN_BASE;
}
