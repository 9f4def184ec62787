/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What was leaked between marks, for people and for programs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analyze/frames.h"
#include "analyze/leaks_marks_impl.h"
#include "analyze/summary_words.h"
#include "base/args.h"
#include "base/mem.h"
#include "wire/record.h"

#define WIDTH 96
#define MAX_FRAMES 5
#define MAX_ALLOCATIONS 1000
#define MIB 1048576.0

enum trouble { TROUBLE_NONE, TROUBLE_FEW, TROUBLE_START };

struct result {
	const struct block_process *process;
	uint32_t device;
	const struct mark_window *window;
	bool of_process; /* the marks are */
	enum trouble trouble;
	const struct mark_entry **leaks; /* in the order of rows */
	size_t nleaks;
	uint64_t bytes;
};

struct results {
	struct result *list;
	size_t n, cap;
};

/* --- which window speaks for a device --- */

static const struct mark_window *window_for(const struct mark_process *p,
					    const struct mark_device *d, bool *out_of_process)
{
	size_t marked = 0;

	for (size_t i = 0; i < p->ndevices; i++)
		marked += p->devices[i].window.marks != 0;
	*out_of_process = !d->window.marks && marked == 1;
	return *out_of_process ? &p->all : &d->window;
}

static int by_row(const void *pa, const void *pb)
{
	const struct mark_entry *a = *(const struct mark_entry *const *)pa;
	const struct mark_entry *b = *(const struct mark_entry *const *)pb;

	return (a->row > b->row) - (a->row < b->row);
}

static void list_leaks(struct result *r)
{
	size_t cap = 0;

	for (size_t i = 0; i < r->window->nentries; i++) {
		const struct mark_entry *e = &r->window->entries[i];

		if (!e->pool || e->pool->device->device != r->device)
			continue;
		r->leaks = xgrow(r->leaks, &cap, r->nleaks + 1, sizeof(*r->leaks));
		r->leaks[r->nleaks++] = e;
		r->bytes += e->bytes;
	}
	if (r->nleaks)
		qsort(r->leaks, r->nleaks, sizeof(*r->leaks), by_row);
}

static int by_device(const void *pa, const void *pb)
{
	const struct result *a = pa, *b = pb;

	return (a->device > b->device) - (a->device < b->device);
}

static void judge(const struct marks *m, struct results *out)
{
	for (size_t i = 0; i < blocks_nprocesses(m->blocks); i++) {
		const struct block_process *process = blocks_process_at(m->blocks, i);
		const struct mark_process *p = process->own;
		size_t from = out->n;

		for (size_t k = 0; p && k < p->ndevices; k++) {
			const struct mark_device *d = &p->devices[k];
			struct result r = {.process = process, .device = d->device};

			if (d->device == DEV_NONE)
				continue;
			r.window = window_for(p, d, &r.of_process);
			if (r.window->marks < 3)
				r.trouble = TROUBLE_FEW;
			else if (r.window->marks - 3 < m->start)
				r.trouble = TROUBLE_START;
			else
				list_leaks(&r);
			out->list = xgrow(out->list, &out->cap, out->n + 1, sizeof(*out->list));
			out->list[out->n++] = r;
		}
		if (out->n > from)
			qsort(out->list + from, out->n - from, sizeof(*out->list), by_device);
	}
}

static void release(struct results *r)
{
	for (size_t i = 0; i < r->n; i++)
		free(r->list[i].leaks);
	free(r->list);
}

size_t marks_findings(struct analysis *a)
{
	struct results all = {0};
	size_t n = 0;

	judge((struct marks *)a, &all);
	for (size_t i = 0; i < all.n; i++)
		n += all.list[i].nleaks;
	release(&all);
	return n;
}

bool leaks_marks_failed(struct analysis *a)
{
	struct results all = {0};
	bool failed;

	judge((struct marks *)a, &all);
	failed = !all.n;
	for (size_t i = 0; i < all.n; i++)
		failed |= all.list[i].trouble != TROUBLE_NONE;
	release(&all);
	return failed;
}

/* --- places --- */

struct place {
	const struct block_pool *pool;
	uint32_t stack;
	uint64_t blocks, bytes;
};

