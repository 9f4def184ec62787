/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "activity/files/line.h"

#include <string.h>

#define MAX_DEPTH 16

static void skip_blanks(struct line *l)
{
	while (l->p < l->end && (*l->p == ' ' || *l->p == '\t' || *l->p == '\r'))
		l->p++;
}

static bool take(struct line *l, char c)
{
	skip_blanks(l);
	if (l->p == l->end || *l->p != c)
		return false;
	l->p++;
	return true;
}

static int hex4(const char *p)
{
	int v = 0;

	for (int i = 0; i < 4; i++) {
		int d = p[i] >= '0' && p[i] <= '9'   ? p[i] - '0'
			: p[i] >= 'a' && p[i] <= 'f' ? p[i] - 'a' + 10
			: p[i] >= 'A' && p[i] <= 'F' ? p[i] - 'A' + 10
						     : -1;

		if (d < 0)
			return -1;
		v = v << 4 | d;
	}
	return v;
}

static bool take_text(struct line *l, const char **out, size_t *out_len, bool *out_escaped)
{
	*out_escaped = false;
	if (!take(l, '"'))
		return false;
	*out = l->p;
	for (; l->p < l->end && *l->p != '"'; l->p++) {
		if ((unsigned char)*l->p < 0x20)
			return false;
		if (*l->p != '\\')
			continue;
		*out_escaped = true;
		if (++l->p == l->end || !strchr("\"\\/bfnrtu", *l->p) || !*l->p)
			return false;
		if (*l->p == 'u' && (l->end - l->p < 5 || hex4(l->p + 1) < 0))
			return false;
	}
	if (l->p == l->end)
		return false;
	*out_len = (size_t)(l->p - *out);
	l->p++;
	return true;
}

static bool take_digits(struct line *l, uint64_t *out)
{
	const char *start = l->p;
	uint64_t v = 0;

	for (; l->p < l->end && *l->p >= '0' && *l->p <= '9'; l->p++)
		if (__builtin_mul_overflow(v, 10, &v) ||
		    __builtin_add_overflow(v, (uint64_t)(*l->p - '0'), &v))
			return false;
	*out = v;
	return l->p > start && (*start != '0' || l->p == start + 1);
}

static bool take_word(struct line *l, const char *word)
{
	size_t n = strlen(word);

	if ((size_t)(l->end - l->p) < n || memcmp(l->p, word, n))
		return false;
	l->p += n;
	return true;
}

/* Fractions and exponents are nothing that we know; they are passed over. */
static bool take_rest_of_number(struct line *l, struct member *m)
{
	uint64_t unused;

	if (l->p < l->end && *l->p == '.') {
		m->type = VALUE_OTHER;
		l->p++;
		if (l->p == l->end || *l->p < '0' || *l->p > '9')
			return false;
		while (l->p < l->end && *l->p >= '0' && *l->p <= '9')
			l->p++;
	}
	if (l->p < l->end && (*l->p == 'e' || *l->p == 'E')) {
		m->type = VALUE_OTHER;
		l->p++;
		if (l->p < l->end && (*l->p == '+' || *l->p == '-'))
			l->p++;
		while (l->p < l->end && *l->p == '0')
			l->p++;
		if (l->p < l->end && *l->p >= '0' && *l->p <= '9' && !take_digits(l, &unused))
			return false;
	}
	return true;
}

static bool take_value(struct line *l, struct member *m, unsigned depth);

/* An array or an object: nothing in it matters. */
static bool take_nested(struct line *l, unsigned depth)
{
	bool object = *l->p++ == '{';
	char close = object ? '}' : ']';
	struct member unused;

	if (depth == MAX_DEPTH)
		return false;
	if (take(l, close))
		return true;
	do {
		if (object && (!take_text(l, &unused.text, &unused.text_len, &unused.escaped) ||
			       !take(l, ':')))
			return false;
		if (!take_value(l, &unused, depth + 1))
			return false;
	} while (take(l, ','));
	return take(l, close);
}

