/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "recorder/pack/pack.h"

#include "base/fs.h"
#include "base/mem.h"
#include "records.h"
#include "test.h"
#include "wire/ring.h"

#include <errno.h>
#include <stdlib.h>

static struct pack *one;

/* Packs and expands; returns how many bytes it took, 0 if it was not packed. */
static size_t there_and_back(const struct buf *batch)
{
	struct buf out = {0};
	const char *again;
	size_t n;

	if (!one)
		one = pack_new();
	if (!pack_batch(one, batch->data, batch->len, &out))
		return 0;
	CHECK_INT(pack_expand(one, out.data, out.len, &again, &n), 0);
	CHECK_INT(n, batch->len);
	CHECK(!memcmp(again, batch->data, n));
	n = out.len;
	buf_release(&out);
	return n;
}

/* As a program does it: blocks come and go, and the allocator gives freed ones out again. */
static void add_life(struct buf *b, unsigned events, unsigned *seed)
{
	uint64_t live[64] = {0}, freed[64] = {0}, now = 1ull << 40, top = 0x7f0000000000;
	size_t nfreed = 0;

	for (unsigned i = 0; i < events; i++) {
		unsigned at = (unsigned)rand_r(seed) % 64;
		now += PACK_TICK_NS * ((unsigned)rand_r(seed) % 3);
		if (live[at]) {
			add_free(b, now, live[at], POOL_HOST);
			if (nfreed < 64)
				freed[nfreed++] = live[at];
			live[at] = 0;
		} else {
			live[at] = nfreed ? freed[--nfreed] : (top += 64);
			add_alloc(b, now, live[at], 48, POOL_HOST);
		}
	}
}

TEST(pack, a_life_in_few_bytes)
{
	struct buf b = {0}, batch = {0};
	unsigned seed = 1;

	add_life(&b, 20000, &seed);
	add_run(&batch, 0, 7, &b);
	size_t n = there_and_back(&batch);
	CHECK(n && n < 20000 * 9 / 5); /* of it half are random times and turns */
	buf_release(&b);
	buf_release(&batch);
}

TEST(pack, everything_that_a_batch_has)
{
	static const uint64_t pcs[] = {0x401010, 0xffff000000000001, 0x402020, 0};
	struct buf b = {0}, batch = {0};
	uint64_t deep[ARENA_MAX_DEPTH];

	for (unsigned i = 0; i < ARENA_MAX_DEPTH; i++)
		deep[i] = i * 977;
	add_stack(&batch, 0, 1, pcs, 4);
	add_stack(&batch, 0, 2, pcs + 1, 3);
	add_stack(&batch, 3, UINT32_MAX, deep, ARENA_MAX_DEPTH);
	add_stack(&batch, 0, 3, pcs, 0);
	add_run(&batch, 0, 7, &b); /* no record */
	for (unsigned i = 0; i < 40; i++) { /* more kinds than there are slots */
		add_alloc(&b, 100 - i, 16 * i, i, (uint8_t)(1 + i % POOL_CUDA));
		RECORD(&b, REC_ALLOC, rec_alloc, i, .addr = UINT64_MAX / 2 * (i % 3),
		       .page = i % 12, .size_bytes = UINT64_MAX, .head.flags = i % 2);
		add_free(&b, UINT64_MAX - i, 16 * i, (uint8_t)(1 + i % POOL_CUDA));
		add_free(&b, 5, 16 * i, POOL_HAL); /* twice */
		MARK_RECORD(&b, i, MARK_INSTANT, i, "a text");
	}
	add_run(&batch, 1, 8, &b);
	add_run(&batch, 1, 8, &b);
	add_cursor(&batch, 0, 3, 77, 4096);
	buf_clear(&b);
	buf_add(&b, "12345678", 8); /* an item of a later version */
	struct batch_item later = {99, sizeof(later) + 8, 1, 2};
	buf_add(&batch, &later, sizeof(later));
	buf_add(&batch, b.data, b.len);
	CHECK(there_and_back(&batch));
	buf_release(&b);
	buf_release(&batch);
}

/* Every place that is looked for, and none; on both sides of where the numbers end. */
TEST(pack, places)
{
	struct buf b = {0}, batch = {0};
	uint64_t heap = 0x555500000010, now = 1 << 20;

	for (unsigned i = 0; i < 300; i++) /* each behind the last, of several classes */
		add_alloc(&b, now++, heap + 64 * i, 40 + i % 3, POOL_HOST);
	for (unsigned i = 0; i < 40; i++)
		add_free(&b, now++, heap + 64 * i, POOL_HOST);
	for (unsigned i = 0; i < 40; i++) /* first in, first out: down the list, then none */
		add_alloc(&b, now++, heap + 64 * i, 40, POOL_HOST);
	for (unsigned i = 0; i < 40; i++) { /* the block of another size; how old it is */
		add_free(&b, now++, heap + 64 * i, POOL_HOST);
		add_free(&b, now++, heap + 64 * (260 + i), POOL_HOST);
		add_alloc(&b, now++, heap + 64 * i, 400 + 64 * i, POOL_HOST);
	}
	for (unsigned i = 0; i < 40; i++) { /* not of the batch, and at any address */
		add_free(&b, now++, heap - 977 * i, POOL_HOST);
		add_alloc(&b, now++, heap - 977 * i, 5, i % 2 ? POOL_HOST : POOL_CUDA);
		add_alloc(&b, now++, UINT64_MAX - i, UINT64_MAX - i, POOL_HOST);
		add_free(&b, now++, UINT64_MAX - 100 * i, i % 2 ? POOL_HOST : POOL_CUDA);
	}
	add_run(&batch, 0, 7, &b);
	CHECK(there_and_back(&batch));
	buf_release(&b);
	buf_release(&batch);
}

