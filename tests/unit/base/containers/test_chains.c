/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "base/containers/chains.h"

#include "test.h"

#include <string.h>

static size_t read_all(const struct chains *c, uint32_t number, uint64_t *out)
{
	const uint64_t *words;
	size_t n, all = 0;

	for (uint32_t at = number; (words = chains_next(c, &at, &n)); all += n)
		memcpy(out + all, words, n * sizeof(out[0]));
	return all;
}

TEST(chains, what_is_put_in_comes_out)
{
	uint64_t words[100], out[100];
	uint32_t numbers[100];
	struct chains c = {0};

	for (unsigned i = 0; i < 100; i++)
		words[i] = i * 77;
	CHECK_INT(chains_put(&c, words, 0), 0);
	for (unsigned n = 1; n < 100; n++)
		numbers[n] = chains_put(&c, words, n);
	for (unsigned n = 1; n < 100; n++) {
		CHECK_INT(chains_put(&c, words, n), numbers[n]);
		CHECK_INT(read_all(&c, numbers[n], out), n);
		CHECK(!memcmp(out, words, n * sizeof(words[0])));
		for (unsigned k = 1; k < n; k++)
			CHECK(numbers[n] != numbers[k]);
	}
	chains_release(&c);
}

TEST(chains, ends_are_shared)
{
	uint64_t words[1000] = {0};
	struct chains c = {0};

	for (uint64_t i = 0; i < 1000; i++) {
		words[0] = i;
		chains_put(&c, words, 1000);
	}
	CHECK(c.n < 1000 * 12);
	chains_release(&c);
}
