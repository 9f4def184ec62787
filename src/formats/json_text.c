/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "formats/json_text.h"

#include <stdint.h>
#include <string.h>

#include "base/text/text.h"

#define BYTES(b) (0x0101010101010101u * (b))

/* Whether one of eight bytes is a quote, a backslash or below a blank. A byte above 127 may be
 * taken for one: harmless. */
static int needs_escape(uint64_t v)
{
	uint64_t quote = v ^ BYTES('"'), slash = v ^ BYTES('\\');
	uint64_t found = (v - BYTES(0x20)) | (quote - BYTES(1)) | (slash - BYTES(1));

	return (found & ~v & BYTES(0x80)) != 0;
}

/* A character below 128; what is longer goes through byte by byte. */
static char *put_char(char *p, unsigned char c)
{
	static const char short_names[32] = {
		['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f', ['\r'] = 'r'};

	if (c >= 0x20 && c != '"' && c != '\\') {
		*p++ = (char)c;
		return p;
	}
	*p++ = '\\';
	if (c >= 0x20 || short_names[c]) {
		*p++ = c >= 0x20 ? (char)c : short_names[c];
		return p;
	}
	p = put_bytes(p, "u00", 3);
	*p++ = (char)('0' + (c >> 4));
	*p++ = "0123456789abcdef"[c & 15];
	return p;
}

/* Clean text; returns how many of its bytes went in before `end` (which may be passed by 7). */
static size_t put_escaped(char **out, const char *end, const char *s, size_t n)
{
	char *p = *out;
	size_t i = 0;

	while (i < n && p < end) {
		uint64_t v;

		if (i + 8 <= n && p + 8 <= end) {
			memcpy(&v, s + i, 8);
			if (!needs_escape(v)) {
				memcpy(p, &v, 8);
				p += 8;
				i += 8;
				continue;
			}
		}
		p = put_char(p, (unsigned char)s[i++]);
	}
	*out = p;
	return i;
}

/* Goes back to before the last character that is not a piece of an escape, so that "…" can follow.
 */
static char *cut_back(const char *start, char *p)
{
	while (p > start && ((unsigned char)p[-1] & 0xc0) == 0x80)
		p--;
	if (p > start && (unsigned char)p[-1] >= 0xc0)
		p--;
	return p;
}

char *put_json_text(char *p, const char *text, size_t max, struct buf *scratch)
{
	size_t len = strnlen(text, max + 4); /* never ends inside of what is shown */
	const char *s = text_clean(text, &len, scratch);

	*p++ = '"';
	char *start = p;
	if (put_escaped(&p, start + max, s, len) < len) {
		p = cut_back(start, p);
		p = put_bytes(p, "…", sizeof("…") - 1);
	}
	*p++ = '"';
	return p;
}

void json_text_add(struct buf *out, const char *text, struct buf *scratch)
{
	size_t len = strlen(text);
	const char *s = text_clean(text, &len, scratch);
	char *p = buf_room(out, 6 * len + JSON_TEXT_ROOM(0));
	char *start = p;

	*p++ = '"';
	put_escaped(&p, p + 6 * len, s, len);
	*p++ = '"';
	out->len += (size_t)(p - start);
}
