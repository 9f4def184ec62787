/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/analysis/groups/groups.h"

#include <stdlib.h>

#include "base/mem.h"
#include "formats/json_value.h"
#include "memory/analysis/common/breakdown_text.h"
#include "memory/analysis/common/fields.h"

#define MAX_LINES 10 /* of a module, in JSON */
#define MAX_PARTS 4 /* types, and further groups, in a sentence */
#define MIN_SHARE 100 /* what has less is not in the sentence */
#define NEARLY_ALL 10 /* all but a tenth */
#define TOLD_SHARE 4 /* equal modules are the answer if they have a quarter of it */

const char *const groups_by_names[] = {"owner", "module", "line", "type", NULL};

/* --- adding up --- */

struct group *groups_add(struct groups *g, const char *name)
{
	LIST_ADD(g->list, g->n, g->cap, (struct group){.name = xstrdup(name), .depth = 1});
	return &g->list[g->n - 1];
}

void group_merge(struct group *to, const struct group *from)
{
	to->bytes += from->bytes;
	to->blocks += from->blocks;
	for (size_t i = 0; i < GROUP_TYPES; i++)
		to->sums.each[i] += from->sums.each[i];
}

static struct group *find_group(struct groups *g, struct text_numbers *names, const char *name)
{
	uint32_t known = names->count ? (uint32_t)names->count : 1;
	uint32_t number = text_numbers_find(names, name, strlen(name), UINT32_MAX);

	if (number >= known)
		names->list[number].own = (uint32_t)g->n + 1, groups_add(g, name);
	return &g->list[names->list[number].own - 1];
}

static void add_line(struct groups *g, struct text_numbers *names, const struct blocks *b,
		     const struct breakdown_share *s)
{
	struct buf where = {0};

	if (!stacks_place(&b->stacks, s->block->stack, &where) || !where.len) {
		buf_release(&where);
		return;
	}
	struct group *into = find_group(g, names, buf_str(&where));
	if (!into->stack)
		into->stack = s->block->stack;
	group_add_share(into, b, s);
	buf_release(&where);
}

static bool is_import(const struct blocks *b, const struct block *block)
{
	struct stack stack = stacks_get(&b->stacks, block->stack);

	return stack.py && strstr(stack.py, "<frozen importlib");
}

/* Every share is in a group of the first level, or here. */
static void add_rest(struct groups *g, const struct blocks *b, const struct breakdown_shares *s)
{
	struct group none = {.is_rest = true, .depth = 1}, unused = none;

	for (size_t i = 0; i < s->n; i++) {
		const struct block *block = s->list[i].block;
		bool in_group = block && (g->options.by == GROUPS_BY_MODULE ? block->layer != 0
									    : block->stack != 0);
		if (in_group)
			continue;
		group_add_share(block ? &none : &unused, b, &s->list[i]);
		if (block && is_import(b, block))
			g->rest_imports += s->list[i].bytes;
	}
	if (none.bytes) {
		none.name = xstrdup(g->options.by == GROUPS_BY_MODULE ? "(no module)"
								      : "(no call stack)");
		LIST_ADD(g->list, g->n, g->cap, none);
	}
	if (unused.bytes) {
		unused.name = xstrdup("(free inside the pools)");
		LIST_ADD(g->list, g->n, g->cap, unused);
	}
}

static void add_types(struct groups *g, const struct blocks *b, const struct breakdown_shares *s)
{
	for (size_t type = 0; type < GROUP_TYPES; type++)
		groups_add(g, group_type_words(type));
	for (size_t i = 0; i < s->n; i++) {
		struct group one = {0};

		group_add_share(&one, b, &s->list[i]);
		for (size_t type = 0; type < GROUP_TYPES; type++) {
			g->list[type].bytes += one.sums.each[type];
			g->list[type].sums.each[type] += one.sums.each[type];
			g->list[type].blocks += one.sums.each[type] && one.blocks;
		}
	}
}

/* Those inside another one have their place already. */
static int larger_first(const void *pa, const void *pb)
{
	const struct group *a = pa, *b = pb;

	return ORDER(a->is_rest, b->is_rest) ?: ORDER(b->bytes, a->bytes) ?: strcmp(a->name, b->name);
}

static void drop_empty(struct groups *g)
{
	size_t n = 0;

	for (size_t i = 0; i < g->n; i++) {
		if (g->list[i].bytes)
			g->list[n++] = g->list[i];
		else
			free(g->list[i].name), free(g->list[i].lines);
	}
	g->n = n;
}

