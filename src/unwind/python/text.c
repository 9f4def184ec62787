/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A str lies in memory in one of three shapes (PEP 393):
 *
 *	compact ASCII	PyASCIIObject | bytes
 *	compact		PyCompactUnicodeObject | characters of 1, 2 or 4 bytes
 *	legacy		PyUnicodeObject -> pointer to the characters (to 3.11)
 *
 * `state` is a bit field: kind (1, 2, 4), compact, ascii. Where its bits are depends on the version
 * and on how the interpreter was built, so the layout has them.
 */
#include "unwind/python/text.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#define REPLACEMENT 0xfffd
#define LENGTH_MAX ((int64_t)1 << 31) /* longer ones are taken for garbage */
#define HEADER_MAX 128

struct text {
	uint64_t data; /* address of the first character */
	uint64_t length; /* characters */
	unsigned kind; /* bytes of each */
	bool ascii;
};

/* Reads no more than an empty ASCII str has: that may be the last object before an unmapped
 * page. */
static int text_open(const struct python_reader *r, const struct python_layout *l, uint64_t addr,
		     struct text *t)
{
	unsigned char head[HEADER_MAX];
	int64_t length;
	uint32_t state;

	if (l->text.ascii_data > sizeof(head) || l->text.length > l->text.ascii_data - 8 ||
	    l->text.state > l->text.ascii_data - 4)
		return -EPROTO;
	int got = python_read(r, addr, head, l->text.ascii_data);
	if (got < 0)
		return got;
	memcpy(&length, head + l->text.length, sizeof(length));
	memcpy(&state, head + l->text.state, sizeof(state));

	t->kind = state >> l->text.kind_shift & 7;
	t->ascii = state >> l->text.ascii_bit & 1;
	if (length < 0 || length > LENGTH_MAX || (t->kind != 1 && t->kind != 2 && t->kind != 4) ||
	    (t->ascii && t->kind != 1))
		return -EPROTO;
	t->length = (uint64_t)length;
	if (!(state >> l->text.compact_bit & 1))
		return python_read_word(r, addr + l->text.data, &t->data);
	t->data = addr + (t->ascii ? l->text.ascii_data : l->text.compact_data);
	return 0;
}

/*
 * One character as UTF-8; its bytes, or 0 if there is no room.
 *
 * By hand: the C library's conversion depends on the locale, and this runs inside of jobs.
 */
static size_t put_utf8(char *out, size_t room, uint32_t c)
{
	unsigned char b[4];
	size_t n;

	if (c < 0x80) {
		b[0] = (unsigned char)c;
		n = 1;
	} else if (c < 0x800) {
		b[0] = (unsigned char)(0xc0 | c >> 6);
		n = 2;
	} else if (c < 0x10000) {
		b[0] = (unsigned char)(0xe0 | c >> 12);
		n = 3;
	} else {
		b[0] = (unsigned char)(0xf0 | c >> 18);
		n = 4;
	}
	for (size_t i = 1; i < n; i++)
		b[i] = (unsigned char)(0x80 | (c >> 6 * (n - 1 - i) & 0x3f));
	if (n > room)
		return 0;
	memcpy(out, b, n);
	return n;
}

/* NUL would end the text for C, a lone surrogate is no UTF-8: both are shown as U+FFFD. */
static uint32_t read_character(const unsigned char *at, unsigned kind)
{
	uint32_t c = 0;

	memcpy(&c, at, kind); /* little endian */
	return c == 0 || (c >= 0xd800 && c <= 0xdfff) ? REPLACEMENT : c;
}

/* In pieces of 512 bytes, so that a text of any length needs no heap. A character of a str that
 * says it is ASCII and is not, or above U+10FFFF, shows that there is no str at this address. */
ssize_t python_text(const struct python_reader *r, const struct python_layout *l, uint64_t addr,
		    char *out, size_t cap)
{
	unsigned char piece[512];
	struct text t;
	size_t used = 0;

	if (cap == 0)
		return -EINVAL;
	int got = text_open(r, l, addr, &t);
	if (got < 0)
		return got;
	if (t.length > cap - 1)
		t.length = cap - 1; /* every character is at least one byte */

	for (uint64_t done = 0; done < t.length;) {
		size_t n = sizeof(piece) / t.kind;

		if (n > t.length - done)
			n = t.length - done;
		got = python_read(r, t.data + done * t.kind, piece, n * t.kind);
		if (got < 0)
			return got;
		for (size_t i = 0; i < n; i++) {
			uint32_t c = read_character(piece + i * t.kind, t.kind);
			size_t put = put_utf8(out + used, cap - 1 - used, c);

			if (c > 0x10ffff || (t.ascii && c != REPLACEMENT && c > 0x7f))
				return -EPROTO;
			if (!put)
				goto full;
			used += put;
		}
		done += n;
	}
full:
	out[used] = '\0';
	return (ssize_t)used;
}

uint64_t python_text_mark(const struct python_reader *r, const struct python_layout *l,
			  uint64_t addr)
{
	uint64_t end = 0;
	struct text t;

	if (text_open(r, l, addr, &t) < 0)
		return 0;
	uint64_t bytes = t.length * t.kind, n = bytes < 8 ? bytes : 8;
	if (n && python_read(r, t.data + bytes - n, &end, n) < 0)
		return 0;
	uint64_t mark =
		(addr ^ t.length << 48 ^ end * 0x9e3779b97f4a7c15ull) * 0xff51afd7ed558ccdull;
	return mark ? mark : 1;
}

ssize_t python_bytes(const struct python_reader *r, const struct python_layout *l, uint64_t addr,
		     void *out, size_t cap)
{
	uint64_t length;
	int got = python_read_word(r, addr + l->object.var_size, &length);

	if (got < 0)
		return got;
	if (length > (uint64_t)LENGTH_MAX)
		return -EPROTO;
	if (cap > length)
		cap = length;
	if (cap) {
		got = python_read(r, addr + l->object.bytes_data, out, cap);
		if (got < 0)
			return got;
	}
	return (ssize_t)length;
}
