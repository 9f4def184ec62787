/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The largest differences, by name and one by one. */
#include <stdlib.h>

#include "base/mem.h"
#include "memory/analysis/compare/compare_impl.h"

static uint64_t differences_of(const struct compare_counts *t)
{
	return t->only_base + t->only_compare + t->changed;
}

static uint64_t bytes_of(const struct compare_counts *t)
{
	return compare_distance(t->base_bytes, t->compare_bytes);
}

static int by_weight(const void *pa, const void *pb, void *arg)
{
	uint32_t a = *(const uint32_t *)pa, b = *(const uint32_t *)pb;
	const struct compare_counts *list = arg, *ta = &list[a], *tb = &list[b];

	if (bytes_of(ta) != bytes_of(tb))
		return bytes_of(ta) > bytes_of(tb) ? -1 : 1;
	if (differences_of(ta) != differences_of(tb))
		return differences_of(ta) > differences_of(tb) ? -1 : 1;
	return a < b ? -1 : a > b;
}

uint32_t *compare_top_names(const struct compare *c, size_t top, size_t *out_n, size_t *out_total)
{
	uint32_t *list = xmalloc(c->names.count * sizeof(*list));
	size_t n = 0;

	for (size_t i = 0; i < c->names.count; i++)
		if (differences_of(&c->by_name[i]))
			list[n++] = (uint32_t)i;
	qsort_r(list, n, sizeof(*list), by_weight, c->by_name);
	*out_total = n;
	*out_n = n < top ? n : top;
	return list;
}

static int by_size(const void *pa, const void *pb)
{
	const struct compare_line *a = pa, *b = pb;
	uint64_t da = compare_distance(a->size[0], a->size[1]);
	uint64_t db = compare_distance(b->size[0], b->size[1]);
	size_t sa = a->call[0] + a->call[1], sb = b->call[0] + b->call[1];

	if (da != db)
		return da > db ? -1 : 1;
	if (a->pair != b->pair)
		return a->pair < b->pair ? -1 : 1;
	return sa < sb ? -1 : sa > sb; /* grows by one or two with every line of a pair */
}

struct compare_line *compare_top_lines(const struct compare *c, size_t top, size_t *out_n)
{
	struct compare_line *list = NULL;
	size_t n = 0, cap = 0;

	for (size_t i = 0; i < c->npairs && top; i++) {
		struct compare_walk w = {.compare = c, .pair = &c->pairs[i]};
		struct compare_line line;

		while (compare_next(&w, &line)) {
			if (!compare_line_differs(&line))
				continue;
			if (n == 2 * top + 64) { /* the lower part can never come back */
				qsort(list, n, sizeof(*list), by_size);
				n = top;
			}
			list = xgrow(list, &cap, n + 1, sizeof(*list));
			list[n++] = line;
		}
	}
	if (n)
		qsort(list, n, sizeof(*list), by_size);
	*out_n = n < top ? n : top;
	return list;
}
