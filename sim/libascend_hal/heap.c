/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "heap.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "hal/ascend_hal.h"
#include "sim/state.h"

#define GRANULE_SHIFT 12
#define HUGE_GRANULES 512u
#define HEAP_SHIFT 40
#define SHARD_SHIFT 37
#define SHARD_BYTES (1ull << SHARD_SHIFT)
#define BASE 0x12c000000000ull /* where device addresses of a 910B usually begin */
#define HEAPS (SIM_MAX_DEVICES + 1)
#define CLASSES 256
#define LIVE 0x80000000u

#ifndef MAP_FIXED_NOREPLACE
#	define MAP_FIXED_NOREPLACE 0x100000
#endif

struct block {
	uint32_t granules; /* LIVE | accounted size; 0 when no block starts here */
	uint32_t link; /* free: next free block; live: class | kind << 16 */
};

struct shard {
	_Atomic uint32_t lock;
	uint32_t bump; /* first granule never handed out */
	uint32_t limit; /* granules mapped; 0 before the first use */
	uint32_t index;
	struct block *blocks;
	struct sim_cell *cell;
	uint32_t free_head[CLASSES];
} __attribute__((aligned(64)));

struct heap {
	_Atomic uint64_t *used;
	uint64_t capacity;
	struct shard shard[SIM_SHARDS];
};

static struct heap heaps[HEAPS];
static int device_count;
static int backed;
static useconds_t alloc_us; /* that an allocation takes longer, on a device */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Atomic int ready;
static _Atomic uint32_t next_shard;
static __thread uint32_t my_shard __attribute__((tls_model("initial-exec"))); /* + 1; 0: none yet */

static uintptr_t shard_base(int heap, uint32_t shard)
{
	return BASE + ((uintptr_t)heap << HEAP_SHIFT) + ((uintptr_t)shard << SHARD_SHIFT);
}

static void bind_to_state(void)
{
	struct sim_state *s = sim_state_get();
	struct sim_proc *self = sim_state_self();
	for (int h = 0; h < HEAPS; h++) {
		heaps[h].used = &s->device[h].used_bytes;
		heaps[h].capacity = h == SIM_HOST_HEAP ? 1ull << 60 : sim_hbm_bytes();
		for (uint32_t i = 0; i < SIM_SHARDS; i++) {
			heaps[h].shard[i].index = i;
			heaps[h].shard[i].cell = &self->cell[h][i];
		}
	}
}

/* Pinned host memory is touched by the job itself and always real. */
static int protection(int h)
{
	return backed || h == SIM_HOST_HEAP ? PROT_READ | PROT_WRITE : PROT_NONE;
}

static void discard_shard(int h, struct shard *s)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
	mmap((void *)shard_base(h, s->index), (size_t)s->limit << GRANULE_SHIFT, protection(h),
	     flags, -1, 0);
	mmap(s->blocks, (size_t)s->limit * sizeof(struct block), PROT_READ | PROT_WRITE, flags, -1,
	     0);
	s->bump = HUGE_GRANULES;
	for (int c = 0; c < CLASSES; c++)
		s->free_head[c] = 0;
}

/* A child owns none of its parent's device memory; it starts with empty heaps at the same place. */
static void after_fork_in_child(void)
{
	for (int h = 0; h < HEAPS; h++)
		for (int i = 0; i < SIM_SHARDS; i++) {
			struct shard *s = &heaps[h].shard[i];
			atomic_store(&s->lock, 0);
			if (s->limit)
				discard_shard(h, s);
		}
	/* The slot is claimed at the next allocation, not for every child that only execs. */
	atomic_store(&ready, 0);
}

static void init_once(void)
{
	const char *noback = getenv("SIM_NPU_NOBACK");
	backed = !(noback && *noback == '1');
	const char *slow = getenv("SIM_NPU_ALLOC_US");
	long us = slow ? strtol(slow, NULL, 10) : 0;
	alloc_us = us > 0 && us < 1000000 ? (useconds_t)us : 0;
	device_count = sim_device_count();
	pthread_atfork(NULL, NULL, after_fork_in_child);
}

static void __attribute__((noinline)) prepare(void)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	pthread_once(&once, init_once);
	pthread_mutex_lock(&lock);
	if (!atomic_load(&ready)) {
		bind_to_state();
		atomic_store(&ready, 1);
	}
	pthread_mutex_unlock(&lock);
}

static uint32_t __attribute__((noinline)) pick_shard(void)
{
	my_shard = atomic_fetch_add(&next_shard, 1) % SIM_SHARDS + 1;
	return my_shard;
}

