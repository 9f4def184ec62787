/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/analysis/groups/moved_lines.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/containers/buf.h"
#include "base/mem.h"
#include "memory/analysis/common/analysis.h"

#define MAX_CELLS (1u << 20) /* of the table of one group; a larger one is paired in order */

static size_t count_digits(const char *text, size_t len)
{
	size_t n = 0;

	while (n < len && n < 9 && text[n] >= '0' && text[n] <= '9')
		n++;
	return n;
}

void moved_site_read(struct moved_site *s, const char *name, size_t len, uint64_t context)
{
	struct buf functions = {0};
	unsigned n = 0;

	memset(s->lines, 0, sizeof(s->lines));
	for (size_t i = 0; i < len; i++) {
		size_t digits = name[i] == ':' ? count_digits(name + i + 1, len - i - 1) : 0;

		buf_add_char(&functions, name[i]);
		if (!digits || i + digits + 1 >= len || name[i + digits + 1] != ')')
			continue;
		if (n < MOVED_LINES)
			s->lines[n++] = (uint32_t)strtoul(name + i + 1, NULL, 10);
		i += digits;
	}
	s->group = XXH3_64bits_withSeed(functions.data, functions.len, context);
	s->pair = MOVED_NONE;
	buf_release(&functions);
}

static int compare_lines(const struct moved_site *a, const struct moved_site *b)
{
	int order = 0;

	for (unsigned i = 0; i < MOVED_LINES && !order; i++)
		order = ORDER(a->lines[i], b->lines[i]);
	return order;
}

static int by_group_and_line(const void *pa, const void *pb)
{
	const struct moved_site *a = pa, *b = pb;

	return ORDER(a->group, b->group) ?: compare_lines(a, b) ?: ORDER(a->place, b->place);
}

static void pair_two(struct moved_site *a, struct moved_site *b)
{
	a->pair = b->place;
	b->pair = a->place;
}

static uint64_t distance(uint64_t a, uint64_t b)
{
	return a > b ? a - b : b - a;
}

static uint64_t cost_of_pair(const struct moved_site *a, const struct moved_site *b)
{
	return distance(a->bytes, b->bytes) + (compare_lines(a, b) != 0);
}

/*
 * The cheapest way to go through both in order: cost[i][k] is that of a's from i on with b's from k on.
 * One that stays alone costs what it holds, and more than a pair whose lines moved.
 */
static void pair_by_cost(struct moved_site *a, size_t n, struct moved_site *b, size_t m)
{
	size_t width = m + 1;
	uint64_t *cost = xcalloc((n + 1) * width, sizeof(*cost));

	for (size_t i = n + 1; i-- > 0;)
		for (size_t k = m + 1; k-- > 0;) {
			uint64_t best = i == n && k == m ? 0 : UINT64_MAX, c;

			if (i < n && (c = cost[(i + 1) * width + k] + a[i].bytes + 2) < best)
				best = c;
			if (k < m && (c = cost[i * width + k + 1] + b[k].bytes + 2) < best)
				best = c;
			if (i < n && k < m &&
			    (c = cost[(i + 1) * width + k + 1] + cost_of_pair(&a[i], &b[k])) < best)
				best = c;
			cost[i * width + k] = best;
		}
	for (size_t i = 0, k = 0; i < n && k < m;) {
		uint64_t now = cost[i * width + k];

		if (now == cost[(i + 1) * width + k + 1] + cost_of_pair(&a[i], &b[k]))
			pair_two(&a[i++], &b[k++]);
		else if (now == cost[(i + 1) * width + k] + a[i].bytes + 2)
			i++;
		else
			k++;
	}
	free(cost);
}

static void pair_group(struct moved_site *a, size_t n, struct moved_site *b, size_t m)
{
	bool same = n == m;

	for (size_t i = 0; same && i < n; i++)
		same = !compare_lines(&a[i], &b[i]);
	if (!same && n != m && (n + 1) * (m + 1) <= MAX_CELLS) {
		pair_by_cost(a, n, b, m);
		return;
	}
	for (size_t i = 0; i < n && i < m; i++)
		pair_two(&a[i], &b[i]);
}

/* Where the next group begins. */
static size_t end_of_group(const struct moved_site *list, size_t n, size_t from)
{
	size_t end = from + 1;

	while (end < n && list[end].group == list[from].group)
		end++;
	return end;
}

void moved_sites_pair(struct moved_site *base, size_t nbase, struct moved_site *compare,
		      size_t ncompare)
{
	size_t i = 0, k = 0;

	SORT(base, nbase, by_group_and_line);
	SORT(compare, ncompare, by_group_and_line);
	while (i < nbase && k < ncompare) {
		size_t end_i = end_of_group(base, nbase, i);
		size_t end_k = end_of_group(compare, ncompare, k);

		if (base[i].group == compare[k].group)
			pair_group(&base[i], end_i - i, &compare[k], end_k - k);
		if (base[i].group <= compare[k].group) {
			bool both = base[i].group == compare[k].group;

			i = end_i;
			k = both ? end_k : k;
		} else {
			k = end_k;
		}
	}
}
