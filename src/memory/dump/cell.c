/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/dump/cell.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#include "base/text/text.h"
#include "memory/dump/scan.h"

unsigned words_learn(struct words *words, struct words_known *place, const char *text, size_t len)
{
	memset(place->text, 0, sizeof(place->text));
	for (size_t at = 0; at < len; at += 8)
		place->text[at / 8] = words_part(text + at, len - at);
	place->len = (uint32_t)len;
	place->answer = words->find(text, len);
	return place->answer;
}

enum cell_column cell_column_find(const char *name, size_t len)
{
	const char *at = CELL_COLUMNS;

	for (unsigned i = 0; i < COL_END; i++) {
		size_t n = strcspn(at, ",");

		if (n == len && !strncasecmp(at, name, n))
			return (enum cell_column)i;
		at += n + 1;
	}
	return COL_END;
}

const char *cell_name(const struct row *row, size_t *out_len)
{
	if (!row->name) {
		*out_len = 3;
		return "N/A";
	}
	*out_len = row->name_len;
	/* Free text of the job: a spreadsheet takes it for a formula. */
	if (row->event == ROW_MSTX && row->name_len && memchr("=+-@", row->name[0], 4))
		*out_len = 0;
	return row->name;
}

static bool is_letter(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

/* Length of the key at p, 0 where there is none. */
static size_t key_len(const char *p, const char *end)
{
	const char *q = p;

	if (p == end || !is_letter(*p))
		return 0;
	while (q < end && (is_letter(*q) || (*q >= '0' && *q <= '9') || *q == ' '))
		q++;
	return q < end && *q == ':' ? (size_t)(q - p) : 0;
}

bool cell_is_key(const char *p, const char *end)
{
	return p < end && key_len(p, end);
}

bool cell_next_pair(const char **at, const char *end, struct pair *out)
{
	const char *p = *at;

	if (p >= end)
		return false;
	out->key = p;
	out->key_len = key_len(p, end);
	out->value = p + (out->key_len ? out->key_len + 1 : 0);
	for (p = out->value; p < end; p++) {
		p = memchr(p, ',', (size_t)(end - p));
		if (!p)
			p = end;
		if (p == end || key_len(p + 1, end))
			break;
	}
	out->value_len = (size_t)(p - out->value);
	*at = p < end ? p + 1 : end;
	return true;
}

bool cell_is_room(const char *pair, size_t len)
{
	size_t at = strlen(CELL_ROOM);

	if (len <= at || memcmp(pair, CELL_ROOM, at) != 0)
		return false;
	while (at < len && pair[at] == ' ')
		at++;
	return at == len;
}

bool cell_read_u64(const char *s, size_t n, uint64_t *out)
{
	uint64_t v = 0;

	if (!n || n > 20)
		return false;
	for (size_t i = 0; i < n; i++) {
		if (s[i] < '0' || s[i] > '9' || __builtin_mul_overflow(v, 10, &v) ||
		    __builtin_add_overflow(v, (uint64_t)(s[i] - '0'), &v))
			return false;
	}
	*out = v;
	return true;
}

bool cell_read_hex(const char *s, size_t n, uint64_t *out)
{
	uint64_t v = 0;

	if (n < 3 || n > 18 || s[0] != '0' || (s[1] | 32) != 'x')
		return false;
	if (n == 18)
		return scan_hex16(s + 2, out);
	for (size_t i = 2; i < n; i++) {
		char c = (char)(s[i] | 32);

		if (c >= 'a' && c <= 'f')
			v = v << 4 | (uint64_t)(c - 'a' + 10);
		else if (s[i] >= '0' && s[i] <= '9')
			v = v << 4 | (uint64_t)(s[i] - '0');
		else
			return false;
	}
	*out = v;
	return true;
}

#define NOT_A_KEY ((unsigned)ATTR_KEY_END + 1)

/* The text is followed by its colon. */
static unsigned key_find(const char *text, size_t len)
{
	if (!len || key_len(text, text + len + 1) != len)
		return NOT_A_KEY;
	return attr_key_find(text, len);
}

void cell_keys_init(struct cell_keys *keys)
{
	memset(keys, 0, sizeof(*keys));
	keys->words.find = key_find;
	keys->wanted = UINT64_MAX;
}

/* A value that would be written back differently stays text, but for addresses. So does a name. */
static inline enum attr_kind read_value(enum attr_key key, const char *s, size_t n, uint64_t *out)
{
	if (!n || (unsigned char)(s[0] - '0') > 9 || key == ATTR_OWNER)
		return ATTR_TEXT;
	if ((s[0] != '0' || n == 1) && scan_u64(s, n, out))
		return ATTR_NUMBER;
	if ((n == PUT_ADDR_LEN || key == ATTR_ADDR || key == ATTR_PTR) && cell_read_hex(s, n, out))
		return ATTR_HEX;
	return ATTR_TEXT;
}

/* The short words of a 26.0 snapshot mean something else there. */
static unsigned snapshot_key(unsigned key)
{
	return key == ATTR_TOTAL ? ATTR_TOTAL_MEM : key == ATTR_FREE ? ATTR_FREE_MEM : key;
}

/* What has no key of its own, from `text` to `end`: neighbours become one. */
static void add_raw(struct row *row, const char *text, const char *end)
{
	struct attr *last = row->nattrs ? &row->attrs[row->nattrs - 1] : NULL;

	if (last && last->key == ATTR_RAW)
		last->text_len = (uint32_t)(end - last->text);
	else
		row_attr_text(row, ATTR_RAW, text, (size_t)(end - text));
}

_Static_assert(ATTR_KEY_END <= 64, "a bit each");

/*
 * Unknown keys (ATTR_KEY_END and above) become ATTR_RAW, and so does whatever comes when only the
 * last place is left: nothing is dropped but what nobody wants.
 */
static inline __attribute__((always_inline)) void add_pair(const struct cell_keys *keys,
							   struct row *row, unsigned key,
							   const char *name, const char *value,
							   const char *end)
{
	if (row->event == ROW_SNAPSHOT)
		key = snapshot_key(key);
	if (!(keys->wanted >> (key < ATTR_KEY_END ? key : ATTR_RAW) & 1))
		return;
	if (key >= ATTR_KEY_END && cell_is_room(name, (size_t)(end - name)))
		return;
	if (key >= ATTR_KEY_END || row->nattrs == ROW_MAX_ATTRS - 1 ||
	    row->nattrs == ROW_MAX_ATTRS) {
		add_raw(row, name, end);
		return;
	}
	struct attr *a = &row->attrs[row->nattrs++];
	a->key = (enum attr_key)key;
	a->text = value;
	a->text_len = (uint32_t)(end - value);
	uint64_t number = 0;
	a->kind = read_value(a->key, value, a->text_len, &number);
	a->number = number;
}

/*
 * A colon ends a key if the comma, colon or brace before it is no colon, and if what lies between
 * them is spelt like a key. The pair before that ends at the comma.
 */
int cell_read_attrs(struct cell_keys *keys, const char *text, size_t len, struct row *row)
{
	row->nattrs = 0;
	if (!len)
		return 0;
	if (len < 2 || text[0] != '{' || text[len - 1] != '}')
		return -EBADMSG;
	const char *end = text + len - 1, *mark = text; /* the last comma or colon */
	const char *name = text + 1, *value = name; /* of the pair at hand, with its key */
	unsigned key = NOT_A_KEY;
	for (const char *p = text + 1; p < end; p += 64) {
		uint64_t marks = scan_either(p, ',', ':');

		if (end - p < 64)
			marks &= ((uint64_t)1 << (end - p)) - 1;
		for (; marks; marks &= marks - 1) {
			const char *before = mark;

			mark = p + __builtin_ctzll(marks);
			if (*mark == ',' || *before == ':')
				continue;
			unsigned next =
				words_find(&keys->words, before + 1, (size_t)(mark - before - 1));
			if (next == NOT_A_KEY)
				continue;
			if (before > text)
				add_pair(keys, row, key, name, value, before);
			name = before + 1;
			value = mark + 1;
			key = next;
		}
	}
	if (text + 1 < end)
		add_pair(keys, row, key, name, value, end);
	return 0;
}

/* --- JSON --- */

void cell_json_text(struct buf *out, const char *s, size_t n)
{
	static const char hex[] = "0123456789abcdef";
	size_t from = 0;
	char *p = buf_room(out, 6 * n);

	for (size_t i = 0; i < n; i++) {
		unsigned char c = (unsigned char)s[i];

		if (c >= ' ' && c != '"' && c != '\\')
			continue;
		p = put_bytes(p, s + from, i - from);
		from = i + 1;
		*p++ = '\\';
		if (c == '"' || c == '\\') {
			*p++ = (char)c;
		} else if (c == '\n') {
			*p++ = 'n';
		} else {
			p = put_bytes(p, "u00", 3);
			*p++ = hex[c >> 4];
			*p++ = hex[c & 15];
		}
	}
	p = put_bytes(p, s + from, n - from);
	out->len = (size_t)(p - out->data);
}

static void json_add_clean(struct buf *out, const char *s, size_t n, struct buf *scratch)
{
	if (!n)
		return;
	s = text_clean(s, &n, scratch);
	cell_json_text(out, s, n);
}

/* What stands before a key: the brace, or the comma behind the value before. */
static char *put_key_start(char *p, bool first)
{
	return first ? put_bytes(p, "{\"", 2) : put_bytes(p, "\",\"", 3);
}

static void json_add_raw(struct buf *out, const struct attr *a, bool *first, struct buf *scratch)
{
	const char *at = a->text, *end = a->text + a->text_len;
	struct pair pair;

	while (cell_next_pair(&at, end, &pair)) {
		char *p = put_key_start(buf_room(out, 3), *first);

		*first = false;
		out->len = (size_t)(p - out->data);
		json_add_clean(out, pair.key, pair.key_len, scratch);
		buf_add(out, "\":\"", 3);
		json_add_clean(out, pair.value, pair.value_len, scratch);
	}
}

void cell_attrs_json(const struct row *row, enum row_compat compat, struct buf *out,
		     struct buf *scratch)
{
	bool first = true;

	for (unsigned i = 0; i < row->nattrs; i++) {
		const struct attr *a = &row->attrs[i];

		if (a->key == ATTR_RAW) {
			if (a->text_len)
				json_add_raw(out, a, &first, scratch);
			continue;
		}
		const char *key = attr_key_text(a->key, compat);
		size_t n = strlen(key);
		char *p = put_key_start(buf_room(out, n + 64), first);

		first = false;
		p = put_bytes(p, key, n);
		p = put_bytes(p, "\":\"", 3);
		if (a->kind == ATTR_NUMBER)
			p = put_u64(p, a->number);
		else if (a->kind == ATTR_HEX)
			p = put_addr(p, a->number);
		out->len = (size_t)(p - out->data);
		if (a->kind == ATTR_TEXT)
			json_add_clean(out, a->text, a->text_len, scratch);
	}
	buf_add_str(out, first ? "{}" : "\"}");
}

struct json {
	const char *p;
	const char *end;
	struct buf *keep; /* has room for everything: unescaping never makes text longer */
};

static void json_space(struct json *j)
{
	while (j->p < j->end && (*j->p == ' ' || *j->p == '\t' || *j->p == '\n' || *j->p == '\r'))
		j->p++;
}

static bool json_take(struct json *j, char c)
{
	json_space(j);
	if (j->p == j->end || *j->p != c)
		return false;
	j->p++;
	return true;
}

static void put_utf8(struct buf *b, uint32_t c)
{
	if (c < 0x80) {
		buf_add_char(b, (char)c);
	} else if (c < 0x800) {
		buf_add_char(b, (char)(0xc0 | c >> 6));
		buf_add_char(b, (char)(0x80 | (c & 63)));
	} else if (c < 0x10000) {
		buf_add_char(b, (char)(0xe0 | c >> 12));
		buf_add_char(b, (char)(0x80 | (c >> 6 & 63)));
		buf_add_char(b, (char)(0x80 | (c & 63)));
	} else {
		buf_add_char(b, (char)(0xf0 | c >> 18));
		buf_add_char(b, (char)(0x80 | (c >> 12 & 63)));
		buf_add_char(b, (char)(0x80 | (c >> 6 & 63)));
		buf_add_char(b, (char)(0x80 | (c & 63)));
	}
}

/* The four digits behind \u. */
static bool json_hex4(struct json *j, uint32_t *out)
{
	char text[6] = "0x";
	uint64_t v;

	if (j->end - j->p < 4)
		return false;
	memcpy(text + 2, j->p, 4);
	if (!cell_read_hex(text, sizeof(text), &v))
		return false;
	j->p += 4;
	*out = (uint32_t)v;
	return true;
}

static bool json_unicode(struct json *j)
{
	uint32_t c, low;

	if (!json_hex4(j, &c))
		return false;
	if (c >= 0xd800 && c < 0xdc00) {
		if (j->end - j->p < 6 || j->p[0] != '\\' || j->p[1] != 'u')
			return false;
		j->p += 2;
		if (!json_hex4(j, &low) || low < 0xdc00 || low > 0xdfff)
			return false;
		c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
	} else if (c >= 0xdc00 && c < 0xe000) {
		return false;
	}
	put_utf8(j->keep, c);
	return true;
}

static bool json_escape(struct json *j)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";

	if (j->p == j->end)
		return false;
	char c = *j->p++;
	if (c == 'u')
		return json_unicode(j);
	const char *at = memchr(from, c, sizeof(from) - 1);
	if (!at)
		return false;
	buf_add_char(j->keep, to[at - from]);
	return true;
}

