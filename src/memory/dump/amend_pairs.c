/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/dump/amend_pairs.h"

#include <string.h>

#include "memory/dump/cell.h"

static bool csv_pair(const char **at, const char *end, struct amend_pair *out)
{
	struct pair pair;

	if (!cell_next_pair(at, end, &pair))
		return false;
	*out = (struct amend_pair){pair.key, (size_t)(pair.value + pair.value_len - pair.key),
				   pair.key, pair.key_len};
	return true;
}

/* A comma in the value before something like a key would begin another pair. */
static void csv_put(struct buf *out, const char *key, size_t key_len, const char *value)
{
	const char *end = value + strlen(value);

	buf_add(out, key, key_len);
	buf_add_char(out, ':');
	for (; value < end; value++)
		buf_add_char(out, *value == ',' && cell_is_key(value + 1, end) ? ';' : *value);
}

/* `{key:value,…}` */
const struct amend_form amend_csv = {csv_pair, csv_put};

static const char *json_skip_space(const char *p, const char *end)
{
	while (p < end && memchr(" \t\r\n", *p, 4))
		p++;
	return p;
}

/* Behind the string that begins at p. */
static const char *json_skip_string(const char *p, const char *end)
{
	for (p++; p < end && *p != '"'; p++)
		p += *p == '\\' && p + 1 < end;
	return p < end ? p + 1 : end;
}

static bool json_pair(const char **at, const char *end, struct amend_pair *out)
{
	const char *p = json_skip_space(*at, end);

	if (p >= end || *p != '"')
		return false;
	const char *key_end = json_skip_string(p, end);
	*out = (struct amend_pair){.text = p, .key = p + 1, .key_len = (size_t)(key_end - p - 2)};
	p = json_skip_space(key_end, end);
	p = json_skip_space(p < end ? p + 1 : end, end);
	if (p < end && *p == '"')
		p = json_skip_string(p, end);
	else
		while (p < end && !memchr(" \t\r\n,", *p, 5))
			p++;
	out->len = (size_t)(p - out->text);
	p = json_skip_space(p, end);
	*at = p < end ? p + 1 : end;
	return true;
}

static void json_put(struct buf *out, const char *key, size_t key_len, const char *value)
{
	buf_add_char(out, '"');
	buf_add(out, key, key_len);
	buf_add_str(out, "\":\"");
	cell_json_text(out, value, strlen(value));
	buf_add_char(out, '"');
}

/* `{"key":"value",…}` */
const struct amend_form amend_json = {json_pair, json_put};
