/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The arena of a job that writes into it what it likes. A small valid one, then patches from the
 * input: place (1 byte), offset (2 bytes), length (1 byte), bytes. It is read to its end as by a
 * recovery: that must come, and what is told must be well formed.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../unit/arenas.h"
#include "base/mem.h"
#include "recorder/drain.h"
#include "recorder/stream.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define RINGS 3u
#define SEGS 5u /* that hold something in the skeleton */

static char dir[64], path[96];
static struct arena_head *arena;

static void forget(void)
{
	unlink(path);
	rmdir(dir);
}

static void on_proc(void *arg, const struct frame_proc *p)
{
	(void)arg;
	BUG_ON(p->proc != 0);
}

/* Made once; the parts that patches reach are put back before each input. */
static void skeleton(void)
{
	static const uint64_t pcs[] = {1, 2, 3};

	if (!arena) {
		snprintf(dir, sizeof(dir), "/tmp/sonde-fuzz-arena-%d", getpid());
		snprintf(path, sizeof(path), "%s/1-1-0.ring", dir);
		mkdir(dir, 0700);
		arena = hand_arena(path, 999999999);
		atexit(forget);
	}
	struct arena_head keep = {.version = ARENA_VERSION,
				  .pid = 999999999,
				  .pid_ns = arena->pid_ns,
				  .file_bytes = arena_bytes(HAND_SEGS, ARENA_SMALL_STACKS),
				  .max_rings = ARENA_MAX_RINGS,
				  .max_segs = HAND_SEGS,
				  .stack_bytes = ARENA_SMALL_STACKS,
				  .nsegs = HAND_SEGS,
				  .stack_used = 8};
	memcpy(arena, &keep, sizeof(keep));
	memset((char *)arena + ARENA_OFF_RINGS, 0, RINGS * sizeof(struct ring));
	memset((char *)arena + ARENA_OFF_SEG_STATE, 0, HAND_SEGS * 4);
	memset((char *)arena + arena_off_stacks(HAND_SEGS), 0, 4096);
	for (uint32_t i = 0; i < HAND_SEGS; i++)
		memset(arena_seg(arena, i), 0, 4096);
	for (uint32_t i = 0; i < RINGS; i++) {
		uint32_t ring = hand_ring(arena, 100 + i);
		hand_alloc(arena, ring, 10 + i, i);
		if (i < SEGS - RINGS)
			hand_seg(arena, ring);
		struct rec_alloc r = {
			.head = {REC_ALLOC, 0, sizeof(r), 0, 20 + i}, .addr = 7, .pool = POOL_HAL};
		r.head.stack = hand_stack(arena, pcs, 3);
		hand_put(arena, ring, &r, sizeof(r));
	}
	arena->magic = ARENA_MAGIC;
}

/* Where a patch goes, and how far it may reach. */
static char *place(unsigned n, size_t *out_room)
{
	switch (n % 8) {
	case 0:
		*out_room = sizeof(struct arena_head);
		return (char *)arena;
	case 1:
		*out_room = RINGS * sizeof(struct ring);
		return (char *)arena + ARENA_OFF_RINGS;
	case 2:
		*out_room = HAND_SEGS * 4;
		return (char *)arena + ARENA_OFF_SEG_STATE;
	case 3:
		*out_room = 4096;
		return (char *)arena + arena_off_stacks(HAND_SEGS);
	default:
		*out_room = 4096;
		return (char *)arena_seg(arena, n / 8 % HAND_SEGS);
	}
}

static void patch(const uint8_t *data, size_t size)
{
	while (size >= 4) {
		size_t room, n = data[3], off = data[1] | (size_t)data[2] << 8;
		char *at = place(data[0], &room);
		data += 4;
		size -= 4;
		if (n > size)
			n = size;
		off %= room;
		if (n > room - off)
			n = room - off;
		memcpy(at + off, data, n);
		data += n;
		size -= n;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct stream_ops deaf;
	struct buf batch = {0};
	unsigned rounds = 0;

	skeleton();
	patch(data, size);
	struct drain *d = drain_new(dir, 0);
	int found = drain_scan(d, on_proc, NULL, NULL);
	BUG_ON(found < 0 || found > 1);
	drain_check_alive(d, true);
	for (;;) {
		/* Segments are read once each, so all of them together bound what can come. */
		BUG_ON(++rounds > 2 * HAND_SEGS + 10);
		buf_clear(&batch);
		drain_round(d, &batch);
		if (!batch.len)
			break;
		BUG_ON(stream_frame(&deaf, NULL, FRAME_BATCH, batch.data, batch.len, NULL) < 0);
		drain_commit(d);
	}
	struct drain_proc *p = drain_next_dead(d);
	BUG_ON(!p != !found);
	if (p) {
		struct frame_proc_end end;
		drain_end_frame(d, p, &end);
		drain_finish(d, p, false);
	}
	drain_free(d);
	buf_release(&batch);
	return 0;
}
