/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Kinds of numbers, and their ordered keys. The bits of a float, read as an integer, are ordered
 * already among positive numbers; flipping the sign bit of those, and all bits of negative ones,
 * orders them all. Of signed integers the sign bit is flipped.
 */
#include "base/numbers/numbers_impl.h"

#include <string.h>

static const struct {
	uint8_t bytes;
	bool integer, complex;
} kinds[NUMBER_KINDS] = {
	[NUMBER_F64] = {8, false, false},  [NUMBER_F32] = {4, false, false},
	[NUMBER_F16] = {2, false, false},  [NUMBER_BF16] = {2, false, false},
	[NUMBER_I64] = {8, true, false},   [NUMBER_I32] = {4, true, false},
	[NUMBER_I16] = {2, true, false},   [NUMBER_I8] = {1, true, false},
	[NUMBER_U64] = {8, true, false},   [NUMBER_U32] = {4, true, false},
	[NUMBER_U16] = {2, true, false},   [NUMBER_U8] = {1, true, false},
	[NUMBER_C128] = {16, false, true}, [NUMBER_C64] = {8, false, true},
};

bool number_is_integer(enum number_kind kind)
{
	return kinds[kind].integer;
}

bool number_is_complex(enum number_kind kind)
{
	return kinds[kind].complex;
}

size_t number_bytes(enum number_kind kind)
{
	return kinds[kind].bytes;
}

unsigned key_bits(enum number_kind kind)
{
	return kinds[kind].bytes * 8u;
}

/* Normal and subnormal halves become floats by one multiplication, which is exact. */
float half_to_float(uint16_t h)
{
	uint32_t bits = (uint32_t)(h & 0x7fff) << 13;
	float f;

	memcpy(&f, &bits, sizeof(f));
	f *= 0x1p112f;
	memcpy(&bits, &f, sizeof(f));
	if ((h & 0x7c00) == 0x7c00)
		bits = 0x7f800000u | ((uint32_t)(h & 0x3ff) << 13);
	bits |= (uint32_t)(h & 0x8000) << 16;
	memcpy(&f, &bits, sizeof(f));
	return f;
}

void number_widen_bf16(const void *data, size_t count, float *out)
{
	const uint16_t *in = data;
	uint32_t *bits = (uint32_t *)out;

	for (size_t i = 0; i < count; i++)
		bits[i] = (uint32_t)in[i] << 16;
}

#define UNFLIP_FLOAT(x, bits)                                                                      \
	((x) ^ ((x) >> ((bits)-1) ? 1ull << ((bits)-1) : ~0ull >> (64 - (bits))))

/* The sign, shifted down, is all ones of negative numbers. */
#define FILL(type, key_type, key)                                                                  \
	do {                                                                                       \
		const type *from = (const type *)data + at;                                        \
		key_type *to = (key_type *)keys;                                                   \
		for (size_t i = 0; i < n; i++) {                                                   \
			type x = from[i];                                                          \
			to[i] = (key_type)(key);                                                   \
		}                                                                                  \
		return;                                                                            \
	} while (0)

void keys_fill(enum number_kind kind, const void *data, size_t at, size_t n, union keys *keys)
{
	switch (kind) {
	case NUMBER_F64:
		FILL(int64_t, uint64_t, (uint64_t)x ^ ((uint64_t)(x >> 63) | 1ull << 63));
	case NUMBER_F32:
		FILL(int32_t, uint32_t, (uint32_t)x ^ ((uint32_t)(x >> 31) | 1u << 31));
	case NUMBER_F16:
	case NUMBER_BF16:
		FILL(int16_t, uint32_t, (uint16_t)(x ^ (x >> 15 | 1 << 15)));
	case NUMBER_I64:
		FILL(uint64_t, uint64_t, x ^ 1ull << 63);
	case NUMBER_I32:
		FILL(uint32_t, uint32_t, x ^ 1u << 31);
	case NUMBER_I16:
		FILL(uint16_t, uint32_t, x ^ 1u << 15);
	case NUMBER_I8:
		FILL(uint8_t, uint32_t, x ^ 1u << 7);
	case NUMBER_U64:
		FILL(uint64_t, uint64_t, x);
	case NUMBER_U32:
		FILL(uint32_t, uint32_t, x);
	case NUMBER_U16:
		FILL(uint16_t, uint32_t, x);
	default:
		FILL(uint8_t, uint32_t, x);
	}
}

static double float_value(enum number_kind kind, uint64_t key)
{
	double d;
	float f;

	if (kind == NUMBER_F64) {
		key = UNFLIP_FLOAT(key, 64);
		memcpy(&d, &key, sizeof(d));
		return d;
	}
	if (kind == NUMBER_F16)
		return half_to_float((uint16_t)UNFLIP_FLOAT(key, 16));
	uint32_t bits = kind == NUMBER_BF16 ? (uint32_t)UNFLIP_FLOAT(key, 16) << 16
					    : (uint32_t)UNFLIP_FLOAT(key, 32);
	memcpy(&f, &bits, sizeof(f));
	return f;
}

double key_value(enum number_kind kind, uint64_t key)
{
	switch (kind) {
	case NUMBER_I64:
		return (double)(int64_t)(key ^ 1ull << 63);
	case NUMBER_I32:
		return (double)key - 0x1p31;
	case NUMBER_I16:
		return (double)key - 0x1p15;
	case NUMBER_I8:
		return (double)key - 0x1p7;
	case NUMBER_U64:
	case NUMBER_U32:
	case NUMBER_U16:
	case NUMBER_U8:
		return (double)key;
	default:
		return float_value(kind, key);
	}
}
