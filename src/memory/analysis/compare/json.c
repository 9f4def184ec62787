/* SPDX-License-Identifier: MulanPSL-2.0 */
/* A comparison for programs; compare.h names the keys. */
#include <stdlib.h>

#include "formats/json_value.h"
#include "memory/analysis/common/json.h"
#include "memory/analysis/compare/compare_impl.h"

static void put_difference(json_t *o, const char *key, uint64_t base, uint64_t compare)
{
	uint64_t v = compare_distance(base, compare);
	json_int_t n = v > INT64_MAX ? INT64_MAX : (json_int_t)v;

	json_object_set_new(o, key, json_integer(compare < base ? -n : n));
}

static void put_name(json_t *o, const struct compare *c, uint32_t number)
{
	size_t len;
	const char *name = names_get(&c->names, number, &len);

	json_object_set_new(o, "name", text_value(name, len));
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

		put_device(o, c->pairs[i].device);
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

	put_known(o, call, there, line->call[side] + 1);
	put_known(o, bytes, there, line->size[side]);
}

static void put_lines(json_t *root, const struct compare *c, unsigned top)
{
	json_t *list = json_array();
	size_t n;
	struct compare_line *lines = compare_top_lines(c, top, &n);

	for (size_t i = 0; i < n; i++) {
		const struct compare_line *l = &lines[i];
		json_t *o = json_object();

		put_text(o, "event", l->kernel ? "KERNEL_LAUNCH" : "OP_LAUNCH");
		put_name(o, c, l->name);
		put_device(o, l->pair->device);
		put_side(o, "base_call", "base_bytes", l, COMPARE_BASE);
		put_side(o, "compare_call", "compare_bytes", l, COMPARE_OTHER);
		put_difference(o, "diff_bytes", l->size[COMPARE_BASE], l->size[COMPARE_OTHER]);
		json_array_append_new(list, o);
	}
	put_number(root, "differences_total", compare_differences(c));
	json_object_set_new(root, "differences", list);
	free(lines);
}

json_t *compare_json(const struct compare *c, unsigned top)
{
	json_t *o = json_object();

	put_bool(o, "identical", !compare_differences(c));
	put_text(o, "what", compare_noun(c));
	put_text(o, "framework", compare_framework(c));
	put_counts(o, &c->counts);
	json_object_set_new(o, "devices", devices_value(c));
	put_names(o, c, top);
	put_lines(o, c, top);
	json_object_set_new(o, "notes", lines_value(&c->notes));
	return o;
}
