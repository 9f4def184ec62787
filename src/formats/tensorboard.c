/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "formats/tensorboard.h"

#include <string.h>

#define CRC32C_POLYNOMIAL 0x82f63b78u /* reflected */
#define CRC_MASK 0xa282ead8u

/* Fields of the messages, with their wire types: 0 varint, 1 eight bytes, 2 length, 5 four bytes.
 */
#define FIELD(number, type) (char)((number) << 3 | (type))
#define EVENT_WALL_TIME FIELD(1, 1)
#define EVENT_STEP FIELD(2, 0)
#define EVENT_FILE_VERSION FIELD(3, 2)
#define EVENT_SUMMARY FIELD(5, 2)
#define SUMMARY_VALUE FIELD(1, 2)
#define VALUE_TAG FIELD(1, 2)
#define VALUE_SIMPLE FIELD(2, 5)

/* Bit by bit: a record has some dozens of bytes. */
uint32_t tensorboard_crc32c(const void *data, size_t bytes)
{
	const unsigned char *p = data;
	uint32_t crc = ~0u;

	for (; bytes; bytes--, p++) {
		crc ^= *p;
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? CRC32C_POLYNOMIAL : 0);
	}
	return ~crc;
}

static void add_little_endian(struct buf *out, uint64_t v, int bytes)
{
	for (int i = 0; i < bytes; i++)
		buf_add_char(out, (char)(v >> 8 * i));
}

static void add_masked_crc(struct buf *out, const void *data, size_t bytes)
{
	uint32_t crc = tensorboard_crc32c(data, bytes);

	add_little_endian(out, (crc >> 15 | crc << 17) + CRC_MASK, 4);
}

static void add_record(struct buf *out, const struct buf *message)
{
	size_t at = out->len;

	add_little_endian(out, message->len, 8);
	add_masked_crc(out, out->data + at, 8);
	buf_add(out, message->data, message->len);
	add_masked_crc(out, message->data, message->len);
}

static void add_varint(struct buf *out, uint64_t v)
{
	for (; v >= 0x80; v >>= 7)
		buf_add_char(out, (char)(v | 0x80));
	buf_add_char(out, (char)v);
}

static void add_bytes(struct buf *out, char field, const void *data, size_t bytes)
{
	buf_add_char(out, field);
	add_varint(out, bytes);
	buf_add(out, data, bytes);
}

static void add_wall_time(struct buf *out, double seconds)
{
	uint64_t bits;

	memcpy(&bits, &seconds, sizeof(bits));
	buf_add_char(out, EVENT_WALL_TIME);
	add_little_endian(out, bits, 8);
}

void tensorboard_add_version(struct buf *out, double wall_time_s)
{
	static const char version[] = "brain.Event:2";
	struct buf event = {0};

	add_wall_time(&event, wall_time_s);
	add_bytes(&event, EVENT_FILE_VERSION, version, sizeof(version) - 1);
	add_record(out, &event);
	buf_release(&event);
}

void tensorboard_add_scalar(struct buf *out, double wall_time_s, int64_t step, const char *tag,
			    float value)
{
	struct buf event = {0}, summary = {0}, scalar = {0};
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	add_bytes(&scalar, VALUE_TAG, tag, strlen(tag));
	buf_add_char(&scalar, VALUE_SIMPLE);
	add_little_endian(&scalar, bits, 4);
	add_bytes(&summary, SUMMARY_VALUE, scalar.data, scalar.len);

	add_wall_time(&event, wall_time_s);
	buf_add_char(&event, EVENT_STEP);
	add_varint(&event, (uint64_t)step);
	add_bytes(&event, EVENT_SUMMARY, summary.data, summary.len);
	add_record(out, &event);
	buf_release(&scalar);
	buf_release(&summary);
	buf_release(&event);
}