static int by_place(const void *pa, const void *pb)
{
	const struct place *a = pa, *b = pb;

	if (a->pool->type != b->pool->type)
		return a->pool->type > b->pool->type ? 1 : -1;
	return (a->stack > b->stack) - (a->stack < b->stack);
}

static int larger_first(const void *pa, const void *pb)
{
	const struct place *a = pa, *b = pb;

	if (a->bytes != b->bytes)
		return a->bytes < b->bytes ? 1 : -1;
	return by_place(pa, pb);
}

static struct place *places_of(const struct result *r, size_t *out_n)
{
	struct place *list = xcalloc(r->nleaks + 1, sizeof(*list));
	size_t n = 0;

	for (size_t i = 0; i < r->nleaks; i++)
		list[i] = (struct place){r->leaks[i]->pool, r->leaks[i]->stack, 1,
					 r->leaks[i]->bytes};
	qsort(list, r->nleaks, sizeof(*list), by_place);
	for (size_t i = 0; i < r->nleaks; i++) {
		if (n && by_place(&list[n - 1], &list[i]) == 0) {
			list[n - 1].blocks++;
			list[n - 1].bytes += list[i].bytes;
		} else {
			list[n++] = list[i];
		}
	}
	qsort(list, n, sizeof(*list), larger_first);
	*out_n = n;
	return list;
}

/* --- text --- */

/* A number as Python writes it: the shortest that reads back the same, with a point. */
static void add_float(struct buf *out, double v)
{
	char text[40];

	for (int digits = 1; digits <= 17; digits++) {
		snprintf(text, sizeof(text), "%.*g", digits, v);
		if (strtod(text, NULL) == v)
			break;
	}
	/* Python changes to exponents from 1e16 on only; printf does when digits run out. */
	if (strchr(text, 'e') && v >= 1 && v < 1e16)
		snprintf(text, sizeof(text), "%.0f", v);
	buf_add_str(out, text);
	if (!strpbrk(text, ".e"))
		buf_add_str(out, ".0");
}

static void say_result(const struct marks *m, const struct result *r, struct buf *out)
{
	char device[16];
	struct buf where = {0};
	size_t n;

	buf_addf(out, "Process %u, device %s: ", r->process->pid,
		 blocks_device_name(r->device, device));
	if (r->trouble == TROUBLE_FEW) {
		buf_addf(out, "there are %llu marks \"", (unsigned long long)r->window->marks);
		frame_add_printable(out, m->text, strlen(m->text));
		buf_add_str(out, "\", and three are needed.");
		return;
	}
	if (r->trouble == TROUBLE_START) {
		buf_addf(out, "there are %llu such marks, so --start can be 0 to %llu.",
			 (unsigned long long)r->window->marks,
			 (unsigned long long)r->window->marks - 3);
		return;
	}
	if (!r->nleaks) {
		buf_addf(out,
			 "everything that was allocated between marks %u and %u was freed by mark "
			 "%u.",
			 m->start, m->start + 1, m->start + 2);
		return;
	}
	words_of(out, r->nleaks, "block");
	buf_add_str(out, " (");
	words_bytes(out, r->bytes);
	buf_addf(out, ") that %s allocated between marks %u and %u %s not freed by mark %u",
		 r->nleaks == 1 ? "was" : "were", m->start, m->start + 1,
		 r->nleaks == 1 ? "was" : "were", m->start + 2);
	struct place *places = places_of(r, &n);
	if (stacks_where(blocks_stacks(m->blocks), places[0].stack, &where))
		buf_addf(out, n == 1 ? ", all from %s" : ", the largest part from %s",
			 buf_str(&where));
	buf_add_char(out, '.');
	buf_release(&where);
	free(places);
}

static void print_answer(const struct marks *m, const struct results *all, struct buf *out)
{
	struct buf t = {0};

	for (size_t i = 0; i < all->n; i++) {
		if (i)
			buf_add_char(&t, ' ');
		say_result(m, &all->list[i], &t);
	}
	if (!all->n)
		buf_add_str(&t, "There is nothing to look at: neither an allocation nor such a "
				"mark was recorded.");
	args_wrap(out, buf_str(&t), 0, 0, WIDTH);
	buf_release(&t);
}

