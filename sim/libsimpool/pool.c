/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Best fit with splitting and merging, like the caching allocator it imitates:
 *
 *   segment  [ block | block | free | block ]     neighbours linked in address order
 *
 * Blocks are found again through a hash table by address; free blocks hang in one list. The lists
 * are short (hundreds), so a linear best fit is fast enough and easy to trust.
 */
#include "sim/pool.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

#include "acl/acl.h"
#include "report.h"

#define ROUND 512u
#define SMALL_LIMIT (1u << 20)
#define SMALL_SEGMENT (2u << 20)
#define LARGE_SEGMENT (20u << 20)
#define LARGE_LIMIT (10u << 20)
#define SPLIT_REST 512u
#define BUCKETS 4096

struct segment {
	char *base;
	size_t size;
	void *heap; /* ATB's handle */
	int small;
	struct segment *next;
};

struct block {
	char *ptr;
	size_t size;
	int used;
	void *region; /* ATB's handle */
	struct segment *segment;
	struct block *prev; /* address order within the segment */
	struct block *next;
	struct block *hash_next; /* used: bucket; free: the free list */
};

struct sim_pool {
	pthread_mutex_t lock;
	enum sim_pool_kind kind;
	size_t reserved;
	size_t used;
	struct segment *segments;
	struct block *free_list;
	struct block *bucket[BUCKETS];
	struct pool_report report;
};

static struct block **bucket_of(struct sim_pool *pool, const void *ptr)
{
	return &pool->bucket[(uintptr_t)ptr / ROUND % BUCKETS];
}

struct sim_pool *sim_pool_new(enum sim_pool_kind kind, int device)
{
	struct sim_pool *pool = calloc(1, sizeof(*pool));
	if (!pool)
		return NULL;
	pthread_mutex_init(&pool->lock, NULL);
	pool->kind = kind;
	report_init(&pool->report, kind, device);
	return pool;
}

static void drop_segment(struct sim_pool *pool, struct segment *s)
{
	struct segment **at = &pool->segments;
	while (*at != s)
		at = &(*at)->next;
	*at = s->next;
	pool->reserved -= s->size;
	report_segment_gone(&pool->report, s->heap);
	(void)aclrtFree(s->base);
	free(s);
}

static void unlist_free(struct sim_pool *pool, struct block *b)
{
	struct block **at = &pool->free_list;
	while (*at != b)
		at = &(*at)->hash_next;
	*at = b->hash_next;
}

static void list_free(struct sim_pool *pool, struct block *b)
{
	b->hash_next = pool->free_list;
	pool->free_list = b;
}

static void trim_locked(struct sim_pool *pool)
{
	struct block *next;
	for (struct block *b = pool->free_list; b; b = next) {
		next = b->hash_next;
		if (b->prev || b->next)
			continue;
		unlist_free(pool, b);
		drop_segment(pool, b->segment);
		free(b);
	}
}

static struct block *new_segment(struct sim_pool *pool, size_t size)
{
	size_t want = LARGE_SEGMENT;
	int small = size <= SMALL_LIMIT;
	if (small)
		want = SMALL_SEGMENT;
	else if (size >= LARGE_LIMIT)
		want = (size + SMALL_SEGMENT - 1) / SMALL_SEGMENT * SMALL_SEGMENT;
	void *base = NULL;
	if (aclrtMalloc(&base, want, ACL_MEM_MALLOC_HUGE_FIRST)) {
		trim_locked(pool);
		if (aclrtMalloc(&base, want, ACL_MEM_MALLOC_HUGE_FIRST))
			return NULL;
	}
	struct segment *s = calloc(1, sizeof(*s));
	struct block *b = calloc(1, sizeof(*b));
	if (!s || !b) {
		free(s);
		free(b);
		(void)aclrtFree(base);
		return NULL;
	}
	s->base = base;
	s->size = want;
	s->small = small;
	s->next = pool->segments;
	pool->segments = s;
	pool->reserved += want;
	report_segment(&pool->report, base, want, &s->heap);
	b->ptr = base;
	b->size = want;
	b->segment = s;
	list_free(pool, b);
	return b;
}

