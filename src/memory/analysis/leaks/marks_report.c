/* SPDX-License-Identifier: MulanPSL-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text/printable.h"
#include "formats/json_value.h"
#include "memory/analysis/common/fields.h"
#include "memory/analysis/leaks/marks_impl.h"
#include "wire/record.h"

#define MAX_ALLOCATIONS 1000
#define MAX_OTHER_MARKS 5 /* other marks in the answer */
#define MAX_NAME_BYTES 80
#define MIB 1048576.0

/* --- call sites --- */

struct mark_site {
	uint32_t stack;
	enum row_type type;
	uint64_t blocks, bytes;
};

static int by_site(const void *pa, const void *pb)
{
	const struct mark_site *a = pa, *b = pb;

	return ORDER(a->type, b->type) ?: ORDER(a->stack, b->stack);
}

static int larger_first(const void *pa, const void *pb)
{
	const struct mark_site *a = pa, *b = pb;

	return ORDER(b->bytes, a->bytes) ?: by_site(pa, pb);
}

/* Where the leaks of a device come from, the largest first. Gives an array. */
static struct mark_site *list_sites(const struct mark_result *r, size_t *out_n)
{
	struct mark_site *list = xcalloc(r->nleaks + 1, sizeof(*list));
	size_t n = 0;

	for (size_t i = 0; i < r->nleaks; i++)
		list[i] = (struct mark_site){r->leaks[i]->stack, r->leaks[i]->pool->type, 1,
					     r->leaks[i]->bytes};
	SORT(list, r->nleaks, by_site);
	for (size_t i = 0; i < r->nleaks; i++) {
		if (n && by_site(&list[n - 1], &list[i]) == 0) {
			list[n - 1].blocks++;
			list[n - 1].bytes += list[i].bytes;
		} else {
			list[n++] = list[i];
		}
	}
	SORT(list, n, larger_first);
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

static void describe_leaks(const struct marks *m, const struct mark_result *r, struct buf *out)
{
	const char *was = words_was(r->nleaks);
	size_t n;
	struct mark_site *sites = list_sites(r, &n);

	add_text(out, "{} ({}) that {} allocated between marks {} and {} {} not freed by mark {}",
		 COUNT_OF(r->nleaks, "block"), BYTES(r->bytes), TEXT(was), NUMBER(m->start),
		 NUMBER(m->start + 1), TEXT(was), NUMBER(m->start + 2));
	if (sites[0].stack)
		add_text(out, n == 1 ? ", all from {}" : ", the largest part from {}",
			 WHERE(&m->base.blocks->stacks, sites[0].stack));
	add_text(out, ".");
	free(sites);
}

static void describe_result(const struct marks *m, const struct mark_result *r, struct buf *out)
{
	uint64_t marks = r->window->marks;

	add_text(out, "Process {}, device {}: ", NUMBER(r->process->pid), DEVICE(r->device));
	if (r->problem == MARK_TROUBLE_FEW)
		add_text(out, "there are {} marks \"{}\", and three are needed.", NUMBER(marks),
			 PRINTABLE(m->text));
	else if (r->problem == MARK_TROUBLE_START)
		add_text(out, "there are {} such marks, so --start can be 0 to {}.", NUMBER(marks),
			 NUMBER(marks - 3));
	else if (!r->nleaks)
		add_text(out,
			 "everything that was allocated between marks {} and {} was freed by mark "
			 "{}.",
			 NUMBER(m->start), NUMBER(m->start + 1), NUMBER(m->start + 2));
	else
		describe_leaks(m, r, out);
}

static bool has_marks(const struct mark_results *all)
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