static void shard_lock(struct shard *s)
{
	int spins = 0;
	while (atomic_exchange_explicit(&s->lock, 1, memory_order_acquire)) {
		if (++spins > 64)
			sched_yield();
	}
}

static void shard_unlock(struct shard *s)
{
	atomic_store_explicit(&s->lock, 0, memory_order_release);
}

/*
 * Eight classes per doubling, exact below 16 granules. @out_room is the class's size in granules. A
 * multiple of 512 always gets a room that is one too, which is what keeps huge pages aligned.
 */
static uint32_t size_class(uint32_t n, uint32_t *out_room)
{
	if (n < 16) {
		*out_room = n;
		return n;
	}
	uint32_t top = 31u - (uint32_t)__builtin_clz(n);
	uint32_t step = top - 3;
	uint32_t steps = (n + (1u << step) - 1) >> step; /* 8..16 */
	*out_room = steps << step;
	return (step - 1) * 8 + steps + 8;
}

/* Maps the shard's addresses at its first use; a machine short of address space gets a smaller one.
 */
static int __attribute__((noinline)) shard_map(int h, struct shard *s)
{
	/* Twice the memory: size classes and holes waste addresses, never memory. */
	uint64_t want = h == SIM_HOST_HEAP ? SHARD_BYTES : 2 * heaps[h].capacity;
	if (want < 1ull << 30)
		want = 1ull << 30;
	if (want > SHARD_BYTES)
		want = SHARD_BYTES;
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
	for (; want >= 64ull << 20; want /= 2) {
		want &= ~((2ull << 20) - 1);
		void *at = (void *)shard_base(h, s->index);
		void *data = mmap(at, want, protection(h), flags | MAP_FIXED_NOREPLACE, -1, 0);
		if (data == MAP_FAILED)
			continue;
		size_t meta = (want >> GRANULE_SHIFT) * sizeof(struct block);
		void *blocks = mmap(NULL, meta, PROT_READ | PROT_WRITE, flags, -1, 0);
		if (data != at || blocks == MAP_FAILED) {
			munmap(data, want);
			continue;
		}
		/* One touched byte must not cost a 2 MiB page, nor fill a core file. */
		(void)madvise(data, want, MADV_NOHUGEPAGE);
		(void)madvise(data, want, MADV_DONTDUMP);
		s->blocks = blocks;
		s->bump = HUGE_GRANULES; /* granule 0 means "none" in the lists */
		s->limit = (uint32_t)(want >> GRANULE_SHIFT);
		return 0;
	}
	return -1;
}

/* No room at the end: a free block of a larger class will do. */
static uint32_t __attribute__((noinline)) take_larger(struct shard *s, uint32_t *class)
{
	for (uint32_t c = *class + 1; c < CLASSES; c++) {
		uint32_t at = s->free_head[c];
		/* From 512 granules on, alignment is a property of the class. */
		if (!at || (*class >= 56 && (at % HUGE_GRANULES)))
			continue;
		s->free_head[c] = s->blocks[at].link;
		*class = c;
		return at;
	}
	return 0;
}

static uint32_t take(int h, struct shard *s, uint32_t *class, uint32_t room)
{
	uint32_t at = s->free_head[*class];
	if (at) {
		s->free_head[*class] = s->blocks[at].link;
		return at;
	}
	if (!s->limit && shard_map(h, s) < 0)
		return 0;
	at = s->bump;
	if (room % HUGE_GRANULES == 0)
		at = (at + HUGE_GRANULES - 1) & ~(HUGE_GRANULES - 1);
	if (room <= s->limit && at <= s->limit - room) {
		s->bump = at + room;
		return at;
	}
	return take_larger(s, class);
}

static int __attribute__((noinline)) charge_after_reap(struct heap *heap, uint64_t bytes)
{
	atomic_fetch_sub(heap->used, bytes);
	if (bytes > heap->capacity)
		return DRV_ERROR_OUT_OF_MEMORY;
	sim_state_reap();
	if (atomic_fetch_add(heap->used, bytes) + bytes <= heap->capacity)
		return 0;
	atomic_fetch_sub(heap->used, bytes);
	return DRV_ERROR_OUT_OF_MEMORY;
}

static void cell_add(struct shard *s, uint64_t delta)
{
	uint64_t v = atomic_load_explicit(&s->cell->bytes, memory_order_relaxed);
	atomic_store_explicit(&s->cell->bytes, v + delta, memory_order_relaxed);
}

