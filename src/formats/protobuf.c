/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "formats/protobuf.h"

#include <string.h>

enum wire_type {
	WIRE_NUMBER = 0,
	WIRE_FIXED64 = 1,
	WIRE_BYTES = 2,
	WIRE_FIXED32 = 5,
};

#define VARINT_BYTES 10 /* of 64 bits */

void protobuf_add_varint(struct buf *out, uint64_t v)
{
	char *p = buf_room(out, VARINT_BYTES), *start = p;

	for (; v >= 0x80; v >>= 7)
		*p++ = (char)(v | 0x80);
	*p++ = (char)v;
	out->len += (size_t)(p - start);
}

static void add_key(struct buf *out, unsigned field, enum wire_type type)
{
	protobuf_add_varint(out, (uint64_t)field << 3 | type);
}

static void add_fixed(struct buf *out, uint64_t v, unsigned bytes)
{
	for (unsigned i = 0; i < bytes; i++)
		buf_add_char(out, (char)(v >> 8 * i));
}

void protobuf_add_number(struct buf *out, unsigned field, uint64_t v)
{
	if (!v)
		return;
	add_key(out, field, WIRE_NUMBER);
	protobuf_add_varint(out, v);
}

void protobuf_add_bytes(struct buf *out, unsigned field, const void *data, size_t bytes)
{
	add_key(out, field, WIRE_BYTES);
	protobuf_add_varint(out, bytes);
	buf_add(out, data, bytes);
}

void protobuf_add_part(struct buf *out, unsigned field, struct buf *part)
{
	protobuf_add_bytes(out, field, part->data, part->len);
	buf_clear(part);
}

void protobuf_add_fixed64(struct buf *out, unsigned field, uint64_t v)
{
	add_key(out, field, WIRE_FIXED64);
	add_fixed(out, v, sizeof(v));
}

void protobuf_add_double(struct buf *out, unsigned field, double v)
{
	uint64_t bits;

	memcpy(&bits, &v, sizeof(bits));
	protobuf_add_fixed64(out, field, bits);
}

void protobuf_add_float(struct buf *out, unsigned field, float v)
{
	uint32_t bits;

	memcpy(&bits, &v, sizeof(bits));
	add_key(out, field, WIRE_FIXED32);
	add_fixed(out, bits, sizeof(bits));
}
