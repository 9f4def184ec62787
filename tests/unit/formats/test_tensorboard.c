/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "formats/tensorboard.h"

#include "test.h"

TEST(tensorboard, crc32c)
{
	CHECK_INT(tensorboard_crc32c("", 0), 0);
	CHECK_INT(tensorboard_crc32c("123456789", 9), 0xe3069283u);
}

TEST(tensorboard, a_file_begins_with_its_version)
{
	/* as TensorFlow writes it: wall_time 0, file_version */
	static const unsigned char want[] = {
		0x18, 0, 0, 0, 0, 0, 0, 0, 0xa3, 0x7f, 0x4b, 0x22,
		0x09, 0, 0, 0, 0, 0, 0, 0, 0,	 0x1a, 0x0d,
	};
	struct buf b = {0};

	tensorboard_add_version(&b, 0);
	CHECK_INT(b.len, 8 + 4 + 24 + 4);
	CHECK(!memcmp(b.data, want, sizeof(want)));
	CHECK(!memcmp(b.data + sizeof(want), "brain.Event:2", 13));
	buf_release(&b);
}

TEST(tensorboard, a_scalar)
{
	static const unsigned char want[] = {
		0x09, 0,    0,	  0,	0, 0, 0, 0xf8, 0x3f, /* wall_time 1.5 */
		0x10, 0xac, 0x02, /* step 300 */
		0x2a, 0x0a, 0x0a, 0x08, /* summary { value { */
		0x0a, 0x01, 't',  0x15, 0, 0, 0, 0x40, /* tag "t", simple_value 2 */
	};
	struct buf b = {0};

	tensorboard_add_scalar(&b, 1.5, 300, "t", 2);
	CHECK_INT(b.len, 8 + 4 + sizeof(want) + 4);
	CHECK_INT((unsigned char)b.data[0], sizeof(want));
	CHECK(!memcmp(b.data + 12, want, sizeof(want)));
	buf_release(&b);
}
