/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/analysis/common/text_numbers.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/mem.h"

static bool is_text(const struct numbered_text *l, const char *text, size_t len)
{
	return l->len == len && !memcmp(l->text, text, len);
}

uint32_t text_numbers_find(struct text_numbers *l, const char *text, size_t len, uint32_t max)
{
	if (!text || !len)
		return 0;
	if (l->last && is_text(&l->list[l->last], text, len))
		return l->last;
	for (uint64_t hash = XXH3_64bits(text, len);; hash++) {
		uint64_t found = hmap_get(&l->by_hash, hash);

		if (found == HMAP_NONE) {
			if (l->count >= max)
				return 0;
			found = l->count ? l->count : 1;
			l->count = found + 1;
			l->list = xgrow(l->list, &l->cap, l->count, sizeof(*l->list));
			l->list[found] = (struct numbered_text){xstrndup(text, len), len, 0};
			hmap_put(&l->by_hash, hash, found);
		}
		if (is_text(&l->list[found], text, len)) {
			l->last = (uint32_t)found;
			return l->last;
		}
	}
}

void text_numbers_release(struct text_numbers *l)
{
	for (size_t i = 1; i < l->count; i++)
		free(l->list[i].text);
	free(l->list);
	hmap_release(&l->by_hash);
	*l = (struct text_numbers){0};
}
