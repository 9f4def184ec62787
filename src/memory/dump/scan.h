/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Looks at text many bytes at a time: where a byte is among the next 64, and numbers of eight
 * digits in one go. The readers of dumps live on these.
 *
 * The functions read whole words. Where they may look past the text they are given, the header
 * says so, and the caller has room there (CELL_SLACK); what lies in it does not matter.
 */
#ifndef SONDE_MEMORY_DUMP_SCAN_H
#define SONDE_MEMORY_DUMP_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __SSE2__
#	include <emmintrin.h>
#elif defined(__aarch64__)
#	include <arm_neon.h>
#endif

#define SCAN_BYTES(c) (0x0101010101010101u * (unsigned char)(c)) /* the byte, eight times */
#define SCAN_HIGH SCAN_BYTES(0x80)

/* Eight bytes, the first one lowest. */
static inline uint64_t scan_load(const char *s)
{
	uint64_t v;

	memcpy(&v, s, sizeof(v));
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
	v = __builtin_bswap64(v);
#endif
	return v;
}

/* The top bit of every byte that is zero. */
static inline uint64_t scan_zeros(uint64_t x)
{
	return ~(((x & ~SCAN_HIGH) + ~SCAN_HIGH) | x) & SCAN_HIGH;
}

/* Bit i: is s[i] one of the two? Of 64 bytes, with and without help of the processor. */
static inline uint64_t scan_either_plain(const char *s, char c, char d)
{
	uint64_t bits = 0;

	for (unsigned i = 0; i < 8; i++) {
		uint64_t v = scan_load(s + 8 * i);
		uint64_t found = scan_zeros(v ^ SCAN_BYTES(c)) | scan_zeros(v ^ SCAN_BYTES(d));

		/* gathers the eight top bits in one byte */
		bits |= ((found >> 7) * 0x0102040810204080u >> 56) << 8 * i;
	}
	return bits;
}

#ifdef __SSE2__
static inline uint64_t scan_either16(const char *s, __m128i a, __m128i b)
{
	__m128i v = _mm_loadu_si128((const __m128i *)(const void *)s);

	v = _mm_or_si128(_mm_cmpeq_epi8(v, a), _mm_cmpeq_epi8(v, b));
	return (unsigned)_mm_movemask_epi8(v);
}

static inline uint64_t scan_either(const char *s, char c, char d)
{
	const __m128i a = _mm_set1_epi8(c), b = _mm_set1_epi8(d);

	return scan_either16(s, a, b) | scan_either16(s + 16, a, b) << 16 |
	       scan_either16(s + 32, a, b) << 32 | scan_either16(s + 48, a, b) << 48;
}
#elif defined(__aarch64__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
static inline uint64_t scan_either(const char *s, char c, char d)
{
	static const uint8_t places[16] = {1, 2, 4, 8, 16, 32, 64, 128,
					   1, 2, 4, 8, 16, 32, 64, 128};
	const uint8x16_t a = vdupq_n_u8((uint8_t)c), b = vdupq_n_u8((uint8_t)d);
	const uint8x16_t place = vld1q_u8(places);
	uint8x16_t v[4];

	for (unsigned i = 0; i < 4; i++) {
		v[i] = vld1q_u8((const uint8_t *)s + 16 * i);
		v[i] = vandq_u8(vorrq_u8(vceqq_u8(v[i], a), vceqq_u8(v[i], b)), place);
	}
	/* adding neighbours three times brings the eight bits of a byte together */
	v[0] = vpaddq_u8(vpaddq_u8(v[0], v[1]), vpaddq_u8(v[2], v[3]));
	return vgetq_lane_u64(vreinterpretq_u64_u8(vpaddq_u8(v[0], v[0])), 0);
}
#else
static inline uint64_t scan_either(const char *s, char c, char d)
{
	return scan_either_plain(s, c, d);
}
#endif

/* The number that 1 to 8 digits spell. Reads 8 bytes. */
static inline bool scan_digits(const char *s, size_t n, uint64_t *out)
{
	uint64_t v = (scan_load(s) ^ SCAN_BYTES('0')) << 8 * (8 - n);

	if (((v + SCAN_BYTES(0x7f - 9)) | v) & SCAN_HIGH)
		return false;
	/* ones and tens, then hundreds, then ten thousands; every step halves the number of sums */
	v = (v * (1 + (10 << 8)) >> 8) & 0x00ff00ff00ff00ffu;
	v = (v * (1 + (100 << 16)) >> 16) & 0x0000ffff0000ffffu;
	*out = v * (1 + (10000ull << 32)) >> 32;
	return true;
}