static void print_leak(const struct mark_entry *e, struct buf *out)
{
	buf_addf(out, "Direct %s leak of ",
		 e->pool->type == TYPE_HAL ? "Hal memory" : blocks_pool_name(e->pool->type));
	add_float(out, (double)e->bytes / MIB);
	buf_add_str(out, " Mb(s) at ");
	buf_add_addr(out, e->ptr);
	buf_addf(out, " in Index %llu.\n", (unsigned long long)e->row);
}

/* The driver's memory in today's words; then the other pools in the same manner. */
static void print_leaks(const struct result *r, const char *device, struct buf *out)
{
	size_t driver = 0;

	for (size_t i = 0; i < r->nleaks; i++)
		driver += r->leaks[i]->pool->type == TYPE_HAL;
	if (!driver)
		buf_addf(out, "No hal memory leaks detected on device %s.\n", device);
	if (r->nleaks)
		buf_addf(out, "====== ERROR: Detected memory leaks on device %s ======\n", device);
	for (int pass = 0; pass < 2; pass++)
		for (size_t i = 0; i < r->nleaks; i++)
			if ((r->leaks[i]->pool->type == TYPE_HAL) == !pass)
				print_leak(r->leaks[i], out);
}

static void print_frames(const char *text, bool python, struct buf *out)
{
	struct frame_line lines[MAX_FRAMES];
	size_t n = text ? frames_pick(text, python, lines, MAX_FRAMES) : 0;

	for (size_t i = 0; i < n; i++) {
		buf_add_str(out, "      ");
		frame_describe(&lines[i], python, out);
		buf_add_char(out, '\n');
	}
}

static void print_places(const struct marks *m, const struct result *r, unsigned top,
			 struct buf *out)
{
	size_t n;
	struct place *places = places_of(r, &n);

	if (n && top)
		buf_add_str(out, "\nBy place:\n");
	for (size_t i = 0; i < n && i < top; i++) {
		struct stack stack = stacks_get(blocks_stacks(m->blocks), places[i].stack);

		buf_addf(out, "  %s: ", row_type_text(places[i].pool->type, ROW_SEED));
		words_bytes(out, places[i].bytes);
		buf_add_str(out, " in ");
		words_of(out, places[i].blocks, "block");
		buf_add_str(out, stack.c || stack.py ? "\n" : ", no call stack recorded\n");
		print_frames(stack.py, true, out);
		print_frames(stack.c, false, out);
	}
	if (n > top && top) {
		buf_add_str(out, "  and ");
		words_of(out, n - top, "more place");
		buf_add_char(out, '\n');
	}
	free(places);
}

static void print_result(const struct marks *m, const struct result *r, unsigned top,
			 struct buf *out)
{
	char text[16];
	const char *device = blocks_device_name(r->device, text);

	buf_addf(out, "\nINFO: Starting to analyze data for device %s...\n", device);
	if (r->trouble == TROUBLE_FEW) {
		buf_addf(
			out,
			"ERROR: Device %s has fewer than 3 data points. Please re-collect the data "
			"points.\n",
			device);
	} else if (r->trouble == TROUBLE_START) {
		buf_addf(
			out,
			"INFO: Start index %u is out of bounds. Device %s has a total of %llu MSTX "
			"events.\n",
			m->start, device, (unsigned long long)r->window->marks);
	} else {
		buf_add_str(out, "\nLeak Analysis Results for the Custom Range:\n");
		print_leaks(r, device, out);
		print_places(m, r, top, out);
	}
}

void marks_text(struct analysis *a, const struct analysis_style *style, struct buf *out)
{
	struct marks *m = (struct marks *)a;
	struct results all = {0};

	judge(m, &all);
	print_answer(m, &all, out);
	for (size_t i = 0; i < all.n; i++)
		print_result(m, &all.list[i], style->top, out);
	release(&all);
}

/* --- JSON --- */

static void put_u64(json_t *o, const char *key, uint64_t v)
{
	json_object_set_new(o, key, json_integer(v > INT64_MAX ? INT64_MAX : (json_int_t)v));
}

