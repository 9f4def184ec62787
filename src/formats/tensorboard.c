/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "formats/tensorboard.h"

#include <string.h>

#include "formats/protobuf.h"

#define CRC32C_POLYNOMIAL 0x82f63b78u /* reflected */
#define CRC_MASK 0xa282ead8u

/* Fields of the messages. */
enum {
	EVENT_WALL_TIME = 1,
	EVENT_STEP = 2,
	EVENT_FILE_VERSION = 3,
	EVENT_SUMMARY = 5,
	SUMMARY_VALUE = 1,
	VALUE_TAG = 1,
	VALUE_SIMPLE = 2,
};

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

void tensorboard_add_version(struct buf *out, double wall_time_s)
{
	static const char version[] = "brain.Event:2";
	struct buf event = {0};

	protobuf_add_double(&event, EVENT_WALL_TIME, wall_time_s);
	protobuf_add_bytes(&event, EVENT_FILE_VERSION, version, sizeof(version) - 1);
	add_record(out, &event);
	buf_release(&event);
}

void tensorboard_add_scalar(struct buf *out, double wall_time_s, int64_t step, const char *tag,
			    float value)
{
	struct buf event = {0}, summary = {0}, scalar = {0};

	protobuf_add_bytes(&scalar, VALUE_TAG, tag, strlen(tag));
	protobuf_add_float(&scalar, VALUE_SIMPLE, value);
	protobuf_add_bytes(&summary, SUMMARY_VALUE, scalar.data, scalar.len);

	protobuf_add_double(&event, EVENT_WALL_TIME, wall_time_s);
	protobuf_add_varint(&event, EVENT_STEP << 3); /* 0 is written, too */
	protobuf_add_varint(&event, (uint64_t)step);
	protobuf_add_bytes(&event, EVENT_SUMMARY, summary.data, summary.len);
	add_record(out, &event);
	buf_release(&scalar);
	buf_release(&summary);
	buf_release(&event);
}
