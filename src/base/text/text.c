/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "base/text/text.h"

#include <stdbool.h>

/* Bytes up to the first that is not plain ASCII other than NUL. */
static size_t plain_len(const char *s, size_t n)
{
	const uint64_t high = 0x8080808080808080, ones = 0x0101010101010101;
	size_t i = 0;

	for (; i + 8 <= n; i += 8) {
		uint64_t v;

		memcpy(&v, s + i, 8);
		/* v - ones borrows into the top bit of a zero byte; false alarms are harmless */
		if ((v | (v - ones)) & high)
			break;
	}
	while (i < n && s[i] > 0)
		i++;
	return i;
}

size_t text_sequence_len(const char *text, size_t n)
{
	const unsigned char *s = (const unsigned char *)text;
	unsigned char lo = 0x80, hi = 0xbf;
	size_t len;

	if (s[0] < 0x80)
		return s[0] != 0;
	if (s[0] < 0xc2 || s[0] > 0xf4)
		return 0;
	len = s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
	if (n < len)
		return 0;
	if (s[0] == 0xe0)
		lo = 0xa0;
	else if (s[0] == 0xed)
		hi = 0x9f;
	else if (s[0] == 0xf0)
		lo = 0x90;
	else if (s[0] == 0xf4)
		hi = 0x8f;
	if (s[1] < lo || s[1] > hi)
		return 0;
	for (size_t i = 2; i < len; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	return len;
}

static size_t good_len(const char *s, size_t n)
{
	size_t i = plain_len(s, n);

	while (i < n) {
		size_t len = text_sequence_len(s + i, n - i);

		if (!len)
			break;
		i += len;
		i += plain_len(s + i, n - i);
	}
	return i;
}

const char *text_clean(const char *s, size_t *len, struct buf *scratch)
{
	size_t n = *len;
	size_t good = good_len(s, n);

	if (good == n)
		return s;
	buf_clear(scratch);
	buf_room(scratch, n);
	for (size_t at = 0;;) {
		buf_add(scratch, s + at, good);
		at += good;
		if (at == n)
			break;
		if (s[at])
			buf_add(scratch, "\xef\xbf\xbd", 3);
		at++;
		good = good_len(s + at, n - at);
	}
	*len = scratch->len;
	return scratch->data;
}

static const char pairs[200] = "0001020304050607080910111213141516171819"
			       "2021222324252627282930313233343536373839"
			       "4041424344454647484950515253545556575859"
			       "6061626364656667686970717273747576777879"
			       "8081828384858687888990919293949596979899";

static unsigned digits(uint64_t v)
{
	static const uint64_t tens[20] = {0,
					  10,
					  100,
					  1000,
					  10000,
					  100000,
					  1000000,
					  10000000,
					  100000000,
					  1000000000,
					  10000000000,
					  100000000000,
					  1000000000000,
					  10000000000000,
					  100000000000000,
					  1000000000000000,
					  10000000000000000,
					  100000000000000000,
					  1000000000000000000,
					  10000000000000000000u};
	unsigned bits = 64 - (unsigned)__builtin_clzll(v | 1);
	unsigned guess = bits * 1233 >> 12; /* log10(2) in 4096ths */

	return guess + 1 - (v < tens[guess]);
}

char *put_u64(char *p, uint64_t v)
{
	unsigned n = digits(v);
	char *at = p + n;

	while (v >= 100) {
		at -= 2;
		memcpy(at, pairs + v % 100 * 2, 2);
		v /= 100;
	}
	if (v >= 10)
		memcpy(p, pairs + v * 2, 2);
	else
		*p = (char)('0' + v);
	return p + n;
}

/* The eight digits of a half, in memory order: one nibble per byte, then all to ASCII at once. */
static uint64_t hex_digits(uint32_t half)
{
	uint64_t x = half;

	x = (x << 16 | x) & 0x0000ffff0000ffff;
	x = (x << 8 | x) & 0x00ff00ff00ff00ff;
	x = (x << 4 | x) & 0x0f0f0f0f0f0f0f0f;
	uint64_t letters = (x + 0x0606060606060606) >> 4 & 0x0101010101010101;
	x += 0x3030303030303030 + letters * ('a' - '9' - 1);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	x = __builtin_bswap64(x);
#endif
	return x;
}

char *put_addr(char *p, uint64_t v)
{
	uint64_t high = hex_digits((uint32_t)(v >> 32)), low = hex_digits((uint32_t)v);

	memcpy(p, "0x", 2);
	memcpy(p + 2, &high, 8);
	memcpy(p + 10, &low, 8);
	return p + PUT_ADDR_LEN;
}
