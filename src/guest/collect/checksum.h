/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The checksum of watched memory, as users know it from watch_dump_data_check_sum_*.csv: a 64-bit
 * table CRC that shifts right with the constant 0x42F0E1EBA9EA3693, all ones at both ends.
 *
 *	uint64_t c = CHECKSUM_BEGIN;
 *	c = checksum_add(c, piece, bytes);	as often as needed
 *	c = checksum_end(c);
 */
#ifndef SONDE_GUEST_COLLECT_CHECKSUM_H
#define SONDE_GUEST_COLLECT_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

#define CHECKSUM_BEGIN UINT64_MAX

uint64_t checksum_add(uint64_t c, const void *data, size_t bytes);

static inline uint64_t checksum_end(uint64_t c)
{
	return ~c;
}

#endif