	return ORDER(m->counts[b], m->counts[a]) ?: ORDER(a, b);
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
static void describe_instead(const struct marks *m, struct buf *out)
{
	uint32_t *list = names_by_count(m);
	size_t n = m->names.count, len;

	for (size_t i = 0; i < n && i < MAX_OTHER_MARKS; i++) {
		const char *name = names_get(&m->names, list[i], &len);
		bool whole = len < MAX_NAME_BYTES;

		add_text(out, i ? ", \"" : " The marks in this file are \"");
		text_add_printable(out, name, whole ? len : MAX_NAME_BYTES);
		add_text(out, "{}\" ({})", TEXT(whole ? "" : "…"), COUNT(m->counts[list[i]]));
	}
	if (n > MAX_OTHER_MARKS)
		add_text(out, " and {}", COUNT_OF(n - MAX_OTHER_MARKS, "other"));
	add_text(out, n ? "." : " There are no marks at all.");
	free(list);
	if (m->steps || m->ranges)
		add_text(out,
			 " The steps of this job were reported by {}: `sonde mem leaks` without "
			 "--mark "
			 "uses "
			 "them.",
			 TEXT(m->steps ? "step()" : "ranges named \"step start\""));
}

static void print_answer(const struct marks *m, const struct mark_results *all,
			 const struct report *r)
{
	struct buf t = {0};

	for (size_t i = 0; i < all->n; i++) {
		add_text(&t, i ? " " : "");
		describe_result(m, &all->list[i], &t);
	}
	if (!all->n)
		add_text(&t,
			 "There is nothing to look at: neither an allocation nor such a mark was "
			 "recorded.");
	if (!has_marks(all) && (all->n || m->names.count || m->steps || m->ranges))
		describe_instead(m, &t);
	report_paragraph(r, 0, &t);
}

static void print_leak(const struct mark_entry *e, struct buf *out)
{
	add_text(out, "Direct {} leak of ",
		 TEXT(e->pool->type == TYPE_HAL ? "Hal memory" : blocks_pool_name(e->pool->type)));
	add_float(out, (double)e->bytes / MIB);
	add_text(out, " Mb(s) at ");
	buf_add_addr(out, e->ptr);
	add_text(out, " in Index {}.\n", NUMBER(e->row));
}

/* The driver's memory in the words of msmemscope; then the other pools in the same manner. */
static void print_leaks(const struct mark_result *r, struct buf *out)
{
	size_t driver = 0;

	for (size_t i = 0; i < r->nleaks; i++)
		driver += r->leaks[i]->pool->type == TYPE_HAL;
	if (!driver)
		add_text(out, "No hal memory leaks detected on device {}.\n", DEVICE(r->device));
	if (r->nleaks)
		add_text(out, "====== ERROR: Detected memory leaks on device {} ======\n",
			 DEVICE(r->device));
	for (int pass = 0; pass < 2; pass++)
		for (size_t i = 0; i < r->nleaks; i++)
			if ((r->leaks[i]->pool->type == TYPE_HAL) == !pass)
				print_leak(r->leaks[i], out);
}

static void print_sites(const struct marks *m, const struct mark_result *result,
			const struct report *r)
{
	unsigned top = r->style->top;
	size_t n;
	struct mark_site *sites = list_sites(result, &n);

	if (n && top && r->style->literal)
		report_add(r, "\nBy place:\n");
	for (size_t i = 0; i < n && i < top; i++) {
		report_add(r, "  {}: {}{}\n", POOL(sites[i].type),
			   HELD(sites[i].bytes, sites[i].blocks),
			   TEXT(sites[i].stack ? "" : ", no call stack recorded"));
		report_stack(r, 6, stacks_get(&m->base.blocks->stacks, sites[i].stack));
	}
	if (n > top && top)
		report_more(r, 2, n - top, "place");
	free(sites);
}

/* What there is to see of a device: with the words of msMemScope, or by place alone. */
static void print_result(const struct marks *m, const struct mark_result *result,
			 const struct report *r)
{
	const struct word device = DEVICE(result->device);

	if (!r->style->literal) {
		if (result->nleaks && !result->problem && r->style->top)
			report_add(r, "\nDevice {}\n", device);
		if (!result->problem)
			print_sites(m, result, r);
		return;
	}
	report_add(r, "\nINFO: Starting to analyze data for device {}...\n", device);
	if (result->problem == MARK_TROUBLE_FEW) {
		report_add(r,
			   "ERROR: Device {} has fewer than 3 data points. Please re-collect the "
			   "data points.\n",
			   device);
	} else if (result->problem == MARK_TROUBLE_START) {
		report_add(r,
			   "INFO: Start index {} is out of bounds. Device {} has a total of {} "
			   "MSTX events.\n",
			   NUMBER(m->start), device, NUMBER(result->window->marks));
	} else {
		report_add(r, "\nLeak Analysis Results for the Custom Range:\n");
		print_leaks(result, r->out);
		print_sites(m, result, r);
	}
}

void marks_text(struct analysis *a, const struct analysis_style *style, struct buf *out)
{
	struct marks *m = (struct marks *)a;
	struct report report = report_begin(style, out);
	struct mark_results all = {0};

	marks_judge(m, &all);
	print_answer(m, &all, &report);
	for (size_t i = 0; i < all.n; i++)
		print_result(m, &all.list[i], &report);
	marks_results_release(&all);
}

/* --- JSON --- */

static const struct field site_fields[] = {
	FIELD_AS("pool", FIELD_POOL, struct mark_site, type),
	FIELDS(struct mark_site, blocks, bytes),
	FIELD_AS("where", FIELD_STACK, struct mark_site, stack),
	{0},
};

static const struct field allocation_fields[] = {
	FIELD_AS("address", FIELD_ADDRESS, struct mark_entry, ptr),
	FIELDS(struct mark_entry, bytes, row, time_ns),
	{0},
};

static json_t *result_value(const struct marks *m, const struct mark_result *r, unsigned top)
{
	static const char *const problems[] = {[MARK_TROUBLE_NONE] = NULL,
					       [MARK_TROUBLE_FEW] = "fewer than 3 marks",
					       [MARK_TROUBLE_START] = "start is out of bounds"};
	json_t *o = json_object(), *allocations = json_array();
	size_t n;
	struct mark_site *sites = list_sites(r, &n);

	put_number(o, "pid", r->process->pid);
	put_device(o, r->device);
	put_number(o, "marks", r->window->marks);
	put_bool(o, "marks_of_process", r->of_process);
	put_text(o, "error", problems[r->problem]);
	put_number(o, "blocks", r->nleaks);
	put_number(o, "bytes", r->bytes);
	json_object_set_new(o, "places",
			    fields_list(site_fields, sites, n < top ? n : top, sizeof(*sites),
					&m->base.blocks->stacks));
	for (size_t i = 0; i < r->nleaks && i < MAX_ALLOCATIONS; i++) {
		json_t *one = json_object();

		put_pool(one, r->leaks[i]->pool->type);
		fields_put(one, allocation_fields, r->leaks[i], NULL);
		json_array_append_new(allocations, one);
	}
	json_object_set_new(o, "allocations", allocations);
	free(sites);
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
	json_t *o = json_object();
	struct mark_results all = {0};

	marks_judge(m, &all);
	json_object_set_new(o, "marks", names_value(m, top));
	put_number(o, "steps", m->steps + m->ranges);
	put_text(o, "mark", m->text);
	put_number(o, "start", m->start);
	put_number(o, "findings", a->ops->findings(a));
	put_bool(o, "failed", leaks_marks_failed(a));
	PUT_LIST(o, "devices", all.n, result_value(m, &all.list[i], top));
	marks_results_release(&all);
	return o;
}