static struct block *best_fit(struct sim_pool *pool, size_t size)
{
	int small = size <= SMALL_LIMIT;
	struct block *best = NULL;
	for (struct block *b = pool->free_list; b; b = b->hash_next) {
		if (b->size < size || b->segment->small != small)
			continue;
		/* Of equals the lowest address, so that a run does not depend on the list's order.
		 */
		if (!best || b->size < best->size || (b->size == best->size && b->ptr < best->ptr))
			best = b;
	}
	return best;
}

static void split(struct sim_pool *pool, struct block *b, size_t size)
{
	if (b->size - size < SPLIT_REST)
		return;
	struct block *rest = calloc(1, sizeof(*rest));
	if (!rest)
		return;
	rest->ptr = b->ptr + size;
	rest->size = b->size - size;
	rest->segment = b->segment;
	rest->prev = b;
	rest->next = b->next;
	if (rest->next)
		rest->next->prev = rest;
	b->next = rest;
	b->size = size;
	list_free(pool, rest);
}

void *sim_pool_alloc(struct sim_pool *pool, size_t size)
{
	size_t want = (size + ROUND - 1) / ROUND * ROUND;
	if (!want)
		want = ROUND;
	pthread_mutex_lock(&pool->lock);
	struct block *b = best_fit(pool, want);
	if (!b)
		b = new_segment(pool, want);
	if (!b) {
		pthread_mutex_unlock(&pool->lock);
		return NULL;
	}
	unlist_free(pool, b);
	split(pool, b, want);
	b->used = 1;
	struct block **bucket = bucket_of(pool, b->ptr);
	b->hash_next = *bucket;
	*bucket = b;
	pool->used += b->size;
	report_block(&pool->report, b->ptr, b->size, pool->reserved, b->segment->heap, &b->region);
	void *ptr = b->ptr;
	pthread_mutex_unlock(&pool->lock);
	return ptr;
}

/* Swallows the free neighbour behind @b. */
static void merge_next(struct sim_pool *pool, struct block *b)
{
	struct block *n = b->next;
	if (!n || n->used)
		return;
	unlist_free(pool, n);
	b->size += n->size;
	b->next = n->next;
	if (b->next)
		b->next->prev = b;
	free(n);
}

int sim_pool_dealloc(struct sim_pool *pool, void *ptr)
{
	pthread_mutex_lock(&pool->lock);
	struct block **at = bucket_of(pool, ptr);
	while (*at && (*at)->ptr != ptr)
		at = &(*at)->hash_next;
	struct block *b = *at;
	if (!b) {
		pthread_mutex_unlock(&pool->lock);
		return -1;
	}
	*at = b->hash_next;
	pool->used -= b->size;
	report_block_gone(&pool->report, ptr, pool->reserved, b->region);
	b->used = 0;
	b->region = NULL;
	list_free(pool, b);
	merge_next(pool, b);
	if (b->prev && !b->prev->used)
		merge_next(pool, b->prev);
	pthread_mutex_unlock(&pool->lock);
	return 0;
}

void sim_pool_trim(struct sim_pool *pool)
{
	pthread_mutex_lock(&pool->lock);
	trim_locked(pool);
	pthread_mutex_unlock(&pool->lock);
}

void sim_pool_free(struct sim_pool *pool)
{
	if (!pool)
		return;
	for (int i = 0; i < BUCKETS; i++)
		while (pool->bucket[i]) {
			struct block *b = pool->bucket[i];
			pool->bucket[i] = b->hash_next;
			free(b);
		}
	while (pool->free_list) {
		struct block *b = pool->free_list;
		pool->free_list = b->hash_next;
		free(b);
	}
	while (pool->segments)
		drop_segment(pool, pool->segments);
	pthread_mutex_destroy(&pool->lock);
	free(pool);
}

size_t sim_pool_reserved_bytes(const struct sim_pool *pool)
{
	return pool->reserved;
}

size_t sim_pool_used_bytes(const struct sim_pool *pool)
{
	return pool->used;
}

size_t sim_pool_block_bytes(struct sim_pool *pool, const void *ptr)
{
	size_t size = 0;
	pthread_mutex_lock(&pool->lock);
	for (struct block *b = *bucket_of(pool, ptr); b; b = b->hash_next)
		if (b->ptr == ptr)
			size = b->size;
	pthread_mutex_unlock(&pool->lock);
	return size;
}
