/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "activity/steps/idle.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "formats/json_value.h"

#define MAX_TEXT 65536u

const char *idle_why_name(enum idle_why why)
{
	static const char *const names[IDLE_WHYS] = {
		[IDLE_UNKNOWN] = "unknown",
		[IDLE_DATA] = "data loader",
		[IDLE_CHECKPOINT] = "checkpoint",
		[IDLE_COLLECTOR] = "garbage collection",
		[IDLE_ALLOCATION] = "allocation",
		[IDLE_COMPILER] = "compilation",
		[IDLE_RANKS] = "collective",
		[IDLE_SYNC] = "synchronisation",
		[IDLE_LOCK] = "lock",
		[IDLE_PYTHON] = "python",
		[IDLE_CALL] = "call",
	};

	return names[why];
}

bool idle_reason_is_same(const struct idle_reason *a, const struct idle_reason *b)
{
	return a->why == b->why && !strcmp(a->what, b->what) && !strcmp(a->where, b->where);
}

void split_idle_release(struct split_idle *idle)
{
	for (size_t i = 0; i < idle->nreasons; i++) {
		free(idle->reasons[i].what);
		free(idle->reasons[i].where);
	}
	free(idle->reasons);
	free(idle->shares);
	*idle = (struct split_idle){0};
}

/* --- as JSON --- */

static json_t *reasons_json(const struct split_idle *idle)
{
	json_t *list = json_array();

	for (size_t i = 0; i < idle->nreasons; i++) {
		const struct idle_reason *r = &idle->reasons[i];
		json_t *o = json_object();

		put_text(o, "why", idle_why_name(r->why));
		put_text(o, "what", r->what);
		put_text(o, "where", r->where);
		put_number(o, "ns", r->ns);
		put_number(o, "times", r->times);
		put_number(o, "longest_ns", r->longest_ns);
		json_array_append_new(list, o);
	}
	return list;
}

static json_t *shares_json(const struct split_idle *idle)
{
	json_t *list = json_array();

	for (size_t i = 0; i < idle->nshares; i++) {
		json_t *o = json_object();

		put_number(o, "step_index", idle->shares[i].step);
		put_number(o, "reason_index", idle->shares[i].reason);
		put_number(o, "ns", idle->shares[i].ns);
		json_array_append_new(list, o);
	}
	return list;
}

json_t *split_idle_json(const struct split_idle *idle)
{
	json_t *o;

	if (!idle->looked)
		return json_null();
	o = json_object();
	put_number(o, "ns", idle->ns);
	put_bool(o, "has_python", idle->python);
	put_bool(o, "has_calls", idle->calls);
	put_number(o, "python_ns", idle->python_ns);
	put_number(o, "left_out", idle->left_out);
	json_object_set_new(o, "reasons", reasons_json(idle));
	json_object_set_new(o, "steps", shares_json(idle));
	return o;
}

/* --- and back: anybody may have written it --- */

static bool get_number(const json_t *o, const char *key, uint64_t max, uint64_t *out)
{
	const json_t *v = json_object_get(o, key);

	if (!json_is_integer(v) || json_integer_value(v) < 0 ||
	    (uint64_t)json_integer_value(v) > max)
		return false;
	*out = (uint64_t)json_integer_value(v);
	return true;
}

static bool get_why(const json_t *o, enum idle_why *out)
{
	const char *name = json_string_value(json_object_get(o, "why"));

	for (unsigned i = 0; name && i < IDLE_WHYS; i++)
		if (!strcmp(name, idle_why_name((enum idle_why)i))) {
			*out = (enum idle_why)i;
			return true;
		}
	return false;
}

static bool get_text(const json_t *o, const char *key, char **out)
{
	const char *v = json_string_value(json_object_get(o, key));

	*out = xstrdup(v ? v : "");
	return v && strlen(v) <= MAX_TEXT;
}

/* The reasons add up: readers of the answer rely on it. */
static bool get_reasons(const json_t *list, struct split_idle *idle)
{
	size_t n = json_array_size(list);
	uint64_t left = idle->ns;

	if (!json_is_array(list) || n > IDLE_MAX_REASONS)
		return false;
	idle->reasons = xcalloc(n + 1, sizeof(*idle->reasons));
	for (size_t i = 0; i < n; i++) {
		const json_t *o = json_array_get(list, i);
		struct idle_reason *r = &idle->reasons[i];
		bool texts = get_text(o, "what", &r->what);

		texts &= get_text(o, "where", &r->where);
		idle->nreasons++;
		if (!texts || !get_why(o, &r->why) || !get_number(o, "ns", left, &r->ns) ||
		    !get_number(o, "times", INT64_MAX, &r->times) || !r->times ||
		    !get_number(o, "longest_ns", r->ns, &r->longest_ns))
			return false;
		left -= r->ns;
	}
	return !left;
}

static bool get_shares(const json_t *list, size_t steps, struct split_idle *idle)
{
	size_t n = json_array_size(list);
	uint64_t left = idle->ns;

	if (!json_is_array(list))
		return false;
	idle->shares = xcalloc(n + 1, sizeof(*idle->shares));
	for (size_t i = 0; i < n; i++) {
		const json_t *o = json_array_get(list, i);
		uint64_t step, reason, ns;

		if (!get_number(o, "step_index", INT32_MAX, &step) || step >= steps ||
		    !get_number(o, "reason_index", INT32_MAX, &reason) ||
		    reason >= idle->nreasons || !get_number(o, "ns", left, &ns))
			return false;
		left -= ns;
		idle->shares[idle->nshares++] =
			(struct idle_share){(uint32_t)step, (uint32_t)reason, ns};
	}
	return !left;
}

bool split_idle_read(const json_t *o, size_t steps, uint64_t idle_ns, struct split_idle *idle)
{
	if (!o || json_is_null(o))
		return true;
	idle->looked = true;
	idle->python = json_is_true(json_object_get(o, "has_python"));
	idle->calls = json_is_true(json_object_get(o, "has_calls"));
	return get_number(o, "ns", idle_ns, &idle->ns) && idle->ns == idle_ns &&
	       get_number(o, "python_ns", idle_ns, &idle->python_ns) &&
	       get_number(o, "left_out", INT64_MAX, &idle->left_out) &&
	       get_reasons(json_object_get(o, "reasons"), idle) &&
	       get_shares(json_object_get(o, "steps"), steps, idle);
}