/* At the beginning of a step, at the time before, neither; forwards and backwards. */
TEST(pack, times)
{
	static const uint64_t times[] = {0,   1,    127,  128,	      128,  130, 256,
					 256, 1024, 1024, 1 << 20,    1000, 999, 256 * 254,
					 0,   300,  301,  UINT64_MAX, 0,    128, UINT64_MAX - 127};
	struct buf b = {0}, batch = {0};

	for (unsigned i = 0; i < 2000; i++)
		add_alloc(&b, times[i * (1 + i / 100) % (sizeof(times) / sizeof(times[0]))], 16 * i,
			  8, POOL_HOST);
	add_run(&batch, 0, 7, &b);
	CHECK(there_and_back(&batch));
	buf_release(&b);
	buf_release(&batch);
}

/* Records that name the stack that has just come, another, none, and one that nobody knows. */
TEST(pack, stacks_of_records)
{
	static const uint64_t pcs[] = {0x401010, 0x401020, 0x402020};
	static const uint32_t ids[] = {1, 5, 1, 0, 9, 9, 0, UINT32_MAX, 5};
	struct buf b = {0}, batch = {0};

	for (unsigned i = 0; i < 200; i++) {
		buf_clear(&b);
		if (i % 3 == 0)
			add_stack(&batch, 0, ids[i / 3 % 9], pcs, 1 + i % 3);
		for (unsigned k = 0; k < 4; k++) {
			add_alloc(&b, i, 16 * i, 8, POOL_HOST);
			((struct rec_alloc *)(b.data + b.len) - 1)->head.stack = ids[(i + k) % 9];
		}
		add_run(&batch, 0, 7, &b);
	}
	CHECK(there_and_back(&batch));
	buf_release(&b);
	buf_release(&batch);
}

/* Whatever is no batch is not packed, and stays as it is. */
TEST(pack, what_is_none)
{
	struct buf b = {0};

	for (size_t i = 0; i < 3000; i++)
		buf_add_char(&b, (char)(i % 7));
	CHECK_INT(there_and_back(&b), 0);
	b.len = 0;
	struct batch_item it = {BATCH_RUN, 40, 0, 0};
	buf_add(&b, &it, sizeof(it));
	buf_add(&b, "no record, 24 bytes long", 24);
	CHECK_INT(there_and_back(&b), 0);
	b.len = 12;
	CHECK_INT(there_and_back(&b), 0);
	buf_release(&b);
}

typedef int expand_fn(struct pack *p, const char *packed, size_t bytes, const char **out_batch,
		      size_t *out_bytes);

/* Every byte changed, every length: refused or another batch, never a step outside (ASan). */
static void damage_every_byte(expand_fn *expand, char *packed, size_t bytes)
{
	struct pack *p = pack_new();
	const char *again;
	size_t n, before;

	CHECK_INT(expand(p, packed, bytes, &again, &before), 0);
	char *batch = memcpy(xmalloc(before), again, before);
	for (size_t i = 0; i < bytes; i++) {
		CHECK_INT(expand(p, packed, i, &again, &n), -EINVAL);
		for (unsigned bit = 0; bit < 8; bit++) {
			packed[i] ^= (char)(1 << bit);
			(void)expand(p, packed, bytes, &again, &n);
			packed[i] ^= (char)(1 << bit);
		}
	}
	CHECK_INT(expand(p, packed, bytes, &again, &n), 0);
	CHECK(n == before && !memcmp(again, batch, n));
	pack_free(p);
	free(batch);
}

TEST(pack, damaged_at_every_byte)
{
	struct buf b = {0}, batch = {0}, out = {0};
	unsigned seed = 2;

	add_life(&b, 60, &seed);
	add_run(&batch, 0, 7, &b);
	struct pack *p = pack_new();
	CHECK(pack_batch(p, batch.data, batch.len, &out));
	damage_every_byte(pack_expand, out.data, out.len);
	pack_free(p);
	buf_release(&b);
	buf_release(&batch);
	buf_release(&out);
}

TEST(pack, version_2_damaged_at_every_byte)
{
	struct buf all = {0};
	unsigned found = 0;
	struct frame f;

	CHECK_INT(fs_read_file("tests/golden/v2.sonde", 1 << 20, &all, NULL), 0);
	for (size_t at = sizeof(struct recording_head); at < all.len;
	     at += sizeof(f) + f.stored_bytes) {
		memcpy(&f, all.data + at, sizeof(f));
		if (f.type != FRAME_PACKED_V2)
			continue;
		damage_every_byte(pack_expand_v2, all.data + at + sizeof(f), f.stored_bytes);
		found++;
	}
	CHECK(found);
	buf_release(&all);
}
