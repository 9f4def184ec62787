/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "formats/pickle.h"

#include "test.h"

static void check_bytes(struct buf *b, const char *want, size_t n)
{
	CHECK_INT(b->len, n);
	CHECK(b->len == n && !memcmp(b->data, want, n));
	buf_release(b);
}

TEST(pickle, numbers_take_the_shortest_form)
{
	struct buf b = {0};

	pickle_number(&b, 255);
	pickle_number(&b, 256);
	pickle_number(&b, 65536);
	check_bytes(&b, "K\xffM\x00\x01J\x00\x00\x01\x00", 10);
	b = (struct buf){0};
	pickle_number(&b, 1ull << 31);
	check_bytes(&b, "\x8a\x08\x00\x00\x00\x80\x00\x00\x00\x00", 10);
	b = (struct buf){0};
	pickle_number(&b, UINT64_MAX); /* the largest that a reader takes for a positive number */
	check_bytes(&b, "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f", 10);
}

TEST(pickle, texts_and_the_memo)
{
	struct buf b = {0};

	pickle_text(&b, "a\xff", 2);
	pickle_put(&b, 258);
	pickle_get(&b, 258);
	check_bytes(&b,
		    "\x8c\x04"
		    "a\xef\xbf\xbd"
		    "r\x02\x01\x00\x00j\x02\x01\x00\x00",
		    16);
}
