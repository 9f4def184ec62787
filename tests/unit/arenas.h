/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Arenas made by hand, as the guest would leave them: one thread, no hurry. Whatever a test wants
 * to be wrong it then makes wrong through wire/ring.h.
 */
#ifndef SONDE_TESTS_UNIT_ARENAS_H
#define SONDE_TESTS_UNIT_ARENAS_H

#include "wire/record.h"
#include "wire/ring.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define HAND_SEGS 64u

static inline uint64_t hand_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline struct arena_head *hand_map(int fd, uint32_t max_segs)
{
	void *p = mmap(NULL, arena_bytes(max_segs, ARENA_SMALL_STACKS), PROT_READ | PROT_WRITE,
		       MAP_SHARED, fd, 0);

	if (p == MAP_FAILED)
		abort();
	return p;
}

/* A new arena file of a process in our own pid namespace. */
static inline struct arena_head *hand_arena(const char *path, uint32_t pid)
{
	struct stat ns;
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	if (fd < 0 || ftruncate(fd, (off_t)arena_bytes(HAND_SEGS, ARENA_SMALL_STACKS)) < 0)
		abort();
	struct arena_head *a = hand_map(fd, HAND_SEGS);
	close(fd);
	a->version = ARENA_VERSION;
	a->pid = pid;
	a->pid_ns = stat("/proc/self/ns/pid", &ns) == 0 ? ns.st_ino : 0;
	if (pid == (uint32_t)getpid())
		a->address = (uint64_t)(uintptr_t)a;
	a->file_bytes = arena_bytes(HAND_SEGS, ARENA_SMALL_STACKS);
	a->max_rings = ARENA_MAX_RINGS;
	a->max_segs = HAND_SEGS;
	a->stack_bytes = ARENA_SMALL_STACKS;
	atomic_store(&a->nsegs, HAND_SEGS);
	atomic_store(&a->stack_used, 8);
	strcpy(a->exe, "/bin/hand");
	a->magic = ARENA_MAGIC;
	return a;
}

/* Chains a segment to the ring; index + 1, or 0 if all are in use. */
static inline uint32_t hand_seg(struct arena_head *a, uint32_t ring)
{
	struct ring *r = arena_ring(a, ring);
	uint32_t last = atomic_load(&r->last_seg);

	for (uint32_t i = 0; i < a->max_segs; i++) {
		struct seg *s = arena_seg(a, i);
		if (atomic_load(arena_seg_state(a, i)))
			continue;
		atomic_store(arena_seg_state(a, i), 1);
		s->ring = ring;
		s->seq = r->next_seq++;
		atomic_store(&s->next, 0);
		atomic_store(&s->used, sizeof(*s));
		if (last)
			atomic_store(&arena_seg(a, last - 1)->next, i + 1);
		else
			atomic_store(&r->first_seg, i + 1);
		atomic_store(&r->last_seg, i + 1);
		return i + 1;
	}
	return 0;
}

/* Appends bytes to a ring and publishes them; returns false without room. */
static inline int hand_put(struct arena_head *a, uint32_t ring, const void *data, size_t n)
{
	uint32_t last = atomic_load(&arena_ring(a, ring)->last_seg);

	if (!last || atomic_load(&arena_seg(a, last - 1)->used) + n > ARENA_SEG_SIZE)
		last = hand_seg(a, ring);
	if (!last)
		return 0;
	struct seg *s = arena_seg(a, last - 1);
	uint32_t used = atomic_load(&s->used);
	memcpy((char *)s + used, data, n);
	atomic_store(&s->used, used + (uint32_t)n);
	return 1;
}

static inline int hand_thread(struct arena_head *a, uint32_t ring, uint64_t ns, uint32_t tid)
{
	struct rec_thread r = {.head = {REC_THREAD, 0, sizeof(r), 0, ns}, .tid = tid};

	atomic_store(&arena_ring(a, ring)->owner, tid);
	return hand_put(a, ring, &r, sizeof(r));
}

/* A new ring of that thread. */
static inline uint32_t hand_ring(struct arena_head *a, uint32_t tid)
{
	uint32_t ring = atomic_fetch_add(&a->nrings, 1);

	hand_thread(a, ring, 1, tid);
	return ring;
}

static inline int hand_alloc(struct arena_head *a, uint32_t ring, uint64_t ns, uint64_t addr)
{
	struct rec_alloc r = {.head = {REC_ALLOC, 0, sizeof(r), 0, ns},
			      .addr = addr,
			      .size_bytes = 8,
			      .pool = POOL_HAL};

	return hand_put(a, ring, &r, sizeof(r));
}

/* An interned stack; its id. */
static inline uint32_t hand_stack(struct arena_head *a, const uint64_t *pc, uint32_t depth)
{
	uint64_t off = atomic_fetch_add(&a->stack_used, sizeof(struct stack_entry) + depth * 8);
	struct stack_entry *e = arena_stack(a, (uint32_t)(off / 8));

	e->depth = depth;
	memcpy(e->pc, pc, depth * 8);
	return (uint32_t)(off / 8);
}

static inline void hand_unmap(struct arena_head *a)
{
	munmap(a, a->file_bytes);
}

#endif
