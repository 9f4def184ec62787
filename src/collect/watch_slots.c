/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "collect/watch_slots.h"

#include "collect/watch.h"

#include <string.h>

struct slot watch_slots[WATCH_SLOTS];
_Atomic uint32_t watch_slots_live;

static _Atomic uint32_t ids;

struct slot *watch_slot_take(void)
{
	for (uint32_t i = 0; i < WATCH_SLOTS; i++) {
		uint32_t none = 0;
		if (atomic_compare_exchange_strong(&watch_slots[i].taken, &none, 1))
			return &watch_slots[i];
	}
	return NULL;
}

/* In words, since readers may be at it: what they read in between they throw away. */
void watch_slot_fill(struct slot *s, struct watched *v, const char *name, int32_t left)
{
	uint64_t words[WATCHED_WORDS] = {0};
	size_t n = strnlen(name, SESSION_NAME_BYTES - 1);

	memset(v->name, 0, sizeof(v->name));
	memcpy(v->name, name, n);
	memcpy(words, v, sizeof(*v));
	for (size_t i = 0; i < WATCHED_WORDS; i++)
		atomic_store_explicit(&s->words[i], words[i], memory_order_relaxed);
	atomic_store(&s->left, left);
}

void watch_slot_watch(struct slot *s)
{
	atomic_store(&s->seq, 0);
	atomic_store(&s->waits, 0);
	atomic_fetch_add(&watch_slots_live, 1);
	atomic_store(&s->id, atomic_fetch_add(&ids, 1) + 1);
}

void watch_slot_drop(struct slot *s, uint32_t id)
{
	if (id && atomic_compare_exchange_strong(&s->id, &id, 0)) {
		atomic_fetch_sub(&watch_slots_live, 1);
		atomic_store(&s->taken, 0);
	}
}

bool watch_slot_copy(const struct slot *s, struct watched *out, size_t nwords)
{
	uint32_t id = atomic_load_explicit(&s->id, memory_order_acquire);
	uint64_t words[WATCHED_WORDS] = {0};

	if (!id)
		return false;
	/* Acquire: the second look at the id comes after them. */
	for (size_t i = 0; i < nwords; i++)
		words[i] = atomic_load_explicit(&s->words[i], memory_order_acquire);
	memcpy(out, words, sizeof(*out));
	out->id = id;
	return atomic_load_explicit(&s->id, memory_order_relaxed) == id;
}

bool watch_slot_is_of(const struct slot *s, uint16_t device)
{
	struct watched v;

	return watch_slot_copy(s, &v, WATCHED_HEAD) && (v.device == device || v.device == DEV_NONE);
}

bool watch_slot_use(struct slot *s)
{
	int32_t left = atomic_load(&s->left);

	while (left > 0)
		if (atomic_compare_exchange_weak(&s->left, &left, left - 1))
			return true;
	return left < 0;
}

void watch_slots_drop_waiting(uint32_t tid)
{
	for (uint32_t i = 0; i < WATCH_SLOTS; i++) {
		uint32_t who = tid;
		if (atomic_compare_exchange_strong(&watch_slots[i].waits, &who, 0))
			atomic_store(&watch_slots[i].taken, 0);
	}
}

void watch_slots_clear(void)
{
	for (uint32_t i = 0; i < WATCH_SLOTS; i++) {
		atomic_store(&watch_slots[i].id, 0);
		atomic_store(&watch_slots[i].waits, 0);
		atomic_store(&watch_slots[i].taken, 0);
	}
	atomic_store(&watch_slots_live, 0);
}

void watch_alloc(const struct collect_block *b)
{
	if (b->addr && b->kind != ALLOC_PINNED)
		watch_blocks_put(b->pool, b->addr, b->size_bytes);
}

void watch_free(const struct collect_block *b)
{
	if (!b->addr || b->kind == ALLOC_PINNED)
		return;
	uint64_t bytes = watch_blocks_take(b->pool, b->addr);
	if (!atomic_load(&watch_slots_live))
		return;
	for (uint32_t i = 0; i < WATCH_SLOTS; i++) {
		struct watched v;
		/* One lies in the other, or they overlap. */
		if (watch_slot_copy(&watch_slots[i], &v, WATCHED_HEAD) &&
		    (b->addr - v.addr < v.bytes || v.addr - b->addr < bytes))
			watch_slot_drop(&watch_slots[i], v.id);
	}
}

void watch_unnamed(uint64_t addr)
{
	for (uint32_t i = 0; i < WATCH_SLOTS; i++) {
		struct watched v;
		if (watch_slot_copy(&watch_slots[i], &v, WATCHED_HEAD) && v.named && v.addr == addr)
			watch_slot_drop(&watch_slots[i], v.id);
	}
}
