/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "guest/watch/slots.h"

#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "guest/watch/watch.h"

#define READ_POLL_NS 50000
#define READ_AT_MOST_NS 1000000000ull

struct slot watch_slots[WATCH_SLOTS];
_Atomic uint32_t watch_slots_live;

static _Atomic uint32_t ids;

/* A search from the beginning: 256 slots, a few in use, once per watched output. */
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

/* The id is stored last: from then on readers see the slot. The upper half of seq is the id, so
 * that a number that belongs to a former watch cannot be counted on. */
void watch_slot_watch(struct slot *s)
{
	uint32_t id = atomic_fetch_add(&ids, 1) + 1;

	atomic_store(&s->seq, (uint64_t)id << 32);
	atomic_store(&s->waits, 0);
	atomic_fetch_add(&watch_slots_live, 1);
	atomic_store(&s->id, id);
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

bool watch_slot_use(struct slot *s)
{
	int32_t left = atomic_load(&s->left);

	while (left > 0)
		if (atomic_compare_exchange_weak(&s->left, &left, left - 1))
			return true;
	return left < 0;
}

/* Fails once the slot has another id: a sample that was taken before and written after would be
 * counted for the wrong block. */
uint32_t watch_slot_next(struct slot *s, uint32_t id)
{
	uint64_t was = atomic_load(&s->seq);

	while (was >> 32 == id)
		if (atomic_compare_exchange_weak(&s->seq, &was, was + 1))
			return (uint32_t)was + 1;
	return 0;
}

bool watch_slot_enter(struct slot *s, uint32_t id)
{
	atomic_fetch_add(&s->readers, 1);
	if (atomic_load(&s->id) == id)
		return true;
	watch_slot_leave(s);
	return false;
}

void watch_slot_leave(struct slot *s)
{
	atomic_fetch_sub(&s->readers, 1);
}

/*
 * Until nobody reads the memory, which is about to go. Readers look at the id after every piece, so
 * that is a matter of a millisecond. A reader that was cancelled never leaves: then once for long,
 * and not again.
 */
static void wait_for_readers(struct slot *s)
{
	uint64_t until = guest_now() + READ_AT_MOST_NS;

	if (watch_is_busy())
		return; /* we are the reader */
	while (atomic_load(&s->readers) > 0) {
		if (guest_now() > until)
			atomic_store(&s->readers, 0);
		guest_sleep(READ_POLL_NS);
	}
}

/* By the tid in `waits`: such a slot has no id yet, so nobody else looks at it. */
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
		atomic_store(&watch_slots[i].readers, 0);
		atomic_store(&watch_slots[i].waits, 0);
		atomic_store(&watch_slots[i].taken, 0);
	}
	atomic_store(&watch_slots_live, 0);
}

/*
 * Where the blocks of pools end, by where they begin: a free names only the beginning, and a
 * watched tensor may lie in the middle. A table of fixed size; a block that finds no place in it is
 * known by its beginning alone.
 */

#define BUCKETS 16384u
#define WAYS 4u

static struct {
	_Atomic uint64_t key, bytes;
} blocks[BUCKETS][WAYS];

static uint64_t block_key(uint8_t pool, uint64_t addr)
{
	return addr ^ (uint64_t)pool << 56;
}

static uint64_t bucket_of(uint64_t key)
{
	return (key * 0x9e3779b97f4a7c15ull) >> 50;
}

_Static_assert(BUCKETS == 1u << (64 - 50), "bucket_of() gives a bucket");

static void blocks_put(uint8_t pool, uint64_t addr, uint64_t bytes)
{
	uint64_t key = block_key(pool, addr), b = bucket_of(key);

	for (uint32_t i = 0; i < WAYS; i++) {
		uint64_t seen = 0;
		if (atomic_compare_exchange_strong(&blocks[b][i].key, &seen, key) || seen == key) {
			atomic_store(&blocks[b][i].bytes, bytes);
			return;
		}
	}
}

static uint64_t blocks_take(uint8_t pool, uint64_t addr)
{
	uint64_t key = block_key(pool, addr), b = bucket_of(key);

	for (uint32_t i = 0; i < WAYS; i++) {
		uint64_t seen = key, bytes = atomic_load(&blocks[b][i].bytes);
		if (atomic_compare_exchange_strong(&blocks[b][i].key, &seen, 0))
			return bytes;
	}
	return 0;
}

void watch_alloc(const struct collect_block *b)
{
	if (b->addr && b->kind != ALLOC_PINNED)
		blocks_put(b->pool, b->addr, b->size_bytes);
}

/* Every allocation and free comes here while anything is watched, so the count of live slots is
 * asked first. */
void watch_free(const struct collect_block *b)
{
	if (!b->addr || b->kind == ALLOC_PINNED)
		return;
	uint64_t bytes = blocks_take(b->pool, b->addr);
	if (!atomic_load(&watch_slots_live))
		return;
	for (uint32_t i = 0; i < WATCH_SLOTS; i++) {
		struct watched v;
		/* One lies in the other, or they overlap. */
		if (watch_slot_copy(&watch_slots[i], &v, WATCHED_HEAD) &&
		    (b->addr - v.addr < v.bytes || v.addr - b->addr < bytes)) {
			watch_slot_drop(&watch_slots[i], v.id);
			if (b->pool == POOL_HAL) /* what a pool gets back stays readable */
				wait_for_readers(&watch_slots[i]);
		}
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

void collect_watch_unnamed(uint64_t addr)
{
	if (watch_is_on())
		watch_unnamed(addr);
}

/* The count is asked in every round: slots that are dropped meanwhile end the search early. */
static bool any_slot(bool (*is)(const struct watched *))
{
	for (uint32_t i = 0; atomic_load(&watch_slots_live) && i < WATCH_SLOTS; i++) {
		struct watched v;
		if (watch_slot_copy(&watch_slots[i], &v, WATCHED_HEAD) && is(&v))
			return true;
	}
	return false;
}

static bool is_named(const struct watched *v)
{
	return v->named;
}

static bool is_host(const struct watched *v)
{
	return v->device == DEV_HOST;
}

bool collect_watch_any(void)
{
	return any_slot(is_named);
}

bool collect_watch_host(void)
{
	return any_slot(is_host);
}
