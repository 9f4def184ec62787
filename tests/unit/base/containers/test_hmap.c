/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "test.h"

#include "base/containers/hmap.h"

#include <stdint.h>

static uint64_t state = 88172645463325252ull;

static uint64_t next(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

#define SPACE 4096

static void check_against_array(uint64_t stride, uint64_t offset)
{
	static uint64_t want[SPACE];
	struct hmap m = {0};

	memset(want, 0xff, sizeof(want));
	for (int i = 0; i < 100000; i++) {
		uint64_t k = next() % SPACE;

		if (i / 10000 % 2 ? next() % 3 : !(next() % 3)) {
			CHECK(hmap_remove(&m, k * stride + offset) == want[k]);
			want[k] = HMAP_NONE;
		} else {
			uint64_t v = next() >> 1;
			CHECK(hmap_put(&m, k * stride + offset, v) == want[k]);
			want[k] = v;
		}
		k = next() % SPACE;
		CHECK(hmap_get(&m, k * stride + offset) == want[k]);
		if (i % 500 == 0)
			CHECK(!hmap_check(&m));
	}
	CHECK(!hmap_check(&m));
	hmap_release(&m);
}

TEST(hmap, agrees_with_an_array_for_counters)
{
	check_against_array(1, 0);
}

TEST(hmap, agrees_with_an_array_for_addresses)
{
	check_against_array(1u << 21, 0x7f0000000000u);
}

TEST(hmap, agrees_with_an_array_for_keys_that_differ_high_up)
{
	check_against_array(1ull << 52, 0);
}

TEST(hmap, takes_every_key)
{
	struct hmap m = {0};
	uint64_t keys[] = {0, UINT64_MAX, UINT64_MAX - 1, 1ull << 63};

	CHECK(hmap_get(&m, 0) == HMAP_NONE);
	CHECK(hmap_remove(&m, 0) == HMAP_NONE);
	for (size_t i = 0; i < 4; i++)
		CHECK(hmap_put(&m, keys[i], i) == HMAP_NONE);
	for (size_t i = 0; i < 4; i++)
		CHECK(hmap_get(&m, keys[i]) == i);
	CHECK(!hmap_check(&m));
	hmap_release(&m);
}

TEST(hmap, visits_every_entry_once)
{
	struct hmap m = {0};
	uint64_t k, v, sum = 0;
	size_t at = 0, n = 0;

	CHECK(!hmap_next(&m, &at, &k, &v));
	for (uint64_t i = 0; i < 1000; i++)
		hmap_put(&m, i * 7919, i);
	for (at = 0; hmap_next(&m, &at, &k, &v); n++) {
		CHECK(k == v * 7919);
		sum += v;
	}
	CHECK(n == 1000);
	CHECK(sum == 499500);
	hmap_release(&m);
}

TEST(hmap, does_not_grow_by_turnover)
{
	struct hmap m = {0};

	for (uint64_t i = 0; i < 1000000; i++) {
		hmap_put(&m, i, i);
		if (i >= 100)
			CHECK(hmap_remove(&m, i - 100) == i - 100);
	}
	CHECK(m.count == 100);
	CHECK(m.cap <= 256);
	hmap_release(&m);
}

TEST(hmap, holds_pointers)
{
	struct hmap m = {0};
	int a, b;

	CHECK(!hmap_get_ptr(&m, 1));
	CHECK(!hmap_put_ptr(&m, 1, &a));
	CHECK(hmap_put_ptr(&m, 1, &b) == &a);
	CHECK(hmap_get_ptr(&m, 1) == &b);
	CHECK(!hmap_get_ptr(&m, 2));
	hmap_release(&m);
	hmap_release(&m);
}