static bool take_value(struct line *l, struct member *m, unsigned depth)
{
	skip_blanks(l);
	if (l->p == l->end)
		return false;
	switch (*l->p) {
	case '"':
		m->type = VALUE_TEXT;
		return take_text(l, &m->text, &m->text_len, &m->escaped);
	case '{':
	case '[':
		m->type = VALUE_OTHER;
		return take_nested(l, depth);
	case 't':
		m->type = VALUE_BOOL;
		m->number = 1;
		return take_word(l, "true");
	case 'f':
		m->type = VALUE_BOOL;
		m->number = 0;
		return take_word(l, "false");
	case 'n':
		m->type = VALUE_OTHER;
		return take_word(l, "null");
	default:
		m->type = *l->p == '-' ? VALUE_NEGATIVE : VALUE_NUMBER;
		l->p += *l->p == '-';
		return take_digits(l, &m->number) && take_rest_of_number(l, m);
	}
}

bool line_parse(struct line *l, const char *text, size_t len)
{
	struct member unused;
	bool escaped;

	l->p = text;
	l->end = text + len;
	l->n = 0;
	if (!take(l, '{'))
		return false;
	if (!take(l, '}')) {
		do {
			struct member *m = l->n < LINE_MAX_MEMBERS ? &l->members[l->n++] : &unused;

			if (!take_text(l, &m->key, &m->key_len, &escaped) || !take(l, ':') ||
			    !take_value(l, m, 1))
				return false;
		} while (take(l, ','));
		if (!take(l, '}'))
			return false;
	}
	skip_blanks(l);
	return l->p == l->end;
}

const struct member *line_find(const struct line *l, const char *key)
{
	size_t n = strlen(key);

	for (unsigned i = 0; i < l->n; i++)
		if (l->members[i].key_len == n && !memcmp(l->members[i].key, key, n))
			return &l->members[i];
	return NULL;
}

static void add_utf8(struct buf *b, uint32_t c)
{
	if (c >= 0xd800 && c < 0xe000)
		c = 0xfffd;
	if (c < 0x80) {
		buf_add_char(b, (char)c);
	} else if (c < 0x800) {
		buf_add_char(b, (char)(0xc0 | c >> 6));
		buf_add_char(b, (char)(0x80 | (c & 0x3f)));
	} else if (c < 0x10000) {
		buf_add_char(b, (char)(0xe0 | c >> 12));
		buf_add_char(b, (char)(0x80 | (c >> 6 & 0x3f)));
		buf_add_char(b, (char)(0x80 | (c & 0x3f)));
	} else {
		buf_add_char(b, (char)(0xf0 | c >> 18));
		buf_add_char(b, (char)(0x80 | (c >> 12 & 0x3f)));
		buf_add_char(b, (char)(0x80 | (c >> 6 & 0x3f)));
		buf_add_char(b, (char)(0x80 | (c & 0x3f)));
	}
}

/* An escape that take_text() has found well formed; p is behind the backslash. Returns its end. */
static const char *unescape(struct buf *b, const char *p, const char *end)
{
	static const char names[] = "\"\\/bfnrt", means[] = "\"\\/\b\f\n\r\t";

	if (*p != 'u') {
		buf_add_char(b, means[strchr(names, *p) - names]);
		return p + 1;
	}
	uint32_t c = (uint32_t)hex4(p + 1);
	p += 5;
	if (c >= 0xd800 && c < 0xdc00 && end - p >= 6 && p[0] == '\\' && p[1] == 'u') {
		int low = hex4(p + 2);

		if (low >= 0xdc00 && low < 0xe000) {
			c = 0x10000 + ((c - 0xd800) << 10) + (uint32_t)(low - 0xdc00);
			p += 6;
		}
	}
	add_utf8(b, c);
	return p;
}

const char *line_text(const struct member *m, struct buf *scratch, size_t *out_len)
{
	*out_len = m->text_len;
	if (!m->escaped)
		return m->text;
	buf_clear(scratch);
	for (const char *p = m->text, *end = p + m->text_len; p < end;) {
		if (*p == '\\')
			p = unescape(scratch, p + 1, end);
		else
			buf_add_char(scratch, *p++);
	}
	*out_len = scratch->len;
	return scratch->len ? scratch->data : "";
}