static void *shard_alloc(int h, struct shard *s, uint32_t n, enum heap_kind kind)
{
	uint32_t room;
	uint32_t class = size_class(n, &room);
	shard_lock(s);
	uint32_t at = take(h, s, &class, room);
	if (at) {
		s->blocks[at].granules = n | LIVE;
		s->blocks[at].link = class | (uint32_t)kind << 16;
		cell_add(s, (uint64_t)n << GRANULE_SHIFT);
	}
	shard_unlock(s);
	if (!at)
		return NULL;
	return (void *)(shard_base(h, s->index) + ((uintptr_t)at << GRANULE_SHIFT));
}

int heap_alloc(int h, uint64_t size, uint64_t page_bytes, enum heap_kind kind, void **out_ptr)
{
	if (!atomic_load_explicit(&ready, memory_order_acquire))
		prepare();
	if (h != SIM_HOST_HEAP && h >= device_count)
		return DRV_ERROR_INVALID_DEVICE;
	if (size > SHARD_BYTES)
		return DRV_ERROR_OUT_OF_MEMORY;

	struct heap *heap = &heaps[h];
	uint64_t bytes = (size + page_bytes - 1) & ~(page_bytes - 1);
	if (atomic_fetch_add(heap->used, bytes) + bytes > heap->capacity &&
	    charge_after_reap(heap, bytes))
		return DRV_ERROR_OUT_OF_MEMORY;

	uint32_t n = (uint32_t)(bytes >> GRANULE_SHIFT);
	uint32_t mine = (my_shard ? my_shard : pick_shard()) - 1;
	void *ptr = shard_alloc(h, &heap->shard[mine], n, kind);
	/* Out of addresses, not of memory: the other shards have some. */
	for (uint32_t i = 1; !ptr && i < SIM_SHARDS; i++)
		ptr = shard_alloc(h, &heap->shard[(mine + i) % SIM_SHARDS], n, kind);
	if (!ptr) {
		atomic_fetch_sub(heap->used, bytes);
		return DRV_ERROR_OUT_OF_MEMORY;
	}
	*out_ptr = ptr;
	if (alloc_us && h != SIM_HOST_HEAP)
		usleep(alloc_us);
	return DRV_ERROR_NONE;
}

/* Where a block that starts at @ptr would be described; NULL when no block can start there. */
static struct shard *find_shard(const void *ptr, int *out_heap, uint32_t *out_at)
{
	uintptr_t off = (uintptr_t)ptr - BASE;
	if ((uintptr_t)ptr < BASE || off >> HEAP_SHIFT >= HEAPS)
		return NULL;
	*out_heap = (int)(off >> HEAP_SHIFT);
	off &= (1ull << HEAP_SHIFT) - 1;
	struct shard *s = &heaps[*out_heap].shard[off >> SHARD_SHIFT];
	off &= SHARD_BYTES - 1;
	*out_at = (uint32_t)(off >> GRANULE_SHIFT);
	if (*out_at >= s->limit)
		return NULL;
	return s;
}

int heap_free(void *ptr, enum heap_kind kind)
{
	if (!atomic_load_explicit(&ready, memory_order_acquire))
		prepare();
	int h;
	uint32_t at;
	struct shard *s = find_shard(ptr, &h, &at);
	if (!s || (uintptr_t)ptr & ((1u << GRANULE_SHIFT) - 1))
		return DRV_ERROR_INVALID_VALUE;

	shard_lock(s);
	struct block *b = &s->blocks[at];
	if (!(b->granules & LIVE) || b->link >> 16 != (uint32_t)kind) {
		shard_unlock(s);
		return DRV_ERROR_INVALID_VALUE;
	}
	uint64_t bytes = (uint64_t)(b->granules & ~LIVE) << GRANULE_SHIFT;
	uint32_t class = b->link & 0xffff;
	b->granules = 0;
	b->link = s->free_head[class];
	s->free_head[class] = at;
	cell_add(s, -bytes);
	shard_unlock(s);
	/* After the cell: a kill in between errs upwards, which reaping corrects. */
	atomic_fetch_sub(heaps[h].used, bytes);
	return DRV_ERROR_NONE;
}

int sim_hal_is_device(const void *ptr)
{
	int h;
	uint32_t at;
	return find_shard(ptr, &h, &at) && h != SIM_HOST_HEAP;
}

int sim_hal_backed(const void *ptr)
{
	int h;
	uint32_t at;
	return find_shard(ptr, &h, &at) && (backed || h == SIM_HOST_HEAP);
}

size_t sim_hal_block_bytes(const void *ptr)
{
	int h;
	uint32_t at;
	struct shard *s = find_shard(ptr, &h, &at);
	if (!s || !(s->blocks[at].granules & LIVE))
		return 0;
	return (size_t)(s->blocks[at].granules & ~LIVE) << GRANULE_SHIFT;
}
