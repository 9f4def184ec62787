/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "base/text/display_width.h"

#include <stdbool.h>
#include <stdint.h>

#include "base/text/text.h"

struct range {
	uint32_t from, to;
};

/* Two columns: scripts of East Asia, and pictures. */
static const struct range wide[] = {
	{0x1100, 0x115f},   {0x231a, 0x231b},	{0x23e9, 0x23ec},   {0x2e80, 0x303e},
	{0x3041, 0x4dbf},   {0x4e00, 0xa4cf},	{0xa960, 0xa97f},   {0xac00, 0xd7a3},
	{0xf900, 0xfaff},   {0xfe30, 0xfe6f},	{0xff00, 0xff60},   {0xffe0, 0xffe6},
	{0x1f300, 0x1f64f}, {0x1f680, 0x1f6ff}, {0x1f900, 0x1f9ff}, {0x20000, 0x3fffd}};

/* None: marks that go with the character before, and joiners. */
static const struct range none[] = {
	{0x0300, 0x036f}, {0x0483, 0x0489}, {0x0591, 0x05bd}, {0x064b, 0x065f},
	{0x0e31, 0x0e31}, {0x0e34, 0x0e3a}, {0x0e47, 0x0e4e}, {0x1ab0, 0x1aff},
	{0x1dc0, 0x1dff}, {0x200b, 0x200f}, {0x2060, 0x2060}, {0x20d0, 0x20ff},
	{0xfe00, 0xfe0f}, {0xfe20, 0xfe2f}, {0xfeff, 0xfeff}, {0xe0100, 0xe01ef}};

#define INDENT 2u /* of lines that go on with a sentence */
#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static bool is_in(const struct range *ranges, size_t n, uint32_t c)
{
	for (size_t i = 0; i < n; i++)
		if (c >= ranges[i].from && c <= ranges[i].to)
			return true;
	return false;
}

/* The character at text and its bytes. A byte that is no UTF-8 is a character of its own. */
static uint32_t take_char(const char *text, size_t len, size_t *out_bytes)
{
	const unsigned char *p = (const unsigned char *)text;
	size_t n = text_sequence_len(text, len);
	uint32_t c = n > 1 ? p[0] & (0x7fu >> n) : p[0];

	for (size_t i = 1; i < n; i++)
		c = c << 6 | (p[i] & 0x3f);
	*out_bytes = n ? n : 1;
	return c;
}

size_t text_fit_columns(const char *text, size_t len, unsigned width, unsigned *out_columns)
{
	unsigned columns = 0;
	size_t at = 0, bytes;

	for (; at < len; at += bytes) {
		uint32_t c = take_char(text + at, len - at, &bytes);
		unsigned more = c < 0x300		      ? 1
				: is_in(wide, COUNT(wide), c) ? 2
				: is_in(none, COUNT(none), c) ? 0
							      : 1;

		if (width && columns + more > width)
			break;
		columns += more;
	}
	*out_columns = columns;
	return at;
}

/* Bytes of the next line. */
static size_t line_of(const char *text, size_t len, unsigned width)
{
	unsigned columns;
	size_t fit = text_fit_columns(text, len, width, &columns), bytes;

	if (fit == len)
		return len;
	for (size_t at = fit + 1; at-- > 1;) /* the sign stays with its number */
		if (text[at] == ' ' && (at + 1 == len || text[at + 1] != '%'))
			return at;
	if (!fit) /* a character that is wider than all there is */
		take_char(text, len, &bytes);
	return fit ? fit : bytes;
}

void text_add_wrapped(struct buf *out, const char *text, size_t len, unsigned width,
		      const char *before, const char *behind)
{
	unsigned indent = 0;

	do {
		size_t n = line_of(text, len, width - indent);

		buf_addf(out, "%s%*s%.*s%s\n", before, (int)indent, "", (int)n, text, behind);
		text += n;
		len -= n;
		while (len && *text == ' ') {
			text++;
			len--;
		}
		indent = width > 3 * INDENT ? INDENT : 0;
	} while (len);
}

static bool is_obeyed(uint32_t c)
{
	return (c >= 0x7f && c < 0xa0) || (c >= 0x2028 && c <= 0x202e) ||
	       (c >= 0x2066 && c <= 0x2069);
}

void text_add_terminal_json(struct buf *out, const char *json, size_t len)
{
	size_t bytes;

	for (size_t at = 0; at < len; at += bytes) {
		uint32_t c = take_char(json + at, len - at, &bytes);

		if (c < ' ') /* blank space between values: inside of texts it stands escaped */
			buf_add_char(out, ' ');
		else if (is_obeyed(c))
			buf_addf(out, "\\u%04x", c);
		else
			buf_add(out, json + at, bytes);
	}
}
