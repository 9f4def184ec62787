/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "base/containers/names.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/mem.h"

const char *names_get(const struct names *s, uint32_t number, size_t *out_len)
{
	size_t start = number ? s->ends[number - 1] : 0;

	*out_len = s->ends[number] - start;
	return s->text.data + start;
}

static bool is_text(const struct names *s, uint64_t number, const char *text, size_t len)
{
	size_t n;
	const char *have = names_get(s, (uint32_t)number, &n);

	return n == len && (!n || !memcmp(have, text, n));
}

uint32_t names_of(struct names *s, const char *text, size_t len)
{
	uint64_t hash = XXH3_64bits(len ? text : "", len);

	for (;; hash++) {
		uint64_t found = hmap_get(&s->by_hash, hash);

		if (found == HMAP_NONE)
			break;
		if (is_text(s, found, text, len))
			return (uint32_t)found;
	}
	uint32_t number = (uint32_t)s->count;
	s->ends = xgrow(s->ends, &s->cap, s->count + 1, sizeof(*s->ends));
	if (!s->text.data)
		buf_room(&s->text, 1); /* names_get() never gives NULL */
	buf_add(&s->text, text, len);
	s->ends[s->count++] = s->text.len;
	hmap_put(&s->by_hash, hash, number);
	return number;
}

void names_release(struct names *s)
{
	buf_release(&s->text);
	free(s->ends);
	hmap_release(&s->by_hash);
	*s = (struct names){0};
}