/* 9 to 20 digits. */
static inline bool scan_long(const char *s, size_t n, uint64_t *out)
{
	uint64_t high, middle, low;

	if (n - 9 < 8) {
		if (!scan_digits(s, n - 8, &high) || !scan_digits(s + n - 8, 8, &low))
			return false;
		*out = high * 100000000 + low;
		return true;
	}
	return n - 17 < 4 && scan_digits(s, n - 16, &high) && scan_digits(s + n - 16, 8, &middle) &&
	       scan_digits(s + n - 8, 8, &low) &&
	       !__builtin_mul_overflow(high, 10000000000000000u, &high) &&
	       !__builtin_add_overflow(high, middle * 100000000 + low, out);
}

/* Decimal, every byte a digit, no overflow. Reads up to 8 bytes past the end. */
static inline __attribute__((always_inline)) bool scan_u64(const char *s, size_t n, uint64_t *out)
{
	return n - 1 < 8 ? scan_digits(s, n, out) : scan_long(s, n, out);
}

/* Eight hexadecimal digits. */
static inline bool scan_hex8(const char *s, uint64_t *out)
{
	uint64_t v = scan_load(s), low = v | SCAN_BYTES(0x20);

	if (v & SCAN_HIGH)
		return false;
	/* the top bit of a byte says: at least that large */
	uint64_t digit = (v + SCAN_BYTES(0x80 - '0')) & ~(v + SCAN_BYTES(0x80 - '9' - 1));
	uint64_t letter = (low + SCAN_BYTES(0x80 - 'a')) & ~(low + SCAN_BYTES(0x80 - 'f' - 1));
	if (((digit | letter) & SCAN_HIGH) != SCAN_HIGH)
		return false;
	v = (v & SCAN_BYTES(0x0f)) + ((letter & SCAN_HIGH) >> 7) * 9;
	v = __builtin_bswap64(v);
	v = (v | v >> 4) & 0x00ff00ff00ff00ffu;
	v = (v | v >> 8) & 0x0000ffff0000ffffu;
	*out = (v | v >> 16) & 0xffffffffu;
	return true;
}

static inline bool scan_hex16_plain(const char *s, uint64_t *out)
{
	uint64_t high, low;

	if (!scan_hex8(s, &high) || !scan_hex8(s + 8, &low))
		return false;
	*out = high << 32 | low;
	return true;
}

/* Sixteen hexadecimal digits: an address. */
#ifdef __SSE2__
static inline bool scan_hex16(const char *s, uint64_t *out)
{
	__m128i v = _mm_loadu_si128((const __m128i *)(const void *)s);
	__m128i digit = _mm_sub_epi8(v, _mm_set1_epi8('0'));
	__m128i letter = _mm_sub_epi8(_mm_or_si128(v, _mm_set1_epi8(0x20)), _mm_set1_epi8('a'));
	__m128i is_digit = _mm_cmpeq_epi8(_mm_min_epu8(digit, _mm_set1_epi8(9)), digit);
	__m128i is_letter = _mm_cmpeq_epi8(_mm_min_epu8(letter, _mm_set1_epi8(5)), letter);

	if (_mm_movemask_epi8(_mm_or_si128(is_digit, is_letter)) != 0xffff)
		return false;
	letter = _mm_and_si128(is_letter, _mm_add_epi8(letter, _mm_set1_epi8(10)));
	v = _mm_or_si128(_mm_and_si128(is_digit, digit), letter);
	/* a pair of digits is a byte, eight of them are the number */
	v = _mm_or_si128(_mm_slli_epi16(v, 4), _mm_srli_epi16(v, 8));
	v = _mm_and_si128(v, _mm_set1_epi16(0xff));
	*out = __builtin_bswap64((uint64_t)_mm_cvtsi128_si64(_mm_packus_epi16(v, v)));
	return true;
}
#else
static inline bool scan_hex16(const char *s, uint64_t *out)
{
	return scan_hex16_plain(s, out);
}
#endif

#endif