void groups_build(struct groups *g, const struct groups_options *o, const struct blocks *b,
		  const struct breakdown_shares *s)
{
	struct text_numbers names = {0};

	*g = (struct groups){.options = *o, .bytes = s->bytes};
	if (o->by == GROUPS_BY_MODULE)
		groups_add_modules(g, b, s);
	for (size_t i = 0; o->by == GROUPS_BY_LINE && i < s->n; i++)
		if (s->list[i].block && s->list[i].block->stack)
			add_line(g, &names, b, &s->list[i]);
	if (o->by == GROUPS_BY_TYPE)
		add_types(g, b, s);
	else
		add_rest(g, b, s);
	drop_empty(g);
	if (o->by != GROUPS_BY_MODULE)
		SORT(g->list, g->n, larger_first);
	text_numbers_release(&names);
}

void groups_release(struct groups *g)
{
	for (size_t i = 0; i < g->n; i++) {
		free(g->list[i].name);
		free(g->list[i].lines);
	}
	free(g->list);
	text_numbers_release(&g->places);
	*g = (struct groups){0};
}

/* --- the answer --- */

void group_describe_each(const struct group *g, struct buf *out)
{
	if (g->count < 2)
		return;
	add_text(out, "{} x {}", COUNT(g->count), BYTES(g->least_bytes));
	if (g->most_bytes != g->least_bytes)
		add_text(out, " to {}", BYTES(g->most_bytes));
}

bool group_is_nearly_all(uint64_t part, uint64_t whole)
{
	return part >= whole - whole / NEARLY_ALL;
}

const struct group *groups_main_module(const struct groups *g)
{
	const struct group *reported = NULL;

	for (size_t i = 0; i < g->n; i++) {
		const struct group *one = &g->list[i];

		if (one->is_rest || (reported && one->depth <= reported->depth))
			continue;
		if (group_is_nearly_all(one->bytes, g->bytes))
			reported = one;
	}
	return reported;
}

const char *groups_main_line(const struct groups *g, const struct group *one)
{
	return one->nlines && one->lines[0].bytes >= one->bytes / 2
		       ? text_numbers_text(&g->places, one->lines[0].place)
		       : NULL;
}

/* Equal modules if they have much, else what has most. */
static const struct group *group_to_report(const struct groups *g)
{
	const struct group *most = NULL, *equal = NULL;

	for (size_t i = 0; i < g->n; i++) {
		const struct group *one = &g->list[i];

		if (one->is_rest)
			continue;
		if (!most || one->bytes > most->bytes)
			most = one;
		if (one->count > 1 && (!equal || one->bytes > equal->bytes))
			equal = one;
	}
	return equal && equal->bytes >= g->bytes / TOLD_SHARE ? equal : most;
}

static void describe_types(const struct group *g, struct buf *out)
{
	union group_sums left = g->sums;

	for (unsigned shown = 0; shown < MAX_PARTS; shown++) {
		size_t most = 0;

		for (size_t i = 1; i < GROUP_TYPES; i++)
			if (left.each[i] > left.each[most])
				most = i;
		if (!left.each[most])
			return;
		add_text(out, "{}{} {}", TEXT(shown ? ", " : ": "), BYTES(left.each[most]),
			 TEXT(group_type_words(most)));
		left.each[most] = 0;
	}
}

/* The largest that are neither inside of it nor around it. */
static void describe_others(const struct groups *g, const struct group *reported, struct buf *out)
{
	unsigned shown = 0;

	for (size_t i = 0; i < g->n && shown < MAX_PARTS - 1; i++) {
		const struct group *one = &g->list[i];

		if (one->depth > 1 || one->is_rest || one->bytes < g->bytes / MIN_SHARE)
			continue;
		size_t end = i + 1; /* of what is inside */
		while (end < g->n && g->list[end].depth > 1)
			end++;
		if (reported >= one && reported < &g->list[end])
			continue;
		add_text(out, "{}{} {}", TEXT(shown++ ? ", " : " Besides, "), PRINTABLE(one->name),
			 TEXT("holds "));
		add_text(out, "{}", BYTES(one->bytes));
	}
	add_text(out, shown ? "." : "");
}

