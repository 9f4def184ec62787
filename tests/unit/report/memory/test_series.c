/* SPDX-License-Identifier: MulanPSL-2.0 */
/* A grid that becomes coarser loses nothing, whatever the order of what happens. */
#include "report/memory/series.h"

#include "report/memory/address_map.h"
#include "test.h"

static uint64_t sum_until(const struct series *s, uint32_t bucket)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < s->n && s->at[i].bucket <= bucket; i++)
		sum += s->at[i].plus - s->at[i].minus;
	return sum;
}

TEST(series, halving_and_merging_keep_sums)
{
	struct grid g = {0};
	struct series a = {0}, b = {0};
	uint64_t all = 0;

	grid_begin(&g, 1000);
	for (uint32_t i = 0; i < 1000; i++) {
		uint32_t bucket = (i * 7919) % 1024; /* in no order */
		struct series *s = i % 3 ? &a : &b;

		series_entry(s, &g, bucket)->plus += i;
		series_entry(s, &g, bucket)->more++;
		all += i;
	}
	for (size_t i = 1; i < a.n; i++)
		CHECK(a.at[i - 1].bucket < a.at[i].bucket);
	CHECK(g.entries == a.n + b.n && g.buckets <= 1024);
	uint64_t half = sum_until(&a, 511);
	for (unsigned i = 0; i < 3; i++) {
		series_halve(&a, &g);
		series_halve(&b, &g);
		grid_halved(&g);
	}
	CHECK(sum_until(&a, 511 / 8) == half && g.buckets == 128);
	CHECK(a.n <= 128 && g.entries == a.n + b.n);
	series_merge(&a, &b, &g);
	CHECK(!b.n && g.entries == a.n && sum_until(&a, UINT32_MAX) == all);
	CHECK(grid_bucket(&g, 0) == 0 && grid_bucket(&g, 1000 + (1ull << g.shift)) == 1);
	series_release(&a);
}

/* Bytes that the map says are covered in a piece at the end of a bucket. */
static int64_t covered(struct address_map *m, uint64_t piece, uint32_t bucket)
{
	int64_t sum = 0;

	for (size_t i = 0; i < m->nrows; i++)
		if (m->rows[i].piece <= piece)
			sum += (int64_t)sum_until(&m->rows[i].series, bucket);
	return sum;
}

TEST(address_map, larger_pieces_cover_the_same_bytes)
{
	struct block_pool pool = {.type = TYPE_PTA};
	struct address_map *m = address_map_new(&pool);
	struct grid g = {0};
	uint64_t bytes = 0;

	grid_begin(&g, 0);
	for (uint32_t i = 0; i < 6000; i++) { /* more pieces than there is room for */
		struct block b = {
			.ptr = (uint64_t)i << 16, .bytes = 3000 + i % 9000, .pool = &pool};

		address_map_change(m, &g, &b, i % 50, true);
		bytes += b.bytes;
	}
	CHECK(m->nrows <= ADDRESS_MAP_MOST_ROWS && m->shift > 12);
	int64_t sum = 0;
	for (uint64_t piece = 0; piece <= 6000ull << 16 >> m->shift; piece++) {
		int64_t in_piece = covered(m, piece, UINT32_MAX);

		CHECK(in_piece >= 0 && in_piece <= 1 << m->shift);
		sum += in_piece;
	}
	CHECK(sum == (int64_t)bytes);
	for (uint32_t i = 0; i < 6000; i++) {
		struct block b = {
			.ptr = (uint64_t)i << 16, .bytes = 3000 + i % 9000, .pool = &pool};

		address_map_change(m, &g, &b, 50 + i % 50, false);
	}
	for (uint64_t piece = 0; piece <= 6000ull << 16 >> m->shift; piece += 7)
		CHECK(covered(m, piece, UINT32_MAX) == 0);
	address_map_shrink(m, &g, 300);
	CHECK(m->entries <= 300);
	address_map_free(m);
}