/* Text of foreign bytes: what is not UTF-8 is replaced. */
static json_t *text_value(const char *text, size_t len)
{
	json_t *v = json_stringn(text, len);

	if (v)
		return v;
	char *copy = xstrndup(text, len);
	for (size_t i = 0; i < len; i++)
		if (copy[i] & 0x80)
			copy[i] = '?';
	v = json_stringn(copy, len);
	free(copy);
	return v;
}

static json_t *stack_value(const char *text)
{
	json_t *lines = json_array();
	struct frame_line line;

	while (text && frame_next(&text, &line))
		json_array_append_new(lines, text_value(line.text, line.len));
	return lines;
}

static json_t *places_value(const struct marks *m, const struct result *r, unsigned top)
{
	json_t *list = json_array();
	size_t n;
	struct place *places = places_of(r, &n);

	for (size_t i = 0; i < n && i < top; i++) {
		struct stack stack = stacks_get(blocks_stacks(m->blocks), places[i].stack);
		struct buf where = {0};
		json_t *o = json_object();

		json_object_set_new(o, "pool",
				    json_string(row_type_text(places[i].pool->type, ROW_SEED)));
		put_u64(o, "blocks", places[i].blocks);
		put_u64(o, "bytes", places[i].bytes);
		bool known = stacks_where(blocks_stacks(m->blocks), places[i].stack, &where);
		json_object_set_new(o, "where",
				    known ? text_value(where.data, where.len) : json_null());
		json_object_set_new(o, "c_stack", stack_value(stack.c));
		json_object_set_new(o, "python_stack", stack_value(stack.py));
		buf_release(&where);
		json_array_append_new(list, o);
	}
	free(places);
	return list;
}

static json_t *allocations_value(const struct result *r)
{
	json_t *list = json_array();

	for (size_t i = 0; i < r->nleaks && i < MAX_ALLOCATIONS; i++) {
		const struct mark_entry *e = r->leaks[i];
		struct buf address = {0};
		json_t *o = json_object();

		buf_add_addr(&address, e->ptr);
		json_object_set_new(o, "pool", json_string(row_type_text(e->pool->type, ROW_SEED)));
		json_object_set_new(o, "address", json_string(buf_str(&address)));
		put_u64(o, "bytes", e->bytes);
		put_u64(o, "row", e->row);
		put_u64(o, "time_ns", e->time_ns);
		buf_release(&address);
		json_array_append_new(list, o);
	}
	return list;
}

static json_t *result_value(const struct marks *m, const struct result *r, unsigned top)
{
	static const char *const troubles[] = {
		[TROUBLE_FEW] = "fewer than 3 marks", [TROUBLE_START] = "start is out of bounds"};
	json_t *o = json_object();
	char device[16];

	put_u64(o, "pid", r->process->pid);
	json_object_set_new(o, "device", json_string(blocks_device_name(r->device, device)));
	put_u64(o, "marks", r->window->marks);
	json_object_set_new(o, "marks_of_process", json_boolean(r->of_process));
	json_object_set_new(o, "error",
			    r->trouble ? json_string(troubles[r->trouble]) : json_null());
	put_u64(o, "blocks", r->nleaks);
	put_u64(o, "bytes", r->bytes);
	json_object_set_new(o, "places", places_value(m, r, top));
	json_object_set_new(o, "allocations", allocations_value(r));
	return o;
}

json_t *marks_json(struct analysis *a, unsigned top)
{
	struct marks *m = (struct marks *)a;
	json_t *o = json_object(), *list = json_array();
	struct results all = {0};

	judge(m, &all);
	json_object_set_new(o, "mark", text_value(m->text, strlen(m->text)));
	put_u64(o, "start", m->start);
	put_u64(o, "findings", marks_findings(a));
	json_object_set_new(o, "failed", json_boolean(leaks_marks_failed(a)));
	for (size_t i = 0; i < all.n; i++)
		json_array_append_new(list, result_value(m, &all.list[i], top));
	json_object_set_new(o, "devices", list);
	release(&all);
	return o;
}
