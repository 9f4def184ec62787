/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Protocol Buffers, written by hand: a message is a row of fields, each a key (field << 3 | wire
 * type) and a value. Messages inside of messages are put together in a buffer of their own first,
 * since their length stands in front of them.
 */
#ifndef SONDE_FORMATS_PROTOBUF_H
#define SONDE_FORMATS_PROTOBUF_H

#include <stddef.h>
#include <stdint.h>

#include "base/containers/buf.h"

/* Seven bits a byte, the lowest first; the top bit says that more follow. */
void protobuf_add_varint(struct buf *out, uint64_t v);
/* Adds nothing for 0: that is what a field is when it is not there. */
void protobuf_add_number(struct buf *out, unsigned field, uint64_t v);
void protobuf_add_bytes(struct buf *out, unsigned field, const void *data, size_t bytes);
/* A message that was put together in `part`, which is empty afterwards. */
void protobuf_add_part(struct buf *out, unsigned field, struct buf *part);
void protobuf_add_fixed64(struct buf *out, unsigned field, uint64_t v);
void protobuf_add_double(struct buf *out, unsigned field, double v);
void protobuf_add_float(struct buf *out, unsigned field, float v);

#endif
