/* SPDX-License-Identifier: MulanPSL-2.0 */
/* A comparison as text (the answer, the names that differ most, the largest single differences) and
 * as JSON; compare.h names its keys. */
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "formats/json_value.h"
#include "memory/analysis/common/fields.h"
#include "memory/analysis/common/frames.h"
#include "memory/analysis/compare/compare_impl.h"

struct view {
	struct report report;
	const struct compare *c;
};

static struct frame_line name_of(const struct compare *c, uint32_t number)
{
	struct frame_line name;

	name.text = names_get(&c->names, number, &name.len);
	return name;
}

/* --- the largest differences, by name and one by one --- */

static const struct field call_fields[] = {
	FIELDS(struct compare_counts, base, compare, both, only_base, only_compare),
	FIELD("other_memory", struct compare_counts, changed),
	{0},
};
static const struct field memory_fields[] = {
	FIELDS(struct compare_counts, base_bytes, compare_bytes),
	FIELD_AS("diff_bytes", FIELD_DIFFERENCE, struct compare_counts, base_bytes),
	FIELD_AS("both_diff_bytes", FIELD_DIFFERENCE, struct compare_counts, both_base_bytes),
	{0},
};
#define COUNTS(type_, member_)                                                                     \
	OBJECT("calls", call_fields, type_, member_),                                              \
		OBJECT("memory", memory_fields, type_, member_)

struct name_row {
	struct frame_line name;
	struct compare_counts counts;
	uint32_t number;
};

static const struct field name_fields[] = {
	COLUMN("name", "Name", FIELD_NAME, struct name_row, name),
	COUNTS(struct name_row, counts),
	COLUMN(NULL, "Calls", FIELD_PAIR, struct name_row, counts.base),
	COLUMN(NULL, "Unpaired", FIELD_PAIR, struct name_row, counts.only_base),
	COLUMN(NULL, "Other memory", FIELD_U64, struct name_row, counts.changed),
	COLUMN(NULL, "Difference", FIELD_DIFFERENCE, struct name_row, counts.base_bytes),
	{0},
};

static uint64_t differences_of(const struct compare_counts *t)
{
	return t->only_base + t->only_compare + t->changed;
}

static int by_weight(const void *pa, const void *pb)
{
	const struct name_row *a = pa, *b = pb;
	const struct compare_counts *x = &a->counts, *y = &b->counts;

	return ORDER(compare_signed_distance(y->base_bytes, y->compare_bytes),
		     compare_signed_distance(x->base_bytes, x->compare_bytes))
		       ?: ORDER(differences_of(y), differences_of(x))
		       ?: ORDER(a->number, b->number);
}

/* The `top` names with the largest differences, to be freed. */
static struct name_row *list_names(const struct compare *c, size_t top, size_t *out_n,
				   size_t *out_total)
{
	struct name_row *list = xmalloc(c->names.count * sizeof(*list));
	size_t n = 0;

	for (uint32_t i = 0; i < c->names.count; i++)
		if (differences_of(&c->by_name[i]))
			list[n++] = (struct name_row){name_of(c, i), c->by_name[i], i};
	SORT(list, n, by_weight);
	*out_total = n;
	*out_n = n < top ? n : top;
	return list;
}

/* A single difference. */
struct line_row {
	const char *event;
	struct frame_line name;
	uint32_t device;
	bool in_base, in_compare;
	uint64_t base_call, compare_call; /* counted from 1 */
	int64_t base_bytes, compare_bytes;
	const struct compare_pair *pair;
};

static const struct field line_fields[] = {
	FIELD("event", struct line_row, event),
	COLUMN("name", "Name", FIELD_NAME, struct line_row, name),
	COLUMN("device", "Device", FIELD_DEVICE, struct line_row, device),
	KNOWN("base_call", "Base call", FIELD_U64, struct line_row, base_call, in_base),
	KNOWN("base_bytes", NULL, FIELD_SIGNED, struct line_row, base_bytes, in_base),
	KNOWN("compare_call", "Compare call", FIELD_U64, struct line_row, compare_call, in_compare),
	KNOWN("compare_bytes", NULL, FIELD_SIGNED, struct line_row, compare_bytes, in_compare),
	KNOWN(NULL, "Base", FIELD_SIGNED, struct line_row, base_bytes, in_base),
	KNOWN(NULL, "Compare", FIELD_SIGNED, struct line_row, compare_bytes, in_compare),
	COLUMN("diff_bytes", "Difference", FIELD_DIFFERENCE, struct line_row, base_bytes),
	{0},
};

