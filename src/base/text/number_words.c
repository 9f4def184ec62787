/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "base/text/number_words.h"

#include <stdio.h>

#define NS_PER_S 1000000000u

void words_count(struct buf *out, uint64_t n)
{
	char digits[24];
	int len = snprintf(digits, sizeof(digits), "%llu", (unsigned long long)n);

	for (int i = 0; i < len; i++) {
		if (i && (len - i) % 3 == 0)
			buf_add_char(out, ',');
		buf_add_char(out, digits[i]);
	}
}

void words_bytes(struct buf *out, uint64_t bytes)
{
	static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	double v = (double)bytes / 1024;
	unsigned unit = 0;

	if (bytes < 1024) {
		buf_addf(out, "%u B", (unsigned)bytes);
		return;
	}
	for (; v >= 1023.995 && unit < 5; unit++)
		v /= 1024;
	buf_addf(out, "%.2f %s", v, units[unit]);
}

void words_time(struct buf *out, uint64_t ns)
{
	uint64_t s = ns / NS_PER_S;

	if (!ns)
		buf_add_str(out, "0 s");
	else if (ns < 1000)
		buf_addf(out, "%u ns", (unsigned)ns);
	else if (ns < 999950)
		buf_addf(out, "%.1f us", (double)ns / 1e3);
	else if (ns < 999950000)
		buf_addf(out, "%.1f ms", (double)ns / 1e6);
	else if (s < 120)
		buf_addf(out, "%.1f s", (double)ns / 1e9);
	else if (s < 7200)
		buf_addf(out, "%u min %02u s", (unsigned)(s / 60), (unsigned)(s % 60));
	else
		buf_addf(out, "%llu h %02u min", (unsigned long long)(s / 3600),
			 (unsigned)(s / 60 % 60));
}

void words_of(struct buf *out, uint64_t n, const char *noun)
{
	words_count(out, n);
	buf_addf(out, n == 1 ? " %s" : " %ss", noun);
}
