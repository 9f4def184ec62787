/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "base/text/number_read.h"

bool number_read(const char *text, size_t len, int64_t *out)
{
	bool negative = len && *text == '-';
	size_t i = len && (*text == '-' || *text == '+');
	int64_t n = 0;

	if (i == len)
		return false;
	for (; i < len; i++) {
		int digit = text[i] - '0';

		/* counted below zero, where there is one number more */
		if (digit < 0 || digit > 9 || __builtin_mul_overflow(n, 10, &n) ||
		    __builtin_sub_overflow(n, digit, &n))
			return false;
	}
	if (!negative && n == INT64_MIN)
		return false;
	*out = negative ? n : -n;
	return true;
}