bool groups_describe_shares(const struct groups *g, struct buf *out)
{
	size_t named = 0;
	unsigned shown = 0;

	for (size_t i = 0; i < g->n; i++) {
		const struct group *one = &g->list[i];

		if (one->depth > 1 || one->is_rest)
			continue;
		named++;
		if (shown == MAX_PARTS || one->bytes < g->bytes / MIN_SHARE)
			continue;
		buf_addf(out, "%s%.0f %% ", shown++ ? ", " : "",
			 (double)one->bytes * 100 / (double)g->bytes);
		add_text(out, "{}", PRINTABLE(one->name));
	}
	if (shown && shown < named)
		add_text(out, ", and {} more {}{}", NUMBER(named - shown),
			 TEXT(groups_by_names[g->options.by]), TEXT(named - shown == 1 ? "" : "s"));
	return shown > 0;
}

/* Where more belongs to no group than to the one that is told, that is part of the answer. */
static void describe_rest(const struct groups *g, const struct group *reported, struct buf *out)
{
	const struct group *rest = NULL;

	for (size_t i = 0; i < g->n; i++)
		if (g->list[i].is_rest && (!rest || g->list[i].bytes > rest->bytes))
			rest = &g->list[i];
	if (!rest || rest->bytes <= reported->bytes)
		return;
	add_text(out, "; {} ", BYTES(rest->bytes));
	if (rest->sums.of.free_in_pools || !strcmp(rest->name, GROUPS_OTHER_MODULES)) {
		add_text(out, rest->sums.of.free_in_pools ? "are free inside the pools"
							  : "belong to other modules");
		return;
	}
	add_text(out,
		 g->options.by == GROUPS_BY_MODULE ? "belong to no module" : "have no call stack");
	if (g->rest_imports > rest->bytes / 2)
		add_text(out, ", mostly imports of Python");
	for (size_t i = 0; i < GROUP_TYPES && g->rest_imports <= rest->bytes / 2; i++)
		if (rest->sums.each[i] > rest->bytes / 2)
			add_text(out, ", mostly {}", TEXT(group_type_words(i)));
}

static void describe_missing(const struct groups *g, struct buf *out)
{
	if (g->options.by == GROUPS_BY_MODULE)
		add_text(out, "Modules are known of PyTorch and MindSpore, in recordings that were "
			      "made with --analysis=decompose; a csv or db file has none.");
	else
		words_stacks_hint(out, false);
}

static void describe_all_types(const struct groups *g, struct breakdown *c, struct block_device *d,
			       struct buf *out)
{
	struct group all = {0};

	for (size_t i = 0; i < g->n; i++)
		group_merge(&all, &g->list[i]);
	breakdown_describe_device(c, d, true, out);
	add_text(out, " held {}", BYTES(g->bytes));
	breakdown_describe_when(c, d, false, out);
	describe_types(&all, out);
	add_text(out, ".");
}

void groups_describe(const struct groups *g, struct breakdown *c, struct block_device *d,
		     const char *moment, struct buf *out)
{
	const struct group *reported = group_to_report(g);
	struct buf each = {0};

	if (!reported) {
		breakdown_describe_device(c, d, true, out);
		add_text(out, " held {}; nothing is known about its {}s. ", BYTES(g->bytes),
			 TEXT(groups_by_names[g->options.by]));
		describe_missing(g, out);
		return;
	}
	if (g->options.by == GROUPS_BY_TYPE) {
		describe_all_types(g, c, d, out);
		return;
	}
	add_text(out, "{} holds {} of {} {} of ", PRINTABLE(reported->name), BYTES(reported->bytes),
		 TEXT(moment), BYTES(g->bytes));
	breakdown_describe_device(c, d, false, out);
	breakdown_describe_when(c, d, false, out);
	group_describe_each(reported, &each);
	if (each.len)
		add_text(out, ", {}", TEXT(buf_str(&each)));
	describe_types(reported, out);
	describe_rest(g, reported, out);
	add_text(out, ".");
	describe_others(g, reported, out);
	buf_release(&each);
}

/* --- the table --- */

static void add_cells(const struct groups *g, const struct group *one, struct table *t,
		      const bool shown[GROUP_TYPES], bool each)
{
	struct buf cell = {0};

	buf_addf(&cell, "%*s", (int)(one->depth - 1) * 2, "");
	buf_add_str(&cell, one->name);
	table_cell(t, &cell);
	add_text(&cell, "{}", BYTES(one->bytes));
	table_cell(t, &cell);
	buf_addf(&cell, "%.1f %%", g->bytes ? (double)one->bytes * 100 / (double)g->bytes : 0);
	table_cell(t, &cell);
	for (size_t i = 0; i < GROUP_TYPES; i++) {
		if (!shown[i])
			continue;
		if (one->sums.each[i])
			add_text(&cell, "{}", BYTES(one->sums.each[i]));
		table_cell(t, &cell);
	}
	if (each) {
		group_describe_each(one, &cell);
		table_cell(t, &cell);
	}
	buf_release(&cell);
}

