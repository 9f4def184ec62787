/* SPDX-License-Identifier: MulanPSL-2.0 */
/* One Attr cell with what was found. */
#include <string.h>

#include "base/containers/buf.h"
#include "memory/dump/amend_impl.h"
#include "memory/dump/cell.h"

/* --- the pairs of both formats --- */

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
const struct amend_form amend_csv_form = {csv_pair, csv_put};

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
const struct amend_form amend_json_form = {json_pair, json_put};

/* --- one cell --- */

/* Owner and inefficient still to be written; NULL when done, or when there is nothing to say. */
struct pending {
	const struct amend_form *form;
	const char *owner;
	const char *inefficient;
	const char *inefficient_key;
	struct buf *out;
};

static void put_pair(struct pending *p, const char *key, size_t key_len, const char **value)
{
	if (!*value)
		return;
	if (p->out->len > 1)
		buf_add_char(p->out, ',');
	p->form->put(p->out, key, key_len, *value);
	*value = NULL;
}

static void put_owner(struct pending *p)
{
	put_pair(p, "owner", strlen("owner"), &p->owner);
}

static void put_inefficient(struct pending *p)
{
	put_pair(p, p->inefficient_key, strlen(p->inefficient_key), &p->inefficient);
}

/* Writes what comes before the pair, and the pair unless a new one is there in its place. */
static void pass_pair(struct pending *p, const struct amendment *finding,
		      const struct amend_pair *pair)
{
	enum attr_key key = attr_key_find(pair->key, pair->key_len);

	if (key == ATTR_OWNER && finding->owner) {
		put_pair(p, pair->key, pair->key_len, &p->owner);
		return;
	}
	if (key == ATTR_INEFFICIENT || key == ATTR_PAGE_TYPE || key == ATTR_ALLOC_TYPE)
		put_owner(p);
	if (key == ATTR_INEFFICIENT && finding->inefficient) {
		put_pair(p, pair->key, pair->key_len, &p->inefficient);
		return;
	}
	if (key == ATTR_PAGE_TYPE || key == ATTR_ALLOC_TYPE)
		put_inefficient(p);
	if (p->out->len > 1)
		buf_add_char(p->out, ',');
	buf_add(p->out, pair->text, pair->len);
}

/* Room for `bytes` of a finding that comes later. */
static void put_room(struct buf *out, size_t bytes)
{
	if (out->len > 1)
		buf_add_char(out, ',');
	buf_add_str(out, CELL_ROOM);
	memset(buf_room(out, bytes), ' ', bytes);
	out->len += bytes;
}

/* The rest of what the cell had; `len` is how long it was. */
static void keep_room(struct buf *out, size_t len)
{
	size_t least = strlen(",}") + strlen(CELL_ROOM) + 1;

	if (out->len + least <= len)
		put_room(out, len - out->len - least + 1);
}

bool amend_attrs(struct amend *a, const struct amend_form *form, const char *text, size_t len,
		 const struct amendment *finding)
{
	const char *at = text + 1, *end = text + len - 1;
	struct pending p = {form, finding->owner, finding->inefficient, a->inefficient_key,
			    &a->cell};
	struct amend_pair pair;
	bool had_room = false;

	buf_clear(&a->cell);
	buf_add_char(&a->cell, '{');
	while (form->next(&at, end, &pair))
		if (cell_is_room(pair.text, pair.len))
			had_room = true;
		else
			pass_pair(&p, finding, &pair);
	put_owner(&p);
	put_inefficient(&p);
	if (finding->room)
		put_room(&a->cell, CELL_ROOM_BYTES);
	else if (had_room)
		keep_room(&a->cell, len);
	buf_add_char(&a->cell, '}');
	return a->cell.len != len || memcmp(a->cell.data, text, len) != 0;
}
