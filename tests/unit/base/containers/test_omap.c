/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "test.h"

#include "base/containers/omap.h"

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

/* Random puts and removes against a plain array; floor is checked by searching it. */
TEST(omap, agrees_with_an_array)
{
	static void *want[SPACE];
	struct omap m = {0};

	for (int i = 0; i < 200000; i++) {
		uint64_t k = next() % SPACE, found;
		void *v = (void *)(uintptr_t)(next() | 1);
		if (i / 20000 % 2 ? next() % 3 : !(next() % 3)) {
			CHECK(omap_remove(&m, k) == want[k]);
			want[k] = NULL;
		} else {
			CHECK(omap_put(&m, k, v) == want[k]);
			want[k] = v;
		}
		k = next() % SPACE;
		CHECK(omap_get(&m, k) == want[k]);
		void *f = omap_floor(&m, k, &found);
		while (k && !want[k])
			k--;
		CHECK(f == want[k] && (!f || found == k));
		if (i % 1000 == 0)
			CHECK(omap_check(&m));
	}
	omap_release(&m);
}

TEST(omap, empties_and_fills_again)
{
	struct omap m = {0};
	uint64_t k;

	for (int round = 0; round < 3; round++) {
		for (uint64_t i = 0; i < 10000; i++)
			omap_put(&m, i * 7, &m);
		CHECK_INT(m.count, 10000);
		for (uint64_t i = 0; i < 10000; i++)
			CHECK(omap_remove(&m, i * 7) == &m);
		CHECK_INT(m.count, 0);
		CHECK(omap_floor(&m, UINT64_MAX, &k) == NULL);
	}
	omap_release(&m);
}

/* Whatever the order in which keys come, all of them are found. */
TEST(omap, keys_in_many_orders)
{
	for (int round = 0; round < 300; round++) {
		struct omap m = {0};
		uint64_t first = state;
		int n = 200 + round * 13;

		for (int i = 0; i < n; i++)
			CHECK(!omap_put(&m, next(), &m));
		CHECK(omap_check(&m));
		state = first;
		for (int i = 0; i < n; i++)
			CHECK(omap_get(&m, next()) == &m);
		omap_release(&m);
	}
}