static int by_size(const void *pa, const void *pb)
{
	const struct line_row *a = pa, *b = pb;

	/* The calls: their sum grows by one or two with every line of a pair. */
	return ORDER(compare_signed_distance(b->base_bytes, b->compare_bytes),
		     compare_signed_distance(a->base_bytes, a->compare_bytes))
		       ?: ORDER(a->pair, b->pair)
		       ?: ORDER(a->base_call + a->compare_call, b->base_call + b->compare_call);
}

static struct line_row row_of(const struct compare *c, const struct compare_line *l)
{
	return (struct line_row){
		.event = l->kernel ? "KERNEL_LAUNCH" : "OP_LAUNCH",
		.name = name_of(c, l->name),
		.device = l->pair->device,
		.in_base = l->kind != ALIGN_COMPARE,
		.in_compare = l->kind != ALIGN_BASE,
		.base_call = l->call[COMPARE_BASE] + 1,
		.compare_call = l->call[COMPARE_OTHER] + 1,
		.base_bytes = l->size[COMPARE_BASE],
		.compare_bytes = l->size[COMPARE_OTHER],
		.pair = l->pair,
	};
}

/* The `top` largest differences, to be freed. */
static struct line_row *list_lines(const struct compare *c, size_t top, size_t *out_n)
{
	struct line_row *list = NULL;
	size_t n = 0, cap = 0;

	for (size_t i = 0; i < c->npairs && top; i++) {
		struct compare_walk w = {.compare = c, .pair = &c->pairs[i]};
		struct compare_line line;

		while (compare_next(&w, &line)) {
			if (!compare_line_differs(&line))
				continue;
			if (n == 2 * top + 64) { /* the lower part can never come back */
				SORT(list, n, by_size);
				n = top;
			}
			LIST_ADD(list, n, cap, row_of(c, &line));
		}
	}
	SORT(list, n, by_size);
	*out_n = n < top ? n : top;
	return list;
}

/* --- the answer --- */

static void describe_calls(const struct view *g, struct buf *t, uint64_t n)
{
	add_text(t, "{}", COUNT(n));
	if (g->c->level != (COMPARE_OPERATORS | COMPARE_KERNELS))
		add_text(t, " {}", TEXT(compare_noun(g->c)));
	add_text(t, n == 1 ? " call" : " calls");
}

static void describe_memory(const struct view *g, struct buf *t)
{
	const struct compare_counts *n = &g->c->counts;
	int64_t base = n->both_base_bytes, compare = n->both_compare_bytes;
	uint64_t names = 0;

	for (size_t i = 0; i < g->c->names.count; i++)
		names += g->c->by_name[i].changed > 0;
	if (!n->changed) {
		add_text(t, " The calls in both use the same amount of memory.");
		return;
	}
	add_text(t, " Of the calls in both, {} {} a different amount of memory ({}): ",
		 COUNT(n->changed), TEXT(n->changed == 1 ? "uses" : "use"),
		 COUNT_OF(names, "different name"));
	if (base == compare)
		add_text(t, "the sum is the same.");
	else
		add_text(t, "compare has {} {} in them.",
			 BYTES(compare_signed_distance(base, compare)),
			 TEXT(compare > base ? "more" : "less"));
}

static void describe_sequences(const struct view *g, struct buf *t)
{
	const struct compare_counts *n = &g->c->counts;

	add_text(t, "The sequences differ: ");
	if (n->only_base) {
		describe_calls(g, t, n->only_base);
		add_text(t, " only in base, ");
	}
	if (n->only_compare && n->only_base)
		add_text(t, "{}", COUNT(n->only_compare));
	else if (n->only_compare)
		describe_calls(g, t, n->only_compare);
	add_text(t, n->only_compare ? " only in compare, {} in both." : "{} in both.",
		 COUNT(n->both));
}

static void print_answer(const struct view *g)
{
	const struct compare_counts *n = &g->c->counts;
	struct buf t = {0};

	if (!compare_differences(g->c)) {
		add_text(&t, "Both are the same: ");
		describe_calls(g, &t, n->both);
		add_text(&t, " on {}, all with the same memory.", COUNT_OF(g->c->npairs, "device"));
	} else if (!n->only_base && !n->only_compare) {
		add_text(&t, "The sequences are the same (");
		describe_calls(g, &t, n->both);
		add_text(&t, "), the memory is not.");
		describe_memory(g, &t);
	} else {
		describe_sequences(g, &t);
		if (n->both)
			describe_memory(g, &t);
	}
	report_paragraph(&g->report, 0, &t);
}

