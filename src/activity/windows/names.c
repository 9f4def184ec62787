/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "activity/windows/names.h"

#include "base/mem.h"
#include "base/text/text.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

static struct name *name_new(struct texts *n, const char *text, size_t len)
{
	struct name *name = xmalloc(sizeof(*name) + len + 1);

	name->same = NULL;
	name->used = n->adds;
	name->id = n->nfree ? n->free_ids[--n->nfree] : n->next_id++;
	name->len = (uint32_t)len;
	memcpy(name->text, text, len);
	name->text[len] = 0;
	n->bytes += sizeof(*name) + len + 1;
	return name;
}

static inline void mark_used(const struct texts *n, struct name *name)
{
	if (name->used != NAME_STAYS)
		name->used = n->adds;
}

static struct name *intern_name(struct texts *n, const char *text, size_t len)
{
	uint64_t key = XXH64(text, len, 0);
	struct name *first = hmap_get_ptr(&n->by_text, key);

	for (struct name *at = first; at; at = at->same)
		if (at->len == len && !memcmp(at->text, text, len)) {
			mark_used(n, at);
			return at;
		}
	struct name *name = name_new(n, text, len);
	name->same = first;
	hmap_put_ptr(&n->by_text, key, name);
	return name;
}

static struct name *put_forever(struct texts *n, const char *text)
{
	struct name *name = intern_name(n, text, strlen(text));

	name->used = NAME_STAYS;
	return name;
}

static inline void texts_begin(struct texts *n)
{
	if (n->empty)
		return;
	n->empty = put_forever(n, "");
	n->other = put_forever(n, "…other");
	n->unknown = put_forever(n, "?");
	n->domain = put_forever(n, "default");
}

struct name *texts_put(struct texts *n, const char *text, size_t len)
{
	texts_begin(n);
	text = text_clean(text, &len, &n->scratch);
	return intern_name(n, text, len);
}

static bool is_full(const struct texts *n, size_t len)
{
	return n->by_hash.count >= NAMES_MAX || n->by_text.count >= NAMES_MAX ||
	       n->bytes + TEXT_CLEAN_GROWTH * len > NAMES_MAX_BYTES;
}

bool texts_add(struct texts *n, uint64_t hash, const char *text, size_t len)
{
	texts_begin(n);
	n->adds++;
	struct name *known = hmap_get_ptr(&n->by_hash, hash);
	if (known) {
		mark_used(n, known);
		return true;
	}
	if (is_full(n, len))
		return false;
	hmap_put_ptr(&n->by_hash, hash, texts_put(n, text, len));
	return true;
}

struct name *texts_find(struct texts *n, uint64_t hash)
{
	texts_begin(n);
	if (!hash)
		return n->empty;
	struct name *name = hmap_get_ptr(&n->by_hash, hash);
	if (!name)
		return n->refused ? n->other : n->unknown;
	mark_used(n, name);
	return name;
}

static void name_free(struct texts *n, struct name *name)
{
	*XPUSH(n->free_ids, n->nfree, n->free_cap) = name->id;
	n->bytes -= sizeof(*name) + name->len + 1;
	free(name);
}

/* Forgets the names of one chain that are older, and puts the others into `kept`. */
static void forget_chain(struct texts *n, struct name *first, uint64_t oldest, struct hmap *kept,
			 uint64_t key)
{
	struct name *chain = NULL;

	while (first) {
		struct name *name = first;
		first = name->same;
		if (name->used < oldest) {
			name_free(n, name);
			continue;
		}
		name->same = chain;
		chain = name;
	}
	if (chain)
		hmap_put_ptr(kept, key, chain);
}

bool texts_may_forget(const struct texts *n)
{
	return n->adds - n->forgot > n->by_hash.count / 4;
}

void texts_forget(struct texts *n)
{
	struct hmap by_hash = {0}, by_text = {0};
	uint64_t half = n->by_hash.count / 2, oldest = n->adds > half ? n->adds - half : 0;
	uint64_t key, value;

	n->forgot = n->adds;
	for (size_t at = 0; hmap_next(&n->by_hash, &at, &key, &value);)
		if (((struct name *)(uintptr_t)value)->used >= oldest)
			hmap_put(&by_hash, key, value);
	for (size_t at = 0; hmap_next(&n->by_text, &at, &key, &value);)
		forget_chain(n, (struct name *)(uintptr_t)value, oldest, &by_text, key);
	hmap_release(&n->by_hash);
	hmap_release(&n->by_text);
	n->by_hash = by_hash;
	n->by_text = by_text;
}

void texts_release(struct texts *n)
{
	uint64_t key, value;

	for (size_t at = 0; hmap_next(&n->by_text, &at, &key, &value);)
		for (struct name *name = (struct name *)(uintptr_t)value; name;) {
			struct name *next = name->same;
			free(name);
			name = next;
		}
	hmap_release(&n->by_hash);
	hmap_release(&n->by_text);
	free(n->free_ids);
	buf_release(&n->scratch);
	*n = (struct texts){0};
}