/* Copies the bytes of a string up to its quote, an escape, or what may not be in one. */
static void json_plain(struct json *j)
{
	const char *p = j->p;
	char *to = j->keep->data + j->keep->len;

	while (p < j->end && (unsigned char)*p >= ' ' && *p != '"' && *p != '\\')
		*to++ = *p++;
	j->keep->len += (size_t)(p - j->p);
	j->p = p;
}

/* A string, behind its opening quote. */
static bool json_string(struct json *j)
{
	for (json_plain(j); j->p < j->end && *j->p == '\\'; json_plain(j))
		if (j->p++, !json_escape(j))
			return false;
	if (j->p == j->end || *j->p != '"')
		return false;
	j->p++;
	return true;
}

/* A value: a string, or a bare number, true, false or null, which are kept as they are spelled. */
static bool json_value(struct json *j)
{
	if (json_take(j, '"'))
		return json_string(j);
	const char *start = j->p;
	while (j->p < j->end &&
	       (is_letter(*j->p) || (*j->p >= '0' && *j->p <= '9') || memchr("+-.", *j->p, 3)))
		buf_add_char(j->keep, *j->p++);
	return j->p > start;
}

static bool json_pair(struct cell_keys *keys, struct json *j, struct row *row)
{
	size_t key = j->keep->len;

	if (!json_take(j, '"') || !json_string(j) || !json_take(j, ':'))
		return false;
	struct pair pair = {.key_len = j->keep->len - key};
	if (pair.key_len)
		buf_add_char(j->keep, ':');
	size_t value = j->keep->len;
	if (!json_value(j))
		return false;
	pair.key = j->keep->data + key;
	pair.value = j->keep->data + value;
	pair.value_len = j->keep->len - value;
	buf_add_char(j->keep, ',');
	add_pair(keys, row, words_find(&keys->words, pair.key, pair.key_len), pair.key, pair.value,
		 pair.value + pair.value_len);
	return true;
}

int cell_read_json(struct cell_keys *keys, const char *text, size_t len, struct buf *keep,
		   struct row *row)
{
	row->nattrs = 0;
	buf_clear(keep);
	if (!len)
		return 0;
	struct json j = {text, text + len, keep};
	json_space(&j);
	if (j.p == j.end)
		return 0;
	buf_room(keep, len + 1 + CELL_SLACK); /* pointers into it must stay good */
	if (!json_take(&j, '{'))
		return -EBADMSG;
	if (!json_take(&j, '}')) {
		do
			if (!json_pair(keys, &j, row))
				return -EBADMSG;
		while (json_take(&j, ','));
		if (!json_take(&j, '}'))
			return -EBADMSG;
	}
	json_space(&j);
	return j.p == j.end ? 0 : -EBADMSG;
}
