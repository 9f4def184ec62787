/* SPDX-License-Identifier: MulanPSL-2.0 */
/* A comparison for programs; compare.h names the keys. */
#include <stdlib.h>

#include "analyze/compare_impl.h"
#include "export/text.h"

/* JSON numbers of ours are signed; nothing true is larger. */
static void put_number(json_t *o, const char *key, uint64_t v)
{
	json_object_set_new(o, key, json_integer(v > INT64_MAX ? INT64_MAX : (json_int_t)v));
}

static void put_difference(json_t *o, const char *key, uint64_t base, uint64_t compare)
{
	uint64_t v = compare_distance(base, compare);
	json_int_t n = v > INT64_MAX ? INT64_MAX : (json_int_t)v;

	json_object_set_new(o, key, json_integer(compare < base ? -n : n));
}

static void put_name(json_t *o, const struct compare *c, uint32_t number)
{
	struct buf scratch = {0};
	size_t len;
	const char *name = names_get(&c->names, number, &len);

	name = text_clean(name, &len, &scratch);
	json_object_set_new(o, "name", json_stringn_nocheck(name, len));
	buf_release(&scratch);
}

static void put_counts(json_t *o, const struct compare_counts *t)
{
	json_t *calls = json_object(), *memory = json_object();

	put_number(calls, "base", t->base);
	put_number(calls, "compare", t->compare);
	put_number(calls, "both", t->both);
	put_number(calls, "only_base", t->only_base);
	put_number(calls, "only_compare", t->only_compare);
	put_number(calls, "other_memory", t->changed);
	json_object_set_new(o, "calls", calls);
	put_number(memory, "base_bytes", t->base_bytes);
	put_number(memory, "compare_bytes", t->compare_bytes);
	put_difference(memory, "diff_bytes", t->base_bytes, t->compare_bytes);
	put_difference(memory, "both_diff_bytes", t->both_base_bytes, t->both_compare_bytes);
	json_object_set_new(o, "memory", memory);
}

static json_t *devices_value(const struct compare *c)
{
	json_t *list = json_array();

	for (size_t i = 0; i < c->npairs; i++) {
		json_t *o = json_object();

		put_number(o, "device", c->pairs[i].device);
		put_counts(o, &c->pairs[i].counts);
		json_array_append_new(list, o);
	}
	return list;
}

static void put_names(json_t *root, const struct compare *c, unsigned top)
{
	json_t *list = json_array();
	size_t n, total;
	uint32_t *names = compare_top_names(c, top, &n, &total);

	for (size_t i = 0; i < n; i++) {
		json_t *o = json_object();

		put_name(o, c, names[i]);
		put_counts(o, &c->by_name[names[i]]);
		json_array_append_new(list, o);
	}
	put_number(root, "names_total", total);
	json_object_set_new(root, "names", list);
	free(names);
}

static void put_side(json_t *o, const char *call, const char *bytes,
		     const struct compare_line *line, enum compare_side side)
{
	bool there = line->kind != (side == COMPARE_BASE ? ALIGN_COMPARE : ALIGN_BASE);

	if (there) {
		put_number(o, call, line->call[side] + 1);
		put_number(o, bytes, line->size[side]);
	} else {
		json_object_set_new(o, call, json_null());
		json_object_set_new(o, bytes, json_null());
	}
}

static void put_lines(json_t *root, const struct compare *c, unsigned top)
{
	json_t *list = json_array();
	size_t n;
	struct compare_line *lines = compare_top_lines(c, top, &n);

	for (size_t i = 0; i < n; i++) {
		const struct compare_line *l = &lines[i];
		json_t *o = json_object();

		json_object_set_new(o, "event",
				    json_string(l->kernel ? "KERNEL_LAUNCH" : "OP_LAUNCH"));
		put_name(o, c, l->name);
		put_number(o, "device", l->pair->device);
		put_side(o, "base_call", "base_bytes", l, COMPARE_BASE);
		put_side(o, "compare_call", "compare_bytes", l, COMPARE_OTHER);
		put_difference(o, "diff_bytes", l->size[COMPARE_BASE], l->size[COMPARE_OTHER]);
		json_array_append_new(list, o);
	}
	put_number(root, "differences_total", compare_differences(c));
	json_object_set_new(root, "differences", list);
	free(lines);
}

static json_t *notes_value(const struct compare *c)
{
	json_t *list = json_array();

	for (size_t at = 0; at < c->notes.len;) {
		const char *line = c->notes.data + at;
		size_t len = (size_t)((char *)memchr(line, '\n', c->notes.len - at) - line);

		json_array_append_new(list, json_stringn_nocheck(line, len));
		at += len + 1;
	}
	return list;
}

json_t *compare_json(const struct compare *c, unsigned top)
{
	json_t *o = json_object();
	const char *framework = compare_framework(c);

	json_object_set_new(o, "identical", json_boolean(!compare_differences(c)));
	json_object_set_new(o, "what", json_string(compare_noun(c)));
	json_object_set_new(o, "framework", framework ? json_string(framework) : json_null());
	put_counts(o, &c->counts);
	json_object_set_new(o, "devices", devices_value(c));
	put_names(o, c, top);
	put_lines(o, c, top);
	json_object_set_new(o, "notes", notes_value(c));
	return o;
}
