/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "formats/json_value.h"

#include "base/text/text.h"

#include <stdint.h>
#include <string.h>

json_t *text_value(const char *text, size_t len)
{
	struct buf scratch = {0};
	const char *clean = text_clean(text, &len, &scratch);
	json_t *v = json_stringn_nocheck(clean ? clean : "", len);

	buf_release(&scratch);
	return v;
}

json_t *lines_value(const struct buf *text)
{
	json_t *list = json_array();
	size_t len;

	for (size_t at = 0; at < text->len; at += len + 1) {
		const char *line = text->data + at;
		const char *end = memchr(line, '\n', text->len - at);

		len = end ? (size_t)(end - line) : text->len - at;
		json_array_append_new(list, text_value(line, len));
	}
	return list;
}

static json_t *number(uint64_t v)
{
	return json_integer(v > INT64_MAX ? INT64_MAX : (json_int_t)v);
}

void put_number(json_t *o, const char *key, uint64_t v)
{
	json_object_set_new(o, key, number(v));
}

void put_known(json_t *o, const char *key, bool known, uint64_t v)
{
	json_object_set_new(o, key, known ? number(v) : json_null());
}

void put_bool(json_t *o, const char *key, bool v)
{
	json_object_set_new(o, key, json_boolean(v));
}

void put_text(json_t *o, const char *key, const char *text)
{
	json_object_set_new(o, key, text ? text_value(text, strlen(text)) : json_null());
}

void put_address(json_t *o, const char *key, uint64_t v)
{
	char text[PUT_ADDR_LEN];

	json_object_set_new(o, key, json_stringn(text, (size_t)(put_addr(text, v) - text)));
}

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

void json_text_add_cut(struct buf *out, const char *text, size_t max, struct buf *scratch)
{
	char *p = buf_room(out, JSON_TEXT_ROOM(max));

	out->len += (size_t)(put_json_text(p, text, max, scratch) - p);
}