/* At most so many of each level that follow one another; tells how many more there are. */
static bool is_listed(const struct groups *g, size_t i, unsigned top)
{
	size_t before = 0;

	if (g->list[i].is_rest || top >= g->n)
		return true;
	for (size_t k = i; k-- > 0 && before < top && g->list[k].depth >= g->list[i].depth;)
		before += g->list[k].depth == g->list[i].depth;
	return before < top;
}

void groups_print(const struct groups *g, const struct report *r)
{
	static const char *const titles_by[] = {"Owner", "Module", "Line", "Type"};
	const char *titles[TABLE_COLUMNS + 6] = {titles_by[g->options.by], ">Bytes", ">Share"};
	struct table t = {.titles = titles, .indent = 2};
	bool shown[GROUP_TYPES] = {0};
	size_t columns = 3, hidden_below = SIZE_MAX, left_out = 0;

	for (size_t type = 0; type < GROUP_TYPES; type++) {
		for (size_t i = 0; i < g->n && g->options.by != GROUPS_BY_TYPE; i++)
			shown[type] |= g->list[i].sums.each[type] != 0;
		shown[type] &= columns < TABLE_COLUMNS - 1;
		if (shown[type])
			titles[columns++] = group_type_title(type);
	}
	for (size_t i = 0; i < g->n; i++)
		if (g->list[i].count > 1)
			titles[columns] = "Each";
	for (size_t i = 0; i < g->n; i++) {
		if (g->list[i].depth <= hidden_below)
			hidden_below = SIZE_MAX;
		if (hidden_below == SIZE_MAX && !is_listed(g, i, r->style->top))
			hidden_below = g->list[i].depth;
		if (hidden_below == SIZE_MAX)
			add_cells(g, &g->list[i], &t, shown, titles[columns]);
		else
			left_out++;
	}
	report_table(r, &t);
	if (left_out)
		report_add(r, "  and {} more (--top)\n", COUNT(left_out));
	if (g->modules_left_out)
		report_add(r,
			   "  Only {} modules are told apart: {} {} counted for the module around "
			   "them.\n",
			   COUNT(GROUPS_MAX_MODULES), COUNT_OF(g->modules_left_out, "more path"),
			   TEXT(g->modules_left_out == 1 ? "is" : "are"));
}

/* --- JSON --- */

static const struct field type_fields[] = {
	FIELDS(struct group_types, weight, buffer, gradient, optimizer_state, kv_cache, activation,
	       temporary, backward, optimizer, other, rounding),
	FIELD("free", struct group_types, free_in_pools),
	{0},
};

static const struct field group_fields[] = {
	FIELD("name", struct group, name),
	FIELDS(struct group, depth, count, bytes, blocks, least_bytes, most_bytes),
	OBJECT("types", type_fields, struct group, sums.of),
	{0},
};

static json_t *line_json(const struct groups *g, const struct group_line *l)
{
	json_t *o = json_object();

	put_text(o, "where", text_numbers_text(&g->places, l->place));
	put_number(o, "bytes", l->bytes);
	return o;
}

static json_t *group_json(const struct groups *g, const struct group *one,
			  const struct stacks *stacks)
{
	json_t *o = fields_object(group_fields, one, NULL);

	put_bool(o, "rest", one->is_rest);
	if (g->options.lines && g->options.by == GROUPS_BY_MODULE)
		PUT_LIST(o, "lines", one->nlines < MAX_LINES ? one->nlines : MAX_LINES,
			 line_json(g, &one->lines[i]));
	if (g->options.by == GROUPS_BY_LINE)
		put_stack(o, stacks, one->stack);
	return o;
}

void groups_put(json_t *o, const struct groups *g, const struct stacks *stacks, unsigned top)
{
	json_t *list = json_array();
	size_t hidden_below = SIZE_MAX;

	for (size_t i = 0; i < g->n; i++) {
		if (g->list[i].depth <= hidden_below)
			hidden_below = is_listed(g, i, top) ? SIZE_MAX : g->list[i].depth;
		if (hidden_below == SIZE_MAX)
			json_array_append_new(list, group_json(g, &g->list[i], stacks));
	}
	put_text(o, "by", groups_by_names[g->options.by]);
	put_number(o, "groups_total", g->n);
	put_number(o, "modules_left_out", g->modules_left_out);
	json_object_set_new(o, "groups", list);
}
