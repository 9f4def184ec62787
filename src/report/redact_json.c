/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "report/redact_json.h"

#include <string.h>

#define MOST_STACKS 300 /* of a list, the largest first: the others have their line alone */

static const struct {
	const char *key;
	enum redact_kind kind;
} kinds[] = {
	{"command", REDACT_COMMAND}, {"module", REDACT_MODULE}, {"input", REDACT_FILE},
	{"owner", REDACT_OWNER},     {"host", REDACT_HOST},	{"path", REDACT_OWNER},
};

static enum redact_kind kind_of(const char *key)
{
	for (size_t i = 0; key && i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (!strcmp(kinds[i].key, key))
			return kinds[i].kind;
	return REDACT_WORDS;
}

static bool is_stack(const char *key)
{
	return !strcmp(key, "c_stack") || !strcmp(key, "python_stack");
}

static void redact_string(struct redact *r, const char *key, json_t *value)
{
	struct buf out = {0};

	redact_text(r, kind_of(key), json_string_value(value), json_string_length(value), &out);
	json_string_setn(value, out.data ? out.data : "", out.len);
	buf_release(&out);
}

static void redact_value(struct redact *r, const char *key, json_t *value, size_t at)
{
	const char *name;
	json_t *one;
	size_t i;
	void *next;

	if (json_is_string(value) && r)
		redact_string(r, key, value);
	json_array_foreach(value, i, one) redact_value(r, key, one, i);
	if (!json_is_object(value))
		return;
	json_object_foreach_safe(value, next, name, one)
	{
		if (is_stack(name) && (at >= MOST_STACKS || r))
			json_object_del(value, name);
		else
			redact_value(r, name, one, 0);
	}
}

void redact_json(struct redact *r, json_t *value)
{
	redact_value(r, NULL, value, 0);
}
