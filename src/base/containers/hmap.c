/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "base/containers/hmap.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define MIN_CAP 16

struct hmap_slot {
	uint64_t key;
	uint64_t value; /* HMAP_NONE: the slot is free */
};

/* Keys are counters, addresses and hashes: all their bits have to reach the low ones. */
static size_t home_of(const struct hmap *m, uint64_t key)
{
	key = (key ^ key >> 32) * 0x9e3779b97f4a7c15u;
	return (key ^ key >> 32) & (m->cap - 1);
}

/* Where the key is, or the free slot where it would go. There always is a free one. */
static size_t slot_of(const struct hmap *m, uint64_t key)
{
	size_t i = home_of(m, key);

	while (m->slots[i].value != HMAP_NONE && m->slots[i].key != key)
		i = (i + 1) & (m->cap - 1);
	return i;
}

uint64_t hmap_get(const struct hmap *m, uint64_t key)
{
	return m->cap ? m->slots[slot_of(m, key)].value : HMAP_NONE;
}

static void grow_table(struct hmap *m)
{
	struct hmap old = *m;
	uint64_t key, value;
	size_t at = 0;

	m->cap = old.cap ? old.cap * 2 : MIN_CAP;
	BUG_ON(m->cap > SIZE_MAX / sizeof(*m->slots));
	m->slots = xmalloc(m->cap * sizeof(*m->slots));
	memset(m->slots, 0xff, m->cap * sizeof(*m->slots)); /* every value HMAP_NONE */
	while (hmap_next(&old, &at, &key, &value))
		m->slots[slot_of(m, key)] = (struct hmap_slot){key, value};
	free(old.slots);
}

uint64_t hmap_put(struct hmap *m, uint64_t key, uint64_t value)
{
	BUG_ON(value == HMAP_NONE);
	if (m->count >= m->cap / 4 * 3)
		grow_table(m);
	struct hmap_slot *slot = &m->slots[slot_of(m, key)];
	uint64_t old = slot->value;
	m->count += old == HMAP_NONE;
	*slot = (struct hmap_slot){key, value};
	return old;
}

/* Closes the gap at i: every later entry of the run that may stand there moves up. */
static void close_gap(struct hmap *m, size_t i)
{
	size_t mask = m->cap - 1;

	for (size_t j = (i + 1) & mask; m->slots[j].value != HMAP_NONE; j = (j + 1) & mask) {
		size_t from_home = (j - home_of(m, m->slots[j].key)) & mask;

		if (from_home < ((j - i) & mask))
			continue;
		m->slots[i] = m->slots[j];
		i = j;
	}
	m->slots[i].value = HMAP_NONE;
}

uint64_t hmap_remove(struct hmap *m, uint64_t key)
{
	if (!m->cap)
		return HMAP_NONE;
	size_t i = slot_of(m, key);
	uint64_t old = m->slots[i].value;
	if (old == HMAP_NONE)
		return HMAP_NONE;
	close_gap(m, i);
	m->count--;
	return old;
}

void *hmap_get_ptr(const struct hmap *m, uint64_t key)
{
	uint64_t v = hmap_get(m, key);

	return v == HMAP_NONE ? NULL : (void *)(uintptr_t)v;
}

void *hmap_put_ptr(struct hmap *m, uint64_t key, void *value)
{
	BUG_ON(!value);
	uint64_t old = hmap_put(m, key, (uintptr_t)value);
	return old == HMAP_NONE ? NULL : (void *)(uintptr_t)old;
}

bool hmap_next(const struct hmap *m, size_t *at, uint64_t *out_key, uint64_t *out_value)
{
	while (*at < m->cap) {
		const struct hmap_slot *slot = &m->slots[(*at)++];

		if (slot->value == HMAP_NONE)
			continue;
		*out_key = slot->key;
		*out_value = slot->value;
		return true;
	}
	return false;
}

void hmap_release(struct hmap *m)
{
	free(m->slots);
	*m = (struct hmap){0};
}

int hmap_check(const struct hmap *m)
{
	uint64_t key, value;
	size_t at = 0, n = 0;

	for (; hmap_next(m, &at, &key, &value); n++)
		if (slot_of(m, key) != at - 1)
			return -1;
	return n == m->count && n <= m->cap / 4 * 3 ? 0 : -1;
}
