/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Words of a command line by themselves: numbers, sizes, lists, and what was nearly typed. */
#include "base/text/args.h"

#include <ctype.h>

bool args_size(const char *s, uint64_t *out_bytes)
{
	static const char units[] = "kmgt";
	double v = 0, place = 1, factor = 1;
	const char *c = s;

	for (; *c >= '0' && *c <= '9'; c++)
		v = v * 10 + (*c - '0');
	if (c == s)
		return false;
	if (*c == '.')
		for (c++; *c >= '0' && *c <= '9'; c++)
			v += (*c - '0') * (place /= 10);
	const char *unit = *c ? strchr(units, *c | 32) : NULL;
	if (unit) {
		c++;
		for (long i = 0; i <= unit - units; i++)
			factor *= (*c | 32) == 'b' ? 1000 : 1024;
		if ((c[0] | 32) == 'i' && (c[1] | 32) == 'b')
			c++;
	}
	if ((*c | 32) == 'b')
		c++;
	if (*c || v * factor >= 1.8e19)
		return false;
	*out_bytes = (uint64_t)(v * factor);
	return true;
}

bool args_number(const char *s, size_t len, unsigned min, unsigned max, unsigned *out_n)
{
	unsigned long long n = 0;

	if (len == 0 || len > 10 || (len > 1 && s[0] == '0'))
		return false;
	for (size_t i = 0; i < len; i++) {
		if (s[i] < '0' || s[i] > '9')
			return false;
		n = n * 10 + (unsigned long long)(s[i] - '0');
	}
	if (n < min || n > max)
		return false;
	*out_n = (unsigned)n;
	return true;
}

void args_list_choices(const char *const *choices, struct buf *out)
{
	for (int i = 0; choices[i]; i++) {
		if (i)
			buf_add_str(out, choices[i + 1] ? ", " : " or ");
		buf_add_str(out, choices[i]);
	}
}

static bool same_letter(char a, char b)
{
	return tolower((unsigned char)a) == tolower((unsigned char)b);
}

/* One of the words that a name is put together from, such as `kind` of `activity-kind`. */
static bool is_part(const char *word, size_t len, const char *name)
{
	for (const char *at = strchr(name, '-'); at; at = strchr(at + 1, '-'))
		if (!strncmp(at + 1, word, len) && (!at[len + 1] || at[len + 1] == '-'))
			return true;
	return false;
}

/* Edit distance with neighbour swaps; both words are short, longer ones are far by definition. */
static unsigned distance(const char *a, size_t la, const char *b, size_t lb)
{
	enum { MAX = 32 };
	unsigned char d[MAX + 1][MAX + 1];

	if (la > MAX || lb > MAX)
		return MAX;
	for (size_t i = 0; i <= la; i++)
		d[i][0] = (unsigned char)i;
	for (size_t j = 0; j <= lb; j++)
		d[0][j] = (unsigned char)j;
	for (size_t i = 1; i <= la; i++) {
		for (size_t j = 1; j <= lb; j++) {
			unsigned best = d[i - 1][j - 1] + !same_letter(a[i - 1], b[j - 1]);

			if (d[i - 1][j] + 1u < best)
				best = d[i - 1][j] + 1u;
			if (d[i][j - 1] + 1u < best)
				best = d[i][j - 1] + 1u;
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
			    d[i - 2][j - 2] + 1u < best)
				best = d[i - 2][j - 2] + 1u;
			d[i][j] = (unsigned char)best;
		}
	}
	return d[la][lb];
}

const char *args_nearest(const char *word, size_t len, const char *const *names)
{
	const char *found = NULL;
	unsigned least = 1 + (unsigned)len / 3;

	if (len < 2)
		return NULL;
	for (int i = 0; names[i]; i++) {
		unsigned d = distance(word, len, names[i], strlen(names[i]));

		/* A word cut off or written on, such as `leak` for `leaks`. */
		if (d > 1 && (!strncmp(word, names[i], len) || is_part(word, len, names[i])))
			d = 1;
		if (d <= least && (!found || d < least)) {
			least = d;
			found = names[i];
		}
	}
	return found;
}
