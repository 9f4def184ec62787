/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "unwind/remote/find/maps.h"

#include <string.h>

#define DELETED " (deleted)"
#define DELETED_LEN (sizeof(DELETED) - 1)

struct line {
	const char *at, *end;
};

/* A hexadecimal (or decimal) number and the character behind it. */
static bool take_number(struct line *l, unsigned base, char behind, uint64_t *out)
{
	const char *first = l->at;
	uint64_t v = 0;

	for (; l->at < l->end; l->at++) {
		char c = *l->at;
		unsigned digit = c >= '0' && c <= '9'	? (unsigned)(c - '0')
				 : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a') + 10
							: 99;

		if (digit >= base)
			break;
		if (__builtin_mul_overflow(v, base, &v) || __builtin_add_overflow(v, digit, &v))
			return false;
	}
	if (l->at == first || l->at >= l->end || *l->at != behind)
		return false;
	l->at++;
	*out = v;
	return true;
}

static bool take_modes(struct line *l, struct map_line *out)
{
	if (l->end - l->at < 5 || l->at[4] != ' ')
		return false;
	out->readable = l->at[0] == 'r';
	out->writable = l->at[1] == 'w';
	out->executable = l->at[2] == 'x';
	l->at += 5;
	return true;
}

static void take_path(struct line *l, struct map_line *out)
{
	while (l->at < l->end && *l->at == ' ')
		l->at++;
	out->path = l->at;
	out->path_len = (size_t)(l->end - l->at);
	out->deleted = out->path_len > DELETED_LEN &&
		       memcmp(l->end - DELETED_LEN, DELETED, DELETED_LEN) == 0;
	if (out->deleted)
		out->path_len -= DELETED_LEN;
}

static bool read_line(struct line *l, struct map_line *out)
{
	uint64_t major, minor;

	if (!take_number(l, 16, '-', &out->start) || !take_number(l, 16, ' ', &out->end) ||
	    !take_modes(l, out) || !take_number(l, 16, ' ', &out->offset) ||
	    !take_number(l, 16, ':', &major) || !take_number(l, 16, ' ', &minor) ||
	    !take_number(l, 10, ' ', &out->inode))
		return false;
	out->device = major << 32 | (minor & 0xffffffff);
	take_path(l, out);
	return out->start < out->end;
}

bool maps_next(const char **at, const char *end, struct map_line *out)
{
	while (*at < end) {
		const char *newline = memchr(*at, '\n', (size_t)(end - *at));
		struct line l = {.at = *at, .end = newline ? newline : end};

		*at = newline ? newline + 1 : end;
		if (read_line(&l, out))
			return true;
	}
	return false;
}
