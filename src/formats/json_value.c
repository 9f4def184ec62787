/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "formats/json_value.h"

#include "base/text/text.h"

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
