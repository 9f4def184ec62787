/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Event files of TensorBoard: a chain of framed records, each a small protobuf message. Only what
 * scalars need.
 *
 *	u64 length | u32 masked crc32c of the length | message | u32 masked crc32c of the message
 *
 * all little-endian.
 */
#ifndef SONDE_FORMATS_TENSORBOARD_H
#define SONDE_FORMATS_TENSORBOARD_H

#include <stddef.h>
#include <stdint.h>

#include "base/containers/buf.h"

/* The record with which every file begins. */
void tensorboard_add_version(struct buf *out, double wall_time_s);

/* One value of one curve. */
void tensorboard_add_scalar(struct buf *out, double wall_time_s, int64_t step, const char *tag,
			    float value);

/* CRC-32C (Castagnoli). */
uint32_t tensorboard_crc32c(const void *data, size_t bytes);

#endif
