/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What was leaked between marks, for people and for programs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text/plain_words.h"
#include "base/text/printable.h"
#include "formats/json_value.h"
#include "memory/analysis/common/json.h"
#include "memory/analysis/common/memory_words.h"
#include "memory/analysis/common/report.h"
#include "memory/analysis/leaks/marks_impl.h"
#include "wire/record.h"

#define MAX_ALLOCATIONS 1000
#define MAX_NAMES 5 /* of other marks */
#define MAX_NAME_BYTES 80
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
		text_add_printable(out, m->text, strlen(m->text));
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
		 words_was(r->nleaks), m->start, m->start + 1, words_was(r->nleaks), m->start + 2);
	struct place *places = places_of(r, &n);
	if (stacks_where(blocks_stacks(m->blocks), places[0].stack, &where))
		buf_addf(out, n == 1 ? ", all from %s" : ", the largest part from %s",
			 buf_str(&where));
	buf_add_char(out, '.');
	buf_release(&where);
	free(places);
}

static bool has_marks(const struct results *all)
{
	for (size_t i = 0; i < all->n; i++)
		if (all->list[i].window->marks)
			return true;
	return false;
}

static int more_often(const void *pa, const void *pb, void *arg)
{
	const struct marks *m = arg;
	uint32_t a = *(const uint32_t *)pa, b = *(const uint32_t *)pb;

	if (m->counts[a] != m->counts[b])
		return m->counts[a] > m->counts[b] ? -1 : 1;
	return (a > b) - (a < b);
}

/* Numbers of the names of marks, the most frequent first. Gives an array of names.count. */
static uint32_t *names_by_count(const struct marks *m)
{
	uint32_t *list = xcalloc(m->names.count + 1, sizeof(*list));

	for (size_t i = 0; i < m->names.count; i++)
		list[i] = (uint32_t)i;
	qsort_r(list, m->names.count, sizeof(*list), more_often, (void *)m);
	return list;
}

/* There is no mark of that name: what there is instead. */
static void say_instead(const struct marks *m, struct buf *out)
{
	uint32_t *list = names_by_count(m);
	size_t n = m->names.count, len;

	for (size_t i = 0; i < n && i < MAX_NAMES; i++) {
		const char *name = names_get(&m->names, list[i], &len);

		buf_add_str(out, i ? ", \"" : " The marks in this file are \"");
		text_add_printable(out, name, len < MAX_NAME_BYTES ? len : MAX_NAME_BYTES);
		buf_add_str(out, len < MAX_NAME_BYTES ? "\" (" : "…\" (");
		words_count(out, m->counts[list[i]]);
		buf_add_char(out, ')');
	}
	if (n > MAX_NAMES) {
		buf_add_str(out, " and ");
		words_of(out, n - MAX_NAMES, "other");
	}
	buf_add_str(out, n ? "." : " There are no marks at all.");
	free(list);
	if (m->steps || m->ranges)
		buf_addf(out,
			 " The steps of this job were told by %s: `sonde mem leaks` without --mark "
			 "uses them.",
			 m->steps ? "step()" : "ranges named \"step start\"");
}

static void print_answer(const struct marks *m, const struct results *all, const struct page *g)
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
	if (!has_marks(all) && (all->n || m->names.count || m->steps || m->ranges))
		say_instead(m, &t);
	page_paragraph(g, 0, &t);
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

static void print_places(const struct marks *m, const struct result *r, const struct page *g)
{
	unsigned top = g->style->top;
	struct buf *out = g->out;
	size_t n;
	struct place *places = places_of(r, &n);

	if (n && top)
		buf_add_str(out, "\nBy place:\n");
	for (size_t i = 0; i < n && i < top; i++) {
		struct stack stack = stacks_get(blocks_stacks(m->blocks), places[i].stack);

		buf_addf(out, "  %s: ", words_pool(places[i].pool->type));
		words_held(out, places[i].bytes, places[i].blocks);
		buf_add_str(out, stack.c || stack.py ? "\n" : ", no call stack recorded\n");
		page_stack(g, 6, stack);
	}
	if (n > top && top)
		page_more(g, 2, n - top, "place");
	free(places);
}

static void print_result(const struct marks *m, const struct result *r, const struct page *g)
{
	struct buf *out = g->out;
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
		print_places(m, r, g);
	}
}

void marks_text(struct analysis *a, const struct analysis_style *style, struct buf *out)
{
	struct marks *m = (struct marks *)a;
	struct page page = page_begin(style, out);
	struct results all = {0};

	judge(m, &all);
	print_answer(m, &all, &page);
	for (size_t i = 0; i < all.n; i++)
		print_result(m, &all.list[i], &page);
	release(&all);
}

/* --- JSON --- */

static json_t *places_value(const struct marks *m, const struct result *r, unsigned top)
{
	json_t *list = json_array();
	size_t n;
	struct place *places = places_of(r, &n);

	for (size_t i = 0; i < n && i < top; i++) {
		json_t *o = json_object();

		put_pool(o, places[i].pool->type);
		put_number(o, "blocks", places[i].blocks);
		put_number(o, "bytes", places[i].bytes);
		put_stack(o, blocks_stacks(m->blocks), places[i].stack);
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
		json_t *o = json_object();

		put_pool(o, e->pool->type);
		put_address(o, "address", e->ptr);
		put_number(o, "bytes", e->bytes);
		put_number(o, "row", e->row);
		put_number(o, "time_ns", e->time_ns);
		json_array_append_new(list, o);
	}
	return list;
}

static json_t *result_value(const struct marks *m, const struct result *r, unsigned top)
{
	static const char *const troubles[] = {[TROUBLE_NONE] = NULL,
					       [TROUBLE_FEW] = "fewer than 3 marks",
					       [TROUBLE_START] = "start is out of bounds"};
	json_t *o = json_object();

	put_number(o, "pid", r->process->pid);
	put_device(o, r->device);
	put_number(o, "marks", r->window->marks);
	put_bool(o, "marks_of_process", r->of_process);
	put_text(o, "error", troubles[r->trouble]);
	put_number(o, "blocks", r->nleaks);
	put_number(o, "bytes", r->bytes);
	json_object_set_new(o, "places", places_value(m, r, top));
	json_object_set_new(o, "allocations", allocations_value(r));
	return o;
}

static json_t *names_value(const struct marks *m, unsigned top)
{
	uint32_t *names = names_by_count(m);
	json_t *list = json_array();
	size_t len;

	for (size_t i = 0; i < m->names.count && i < top; i++) {
		const char *name = names_get(&m->names, names[i], &len);
		json_t *o = json_object();

		json_object_set_new(o, "name", text_value(name, len));
		put_number(o, "count", m->counts[names[i]]);
		json_array_append_new(list, o);
	}
	free(names);
	return list;
}

json_t *marks_json(struct analysis *a, unsigned top)
{
	struct marks *m = (struct marks *)a;
	json_t *o = json_object(), *list = json_array();
	struct results all = {0};

	judge(m, &all);
	json_object_set_new(o, "marks", names_value(m, top));
	put_number(o, "steps", m->steps + m->ranges);
	put_text(o, "mark", m->text);
	put_number(o, "start", m->start);
	put_number(o, "findings", marks_findings(a));
	put_bool(o, "failed", leaks_marks_failed(a));
	for (size_t i = 0; i < all.n; i++)
		json_array_append_new(list, result_value(m, &all.list[i], top));
	json_object_set_new(o, "devices", list);
	release(&all);
	return o;
}
