/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/analysis/common/fields.h"

#include <stdio.h>
#include <string.h>

#include "base/text/number_words.h"
#include "base/text/printable.h"
#include "formats/json_value.h"
#include "memory/analysis/common/frames.h"
#include "memory/analysis/common/memory_words.h"

#define NAME_BYTES 48 /* in tables: of a longer name the middle is left out */

void put_device(json_t *o, uint32_t device)
{
	char text[16];

	put_text(o, "device", blocks_device_name(device, text));
}

void put_pool(json_t *o, enum row_type type)
{
	put_text(o, "pool", words_pool(type));
}

void put_in_pool(json_t *o, const struct block_pool *pool)
{
	put_number(o, "pid", pool->process->pid);
	put_device(o, pool->device->device);
	put_pool(o, pool->type);
}

void put_where(json_t *o, const struct stacks *s, uint32_t stack)
{
	struct buf where = {0};

	put_text(o, "where", stacks_place(s, stack, &where) ? buf_str(&where) : NULL);
	buf_clear(&where);
	put_text(o, "via", stacks_via(s, stack, &where) ? buf_str(&where) : NULL);
	buf_release(&where);
}

static json_t *frames_value(const char *text)
{
	json_t *list = json_array();
	struct frame_line line;

	while (text && frame_next(&text, &line))
		json_array_append_new(list, text_value(line.text, line.len));
	return list;
}

/* As report_stack() prints them, but all of them. */
static json_t *call_order_value(struct stack stack)
{
	struct frame_list frames = {0};
	json_t *list = json_array();
	struct buf text = {0};

	frames_join(stack.py, stack.c, FRAMES_USEFUL, &frames);
	for (size_t i = 0; i < frames.n; i++) {
		buf_clear(&text);
		if (frames.list[i].cut)
			buf_add_str(&text, "…");
		else
			frame_describe(&frames.list[i].line, frames.list[i].python, &text);
		json_array_append_new(list, text_value(text.data, text.len));
	}
	buf_release(&text);
	frame_list_release(&frames);
	return list;
}

void put_stack(json_t *o, const struct stacks *s, uint32_t stack)
{
	struct stack lines = stacks_get(s, stack);

	put_where(o, s, stack);
	json_object_set_new(o, "stack", call_order_value(lines));
	json_object_set_new(o, "c_stack", frames_value(lines.c));
	json_object_set_new(o, "python_stack", frames_value(lines.py));
}

/* --- tables of fields --- */

/* A member of a struct, whatever it is. */
union member {
	uint32_t u32;
	uint64_t u64[2];
	int64_t i64[2];
	bool boolean;
	double real;
	const char *text;
	struct frame_line name;
	enum row_type type;
	const struct block_pool *pool;
} __attribute__((packed, may_alias));

static bool is_known(const struct field *f, const void *from)
{
	return !f->known || *(const bool *)((const char *)from + f->known - 1);
}

static uint64_t number_of(const struct field *f, const union member *m)
{
	bool wide = f->kind == FIELD_U64 || f->kind == FIELD_BYTES || f->kind == FIELD_DURATION;

	return wide ? m->u64[0] : m->u32;
}

static int64_t subtract(int64_t a, int64_t b)
{
	int64_t v;

	return __builtin_sub_overflow(a, b, &v) ? (a < b ? INT64_MIN : INT64_MAX) : v;
}

/* plus: with a sign in any case. */
static void add_signed(struct buf *out, int64_t v, bool plus)
{
	add_text(out, "{}{}",
		 TEXT(v < 0	  ? "-"
		      : v && plus ? "+"
				  : ""),
		 BYTES(v < 0 ? -(uint64_t)v : (uint64_t)v));
}

static void put_field(json_t *o, const struct field *f, const void *from, const struct stacks *s)
{
	const union member *m = (const void *)((const char *)from + f->offset);

	if (!is_known(f, from)) {
		json_object_set_new(o, f->key, json_null());
		return;
	}
	switch (f->kind) {
	case FIELD_U32:
	case FIELD_ID:
	case FIELD_U64:
	case FIELD_BYTES:
		put_number(o, f->key, number_of(f, m));
		break;
	case FIELD_BOOL:
		put_bool(o, f->key, m->boolean);
		break;
	case FIELD_REAL:
		json_object_set_new(o, f->key, json_real(m->real));
		break;
	case FIELD_TEXT:
		put_text(o, f->key, m->text);
		break;
	case FIELD_NAME:
		json_object_set_new(o, f->key, text_value(m->name.text, m->name.len));
		break;
	case FIELD_ADDRESS:
		put_address(o, f->key, m->u64[0]);
		break;
	case FIELD_DEVICE:
		put_device(o, m->u32);
		break;
	case FIELD_POOL:
		put_pool(o, m->type);
		break;
	case FIELD_IN_POOL:
		put_in_pool(o, m->pool);
		break;
	case FIELD_WHERE:
		put_where(o, s, m->u32);
		break;
	case FIELD_STACK:
		put_stack(o, s, m->u32);
		break;
	case FIELD_DIFFERENCE:
		json_object_set_new(o, f->key, json_integer(subtract(m->i64[1], m->i64[0])));
		break;
	case FIELD_SIGNED:
		json_object_set_new(o, f->key, json_integer(m->i64[0]));
		break;
	case FIELD_DURATION:
	case FIELD_PAIR:
		break;
	case FIELD_OBJECT:
		json_object_set_new(o, f->key, fields_object(f->of, m, s));
		break;
	}
}

