/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "report/redact/redact_json.h"

#include <string.h>

#define MOST_STACKS 300 /* of a list, the largest first: the others have their line alone */

/* The texts that pages show. Redacted, there are no others. */
static const char *const plain[] = {"kind",   "pool",	    "device", "type", "level",
				    "source", "confidence", "part",   NULL};

static bool is_plain(const char *key)
{
	for (const char *const *p = plain; key && *p; p++)
		if (!strcmp(*p, key))
			return true;
	return false;
}

static bool is_stack(const char *key)
{
	return !strcmp(key, "c_stack") || !strcmp(key, "python_stack");
}

static void redact_string(struct redact *r, const char *key, json_t *value)
{
	struct buf out = {0};

	if (!strcmp(key, "where"))
		redact_text(r, REDACT_WORDS, json_string_value(value), json_string_length(value),
			    &out);
	else if (!strcmp(key, "module"))
		redact_text(r, REDACT_MODULE, json_string_value(value), json_string_length(value),
			    &out);
	json_string_setn(value, out.data ? out.data : "", out.len);
	buf_release(&out);
}

static void redact_value(struct redact *r, const char *key, json_t *value, size_t at)
{
	const char *name;
	json_t *one;
	size_t i;
	void *next;

	if (json_is_string(value) && r && !is_plain(key))
		redact_string(r, key ? key : "", value);
	json_array_foreach(value, i, one) redact_value(r, key, one, i);
	if (!json_is_object(value))
		return;
	json_object_foreach_safe(value, next, name, one)
	{
		if (is_stack(name) && (at >= MOST_STACKS || r))
			json_object_del(value, name);
		else
			redact_value(r, name, one, at);
	}
}

void redact_json(struct redact *r, json_t *value)
{
	redact_value(r, NULL, value, 0);
}