static void print_table(const struct view *g, const char *title, size_t total,
			const struct field *fields, const void *rows, size_t n, size_t size)
{
	struct buf heading = {0};

	if (!n)
		return;
	add_text(&heading, "{} ({} of {}):", TEXT(title), NUMBER(n), NUMBER(total));
	report_heading(&g->report, &heading);
	report_fields(&g->report, &(struct field_table){fields, 1, 0, NULL}, rows, n, size);
}

static void print_notes(const struct view *g)
{
	for (size_t at = 0; at < g->c->notes.len;) {
		const char *line = g->c->notes.data + at;
		size_t len = (size_t)((char *)memchr(line, '\n', g->c->notes.len - at) - line);
		struct buf t = {0};

		buf_addf(&t, "Note: %.*s", (int)len, line);
		report_add(&g->report, at ? "" : "\n");
		report_paragraph(&g->report, 0, &t);
		at += len + 1;
	}
}

static void describe_loss(const struct compare *c, struct buf *out)
{
	loss_describe(&c->input[COMPARE_BASE].loss, "base", out);
	add_text(out, out->len && loss_any(&c->input[COMPARE_OTHER].loss) ? " " : "");
	loss_describe(&c->input[COMPARE_OTHER].loss, "compare", out);
}

/* Before the answer, which is from what is left. */
static void print_loss(const struct view *g)
{
	struct buf t = {0};

	describe_loss(g->c, &t);
	if (t.len) {
		report_paragraph(&g->report, 0, &t);
		report_add(&g->report, "\n");
	}
}

void compare_text(const struct compare *c, unsigned top, bool colour, struct buf *out)
{
	struct analysis_style style = {.colour = colour, .top = top};
	struct view g = {report_begin(&style, out), c};
	size_t n, total;

	print_loss(&g);
	if (c->sites) {
		sites_text(c->sites, &g.report);
		print_notes(&g);
		return;
	}
	struct name_row *names = list_names(c, top, &n, &total);
	print_answer(&g);
	print_table(&g, "Names that differ, base/compare", total, name_fields, names, n,
		    sizeof(*names));
	free(names);
	struct line_row *lines = list_lines(c, top, &n);
	print_table(&g, "Largest differences", compare_differences(c), line_fields, lines, n,
		    sizeof(*lines));
	free(lines);
	print_notes(&g);
}

static void put_loss(const struct compare *c, json_t *o)
{
	json_t *lost = json_object();
	struct buf t = {0};

	describe_loss(c, &t);
	put_text(o, "incomplete", t.len ? buf_str(&t) : NULL);
	json_object_set_new(lost, "base", loss_value(&c->input[COMPARE_BASE].loss));
	json_object_set_new(lost, "compare", loss_value(&c->input[COMPARE_OTHER].loss));
	json_object_set_new(o, "lost", lost);
	buf_release(&t);
}

json_t *compare_json(const struct compare *c, unsigned top)
{
	static const struct field pair_fields[] = {
		FIELD_AS("device", FIELD_DEVICE, struct compare_pair, device),
		COUNTS(struct compare_pair, counts),
		{0},
	};
	static const struct field whole_fields[] = {COUNTS(struct compare, counts), {0}};
	json_t *o = json_object();
	size_t n, total;

	put_loss(c, o);
	put_bool(o, "identical", !compare_differences(c));
	put_text(o, "what", compare_noun(c));
	if (c->sites) {
		sites_json(c->sites, top, o);
		json_object_set_new(o, "notes", lines_value(&c->notes));
		return o;
	}
	struct name_row *names = list_names(c, top, &n, &total);
	put_text(o, "framework", compare_framework(c));
	fields_put(o, whole_fields, c, NULL);
	json_object_set_new(o, "devices",
			    fields_list(pair_fields, c->pairs, c->npairs, sizeof(*c->pairs), NULL));
	put_number(o, "names_total", total);
	json_object_set_new(o, "names", fields_list(name_fields, names, n, sizeof(*names), NULL));
	free(names);
	struct line_row *lines = list_lines(c, top, &n);
	put_number(o, "differences_total", compare_differences(c));
	json_object_set_new(o, "differences",
			    fields_list(line_fields, lines, n, sizeof(*lines), NULL));
	free(lines);
	json_object_set_new(o, "notes", lines_value(&c->notes));
	return o;
}
