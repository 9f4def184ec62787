/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * CRC-64 (ECMA-182, reflected), eight bytes at a time by eight tables: table[k][b] is what byte b
 * does to the sum when k more bytes follow it. 16 KiB, filled at the first use by one thread;
 * others that come meanwhile go byte by byte without it, and get the same sum.
 */
#include "guest/collect/checksum.h"

#include <stdatomic.h>
#include <string.h>

#define POLYNOMIAL 0x42F0E1EBA9EA3693ull
#define SLICES 8

/* table[k][b]: what byte b does to the sum when k more bytes follow it. */
static uint64_t table[SLICES][256];

enum { TABLE_NONE, TABLE_MADE, TABLE_READY };
static _Atomic int state;

static uint64_t add_byte(uint64_t c, unsigned char b)
{
	c ^= b;
	for (int bit = 0; bit < 8; bit++)
		c = c & 1 ? c >> 1 ^ POLYNOMIAL : c >> 1;
	return c;
}

static void fill_table(void)
{
	for (int b = 0; b < 256; b++)
		table[0][b] = add_byte(0, (unsigned char)b);
	for (int k = 1; k < SLICES; k++)
		for (int b = 0; b < 256; b++) {
			uint64_t c = table[k - 1][b];
			table[k][b] = table[0][c & 255] ^ c >> 8;
		}
}

/* One thread makes the table; who comes meanwhile does without, and nobody waits. */
static int table_is_ready(void)
{
	int was = atomic_load_explicit(&state, memory_order_acquire);

	if (was == TABLE_NONE && atomic_compare_exchange_strong(&state, &was, TABLE_MADE)) {
		fill_table();
		atomic_store_explicit(&state, TABLE_READY, memory_order_release);
		return 1;
	}
	return was == TABLE_READY;
}

uint64_t checksum_add(uint64_t c, const void *data, size_t bytes)
{
	const unsigned char *p = data;

	if (!table_is_ready()) {
		for (; bytes; bytes--)
			c = add_byte(c, *p++);
		return c;
	}
	for (; bytes >= 8; p += 8, bytes -= 8) {
		uint64_t w;
		memcpy(&w, p, sizeof(w)); /* little-endian machines only, as everything here */
		c ^= w;
		c = table[7][c & 255] ^ table[6][c >> 8 & 255] ^ table[5][c >> 16 & 255] ^
		    table[4][c >> 24 & 255] ^ table[3][c >> 32 & 255] ^ table[2][c >> 40 & 255] ^
		    table[1][c >> 48 & 255] ^ table[0][c >> 56];
	}
	for (; bytes; bytes--)
		c = table[0][(c ^ *p++) & 255] ^ c >> 8;
	return c;
}