void fields_put(json_t *o, const struct field *fields, const void *from,
		const struct stacks *stacks)
{
	for (const struct field *f = fields; f->key || f->title; f++)
		if (f->key)
			put_field(o, f, from, stacks);
}

json_t *fields_object(const struct field *fields, const void *from, const struct stacks *stacks)
{
	json_t *o = json_object();

	fields_put(o, fields, from, stacks);
	return o;
}

json_t *fields_list(const struct field *fields, const void *list, size_t n, size_t size,
		    const struct stacks *stacks)
{
	json_t *values = json_array();

	for (size_t i = 0; i < n; i++)
		json_array_append_new(values,
				      fields_object(fields, (const char *)list + i * size, stacks));
	return values;
}

static void add_name(struct buf *out, struct frame_line name)
{
	struct buf text = {0};

	text_add_printable(&text, name.text, name.len);
	if (text.len > NAME_BYTES)
		buf_addf(out, "%.*s...%s", NAME_BYTES / 2 - 2, text.data,
			 buf_str(&text) + text.len - NAME_BYTES / 2 + 1);
	else
		buf_add(out, text.data, text.len);
	buf_release(&text);
}

/* How the numbers of a field read in a table. */
static const enum word_kind cell_words[] = {
	[FIELD_U32] = WORD_COUNT,	  [FIELD_U64] = WORD_COUNT,	[FIELD_ID] = WORD_NUMBER,
	[FIELD_BYTES] = WORD_BYTES,	  [FIELD_DEVICE] = WORD_DEVICE, [FIELD_POOL] = WORD_POOL,
	[FIELD_DURATION] = WORD_DURATION,
};

static void add_cell(struct buf *out, const struct field *f, const void *from)
{
	const union member *m = (const void *)((const char *)from + f->offset);

	if (f->kind == FIELD_TEXT) {
		buf_add_str(out, m->text);
	} else if (f->kind == FIELD_NAME) {
		add_name(out, m->name);
	} else if (f->kind == FIELD_PAIR) {
		add_text(out, "{}/{}", COUNT(m->u64[0]), COUNT(m->u64[1]));
	} else if (f->kind == FIELD_DIFFERENCE) {
		add_signed(out, subtract(m->i64[1], m->i64[0]), true);
	} else if (f->kind == FIELD_SIGNED) {
		add_signed(out, m->i64[0], false);
	} else {
		const struct word w = {cell_words[f->kind], number_of(f, m), 0, NULL, NULL};

		words_add(out, "{}", &w, 1);
	}
}

/* The process and the device of a pool in cells of their own; the pool is left in `cell`. */
static void add_in_pool(struct table *t, const struct block_pool *pool, struct buf *cell)
{
	add_text(cell, "{}", NUMBER(pool->process->pid));
	table_cell(t, cell);
	add_text(cell, "{}", DEVICE(pool->device->device));
	table_cell(t, cell);
	add_text(cell, "{}", POOL(pool->type));
}

static void add_row(struct table *t, const struct field_table *table, const void *from)
{
	struct buf cell = {0};

	for (const struct field *f = table->fields; f->key || f->title; f++) {
		if (!f->title)
			continue;
		if (f->kind == FIELD_IN_POOL)
			add_in_pool(t,
				    *(struct block_pool *const *)((const char *)from + f->offset),
				    &cell);
		else if (is_known(f, from))
			add_cell(&cell, f, from);
		else
			buf_add_str(&cell, table->unknown ? table->unknown : "-");
		table_cell(t, &cell);
	}
	buf_release(&cell);
}

void report_fields(const struct report *r, const struct field_table *table, const void *list,
		   size_t n, size_t size)
{
	const char *titles[TABLE_COLUMNS + 1] = {0};
	struct table t = {
		.titles = titles, .text_columns = table->text_columns, .indent = table->indent};
	size_t columns = 0;

	for (const struct field *f = table->fields; f->key || f->title; f++) {
		const char *title = f->title;

		for (int k = f->kind == FIELD_IN_POOL ? 3 : 1; title && k; k--) {
			titles[columns++] = title;
			title += strlen(title) + 1;
		}
	}
	for (size_t i = 0; i < n; i++)
		add_row(&t, table, (const char *)list + i * size);
	report_table(r, &t);
}
