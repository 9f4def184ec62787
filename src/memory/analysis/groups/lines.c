/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/analysis/groups/lines.h"

#include <stdlib.h>

#include "base/mem.h"

uint32_t lines_place(struct module_lines *l, struct text_numbers *places,
		     const struct stacks *stacks, uint32_t stack)
{
	uint64_t known = hmap_get(&l->by_stack, stack);
	struct buf where = {0};

	if (known != HMAP_NONE)
		return (uint32_t)known;
	uint32_t place = 0;
	if (stacks_where(stacks, stack, &where) && where.len)
		place = text_numbers_find(places, buf_str(&where), where.len, UINT32_MAX);
	hmap_put(&l->by_stack, stack, place);
	buf_release(&where);
	return place;
}

void lines_add(struct module_lines *l, size_t module, uint32_t place, uint64_t bytes)
{
	uint64_t key = (uint64_t)module << 32 | place, at = hmap_get(&l->by_line, key);

	if (at != HMAP_NONE) {
		l->list[at].line.bytes += bytes;
		return;
	}
	uint64_t last = hmap_get(&l->by_module, module);
	struct module_line new = {{place, bytes}, last == HMAP_NONE ? 0 : (size_t)last + 1};
	hmap_put(&l->by_module, module, l->n);
	hmap_put(&l->by_line, key, l->n);
	LIST_ADD(l->list, l->n, l->cap, new);
}

void lines_merge(const struct module_lines *l, size_t module, struct group *to, struct hmap *seen)
{
	uint64_t last = hmap_get(&l->by_module, module);

	for (size_t i = last == HMAP_NONE ? 0 : (size_t)last + 1; i; i = l->list[i - 1].next) {
		const struct group_line *one = &l->list[i - 1].line;
		uint64_t at = hmap_get(seen, one->place);

		if (at != HMAP_NONE) {
			to->lines[at].bytes += one->bytes;
			continue;
		}
		hmap_put(seen, one->place, to->nlines);
		LIST_ADD(to->lines, to->nlines, to->cap_lines, *one);
	}
}

static int larger_first(const void *pa, const void *pb)
{
	const struct group_line *a = pa, *b = pb;

	return ORDER(b->bytes, a->bytes) ?: ORDER(a->place, b->place);
}

void lines_sort(struct group *g)
{
	SORT(g->lines, g->nlines, larger_first);
}

void lines_release(struct module_lines *l)
{
	free(l->list);
	hmap_release(&l->by_module);
	hmap_release(&l->by_line);
	hmap_release(&l->by_stack);
	*l = (struct module_lines){0};
}
