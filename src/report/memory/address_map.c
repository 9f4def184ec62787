/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "report/memory/address_map.h"

#include <stdlib.h>

#include "base/mem.h"

#define FIRST_SHIFT 12
#define MOST_SHIFT 40
#define MOST_ADDRESS (1ull << 52) /* that a page can count with */

struct address_map *address_map_new(const struct block_pool *pool)
{
	struct address_map *m = xcalloc(1, sizeof(*m));

	m->pool = pool;
	m->shift = FIRST_SHIFT;
	return m;
}

void address_map_free(struct address_map *m)
{
	if (!m)
		return;
	for (size_t i = 0; i < m->nrows; i++)
		series_release(&m->rows[i].series);
	hmap_release(&m->row_of);
	free(m->rows);
	free(m->blocks);
	free(m);
}

static struct map_row *row_of(struct address_map *m, uint64_t piece)
{
	uint64_t at = hmap_get(&m->row_of, piece);

	if (at == HMAP_NONE) {
		at = m->nrows;
		LIST_ADD(m->rows, m->nrows, m->cap_rows, (struct map_row){.piece = piece});
		hmap_put(&m->row_of, piece, at);
	}
	return &m->rows[at];
}

static void add_change(struct address_map *m, struct grid *g, uint64_t piece, uint32_t bucket,
		       int64_t bytes)
{
	if (!bytes)
		return;
	size_t before = g->entries;
	struct series_entry *e = series_entry(&row_of(m, piece)->series, g, bucket);

	*(bytes > 0 ? &e->plus : &e->minus) += (uint64_t)(bytes > 0 ? bytes : -bytes);
	m->entries += g->entries - before;
}

/*
 * Two pieces become one. What a row at an even place has more than the one before, both halves of the
 * new piece have more, and so does every one behind; of one at an odd place the first has it once.
 */
static void widen_pieces(struct address_map *m, struct grid *g)
{
	struct address_map old = *m;

	m->rows = NULL;
	m->nrows = m->cap_rows = m->entries = 0;
	m->row_of = (struct hmap){0};
	m->shift++;
	for (size_t i = 0; i < old.nrows; i++) {
		struct map_row *r = &old.rows[i];
		bool odd = r->piece & 1;

		for (size_t k = 0; k < r->series.n; k++) {
			const struct series_entry *e = &r->series.at[k];
			int64_t bytes = (int64_t)(e->plus - e->minus);

			add_change(m, g, r->piece / 2, e->bucket, odd ? bytes : 2 * bytes);
			if (odd)
				add_change(m, g, r->piece / 2 + 1, e->bucket, bytes);
		}
		g->entries -= r->series.n;
		series_release(&r->series);
	}
	hmap_release(&old.row_of);
	free(old.rows);
}

void address_map_change(struct address_map *m, struct grid *g, const struct block *b,
			uint32_t bucket, bool comes)
{
	uint64_t end = b->ptr + b->bytes;
	int64_t sign = comes ? 1 : -1;

	bucket >>= m->time_shift;
	if (!b->bytes || end < b->ptr || end > MOST_ADDRESS)
		return;
	uint64_t first = b->ptr >> m->shift, last = (end - 1) >> m->shift;
	int64_t piece = (int64_t)(1ull << m->shift);
	int64_t in_first =
		first == last ? (int64_t)b->bytes : (int64_t)(((first + 1) << m->shift) - b->ptr);
	int64_t in_last = (int64_t)(end - (last << m->shift));

	add_change(m, g, first, bucket, sign * in_first);
	if (first == last) {
		add_change(m, g, first + 1, bucket, -sign * in_first);
	} else if (first + 1 == last) {
		add_change(m, g, last, bucket, sign * (in_last - in_first));
		add_change(m, g, last + 1, bucket, -sign * in_last);
	} else {
		add_change(m, g, first + 1, bucket, sign * (piece - in_first));
		add_change(m, g, last, bucket, sign * (in_last - piece));
		add_change(m, g, last + 1, bucket, -sign * in_last);
	}
	while (m->nrows > ADDRESS_MAP_MOST_ROWS && m->shift < MOST_SHIFT)
		widen_pieces(m, g);
	address_map_shrink(m, g, ADDRESS_MAP_MOST_ENTRIES);
}

static void halve_rows(struct address_map *m, struct grid *g)
{
	size_t before = g->entries;

	for (size_t i = 0; i < m->nrows; i++)
		series_halve(&m->rows[i].series, g);
	m->entries -= before - g->entries;
}

void address_map_shrink(struct address_map *m, struct grid *g, size_t most)
{
	while (m->entries > most) {
		if (g->buckets >> m->time_shift > 2 * ADDRESS_MAP_FEWEST_BUCKETS) {
			halve_rows(m, g);
			m->time_shift++;
		} else if (m->shift < MOST_SHIFT) {
			widen_pieces(m, g);
		} else {
			break;
		}
	}
}

static void sift_down(struct address_map *m, size_t i)
{
	for (;;) {
		size_t least = i;

		for (size_t k = 2 * i + 1; k <= 2 * i + 2 && k < m->nblocks; k++)
			if (m->blocks[k].area < m->blocks[least].area)
				least = k;
		if (least == i)
			return;
		struct map_block t = m->blocks[i];
		m->blocks[i] = m->blocks[least];
		m->blocks[least] = t;
		i = least;
	}
}

void address_map_ended(struct address_map *m, const struct block *b, uint32_t site, uint64_t end_ns,
		       bool left)
{
	uint64_t lived = end_ns > b->time_ns ? end_ns - b->time_ns : 0;
	struct map_block one = {.area = (double)b->bytes * ((double)lived + 1),
				.ptr = b->ptr,
				.bytes = b->bytes,
				.start_ns = b->time_ns,
				.end_ns = b->time_ns + lived,
				.key = b->key,
				.row = b->row,
				.site = site,
				.left = left};

	if (!b->bytes || b->ptr > MOST_ADDRESS || b->bytes > MOST_ADDRESS)
		return;
	if (m->nblocks < ADDRESS_MAP_MOST_BLOCKS) {
		LIST_ADD(m->blocks, m->nblocks, m->cap_blocks, one);
		for (size_t i = m->nblocks - 1;
		     i && m->blocks[(i - 1) / 2].area > m->blocks[i].area; i = (i - 1) / 2) {
			struct map_block t = m->blocks[i];
			m->blocks[i] = m->blocks[(i - 1) / 2];
			m->blocks[(i - 1) / 2] = t;
		}
		return;
	}
	m->others++;
	if (one.area <= m->blocks[0].area)
		return;
	m->blocks[0] = one;
	sift_down(m, 0);
}

void address_map_halve(struct address_map *m, struct grid *g)
{
	if (m->time_shift)
		m->time_shift--;
	else
		halve_rows(m, g);
}

static int by_piece(const void *a, const void *b)
{
	return ORDER(((const struct map_row *)a)->piece, ((const struct map_row *)b)->piece);
}

static int largest_first(const void *pa, const void *pb)
{
	const struct map_block *a = pa, *b = pb;

	return ORDER(b->area, a->area) ?: ORDER(a->row, b->row);
}

void address_map_sort(struct address_map *m)
{
	SORT(m->rows, m->nrows, by_piece);
	SORT(m->blocks, m->nblocks, largest_first);
}
