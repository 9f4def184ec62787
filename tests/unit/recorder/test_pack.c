/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "recorder/pack/pack.h"

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
		now += 30 + (unsigned)rand_r(seed) % 100;
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
	CHECK(n && n < 20000 * 3);
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

/* Every byte changed, every length: refused or another batch, never a step outside (ASan). */
TEST(pack, damaged_at_every_byte)
{
	struct buf b = {0}, batch = {0}, out = {0};
	unsigned seed = 2;
	const char *again;
	size_t n;

	add_life(&b, 60, &seed);
	add_run(&batch, 0, 7, &b);
	struct pack *p = pack_new();
	CHECK(pack_batch(p, batch.data, batch.len, &out));
	for (size_t i = 0; i < out.len; i++) {
		CHECK_INT(pack_expand(p, out.data, i, &again, &n), -EINVAL);
		for (unsigned bit = 0; bit < 8; bit++) {
			out.data[i] ^= (char)(1 << bit);
			(void)pack_expand(p, out.data, out.len, &again, &n);
			out.data[i] ^= (char)(1 << bit);
		}
	}
	CHECK_INT(pack_expand(p, out.data, out.len, &again, &n), 0);
	CHECK(n == batch.len && !memcmp(again, batch.data, n));
	pack_free(p);
	buf_release(&b);
	buf_release(&batch);
	buf_release(&out);
}
