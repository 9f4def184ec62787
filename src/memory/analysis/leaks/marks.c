/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/analysis/leaks/marks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/containers/names.h"
#include "base/mem.h"
#include "base/text/printable.h"
#include "formats/json_value.h"
#include "memory/analysis/common/fields.h"
#include "wire/record.h"

#define MAX_NAMES 10000u
#define MAX_ALLOCATIONS 1000
#define MAX_SAID 5 /* other marks in the answer */
#define MAX_NAME_BYTES 80
#define MIB 1048576.0
#define BY_ADDRESS (1ull << 63) /* of a block's key: there was no allocation id */

/* A block that was allocated between A and B and is not freed yet. */
struct mark_entry {
	const struct block_pool *pool; /* NULL: the entry is not in use */
	uint64_t ptr, bytes, row, time_ns;
	uint64_t key;
	uint32_t stack;
	uint32_t older; /* entry + 1 at the same address, without allocation ids; 0: none */
};

struct mark_window {
	uint64_t marks; /* seen so far */
	struct mark_entry *entries;
	size_t nentries, cap;
	uint32_t unused; /* entry + 1; the list goes on in `older` */
	struct hmap by_key; /* newest entry, in dumps without allocation ids */
};

/* What is known of a device of a process; there is a window for the process, too. */
struct mark_device {
	uint32_t device;
	struct mark_window window;
};

struct mark_process {
	struct mark_window all;
	struct mark_device *devices;
	size_t ndevices, cap;
};

struct marks {
	struct analysis base;
	char *text;
	unsigned start;
	struct names names; /* of the marks there are, at most MAX_NAMES … */
	uint64_t *counts; /* … and how many of each */
	size_t cap_counts;
	uint64_t steps; /* that the program marked by a call … */
	uint64_t ranges; /* … or by ranges */
};

/* Which word of block->own belongs to which window: its entry + 1. */
enum { OWN_IN_DEVICE, OWN_IN_PROCESS };

enum phase { PHASE_BEFORE, PHASE_A_TO_B, PHASE_B_TO_C, PHASE_AFTER };

static enum phase phase_of(const struct marks *m, const struct mark_window *w)
{
	if (w->marks <= m->start)
		return PHASE_BEFORE;
	uint64_t past = w->marks - m->start;
	return past == 1 ? PHASE_A_TO_B : past == 2 ? PHASE_B_TO_C : PHASE_AFTER;
}

/* --- windows --- */

static uint32_t entry_new(struct mark_window *w)
{
	uint32_t n = w->unused;

	if (n) {
		w->unused = w->entries[n - 1].older;
		return n;
	}
	w->entries = xgrow(w->entries, &w->cap, w->nentries + 1, sizeof(*w->entries));
	return (uint32_t)++w->nentries;
}

static void window_add(struct mark_window *w, struct block *b, unsigned own)
{
	uint32_t n = entry_new(w);
	uint32_t older = 0;

	if (b->key & BY_ADDRESS) {
		uint64_t found = hmap_put(&w->by_key, b->key, n);
		older = found == HMAP_NONE ? 0 : (uint32_t)found;
	}
	w->entries[n - 1] = (struct mark_entry){.pool = b->pool,
						.ptr = b->ptr,
						.bytes = b->bytes,
						.row = b->row,
						.time_ns = b->time_ns,
						.key = b->key,
						.stack = b->stack,
						.older = older};
	b->own[own] = n;
}

static void window_remove(struct mark_window *w, struct block *b, unsigned own)
{
	uint32_t n = (uint32_t)b->own[own], older;

	if (b->key & BY_ADDRESS) {
		uint64_t found = hmap_remove(&w->by_key, b->key);
		n = found == HMAP_NONE ? 0 : (uint32_t)found;
	}
	for (; n; n = older) {
		struct mark_entry *e = &w->entries[n - 1];

		older = e->key & BY_ADDRESS ? e->older : 0;
		*e = (struct mark_entry){.older = w->unused};
		w->unused = n;
	}
	b->own[own] = 0;
}

static void window_change(const struct marks *m, struct mark_window *w,
			  const struct block_change *c, unsigned own)
{
	enum phase phase = phase_of(m, w);

	if (c->what == BLOCKS_ALLOC && phase == PHASE_A_TO_B && !c->block->shadow)
		window_add(w, c->block, own);
	else if (c->what != BLOCKS_ALLOC && (phase == PHASE_A_TO_B || phase == PHASE_B_TO_C))
		window_remove(w, c->block, own);
}

static void window_release(struct mark_window *w)
{
	free(w->entries);
	hmap_release(&w->by_key);
}

/* --- rows --- */

static struct mark_process *process_of(struct block_process *p)
{
	if (!p->own)
		p->own = xcalloc(1, sizeof(struct mark_process));
	return p->own;
}

static struct mark_device *device_of(struct mark_process *p, uint32_t device)
{
	for (size_t i = 0; i < p->ndevices; i++)
		if (p->devices[i].device == device)
			return &p->devices[i];
	p->devices = xgrow(p->devices, &p->cap, p->ndevices + 1, sizeof(*p->devices));
	p->devices[p->ndevices] = (struct mark_device){.device = device};
	return &p->devices[p->ndevices++];
}

static void trim_quotes(const char **text, size_t *len)
{
	while (*len && **text == '"') {
		(*text)++;
		(*len)--;
	}
	while (*len && (*text)[*len - 1] == '"')
		(*len)--;
}

static bool is_text(const char *name, size_t len, const char *text)
{
	return len == strlen(text) && !memcmp(name, text, len);
}

static bool is_wanted(const struct marks *m, const struct row *row)
{
	const char *name = row->name;
	size_t len = name ? row->name_len : 0;

	if (row->event != ROW_MSTX || row->type != TYPE_MARK)
		return false;
	trim_quotes(&name, &len);
	return is_text(name, len, m->text);
}

/* What there is to choose from, should there be no mark of that name. */
static void count_names(struct marks *m, const struct row *row)
{
	const char *name = row->name;
	size_t len = name ? row->name_len : 0;

	m->steps += row->event == ROW_SYSTEM && row->type == TYPE_STEP;
	if (row->event != ROW_MSTX || (row->type != TYPE_MARK && row->type != TYPE_RANGE_START))
		return;
	trim_quotes(&name, &len);
	if (row->type == TYPE_RANGE_START) {
		m->ranges += is_text(name, len, "step start");
		return;
	}
	if (m->names.count >= MAX_NAMES)
		return;
	uint32_t number = names_of(&m->names, name ? name : "", len);
	size_t old = m->cap_counts;
	m->counts = xgrow(m->counts, &m->cap_counts, number + 1u, sizeof(*m->counts));
	if (m->cap_counts > old)
		memset(m->counts + old, 0, (m->cap_counts - old) * sizeof(*m->counts));
	m->counts[number]++;
}

static void marks_row(struct analysis *a, const struct row *row)
{
	struct marks *m = (struct marks *)a;
	struct block_change c;

	count_names(m, row);
	enum block_what what = blocks_add(m->base.blocks, row, &c);
	if (what == BLOCKS_ALLOC || ((what == BLOCKS_FREE || what == BLOCKS_LEFT) && c.block)) {
		struct mark_process *p = process_of(c.process);
		struct mark_device *d = device_of(p, c.pool->device->device);

		window_change(m, &d->window, &c, OWN_IN_DEVICE);
		window_change(m, &p->all, &c, OWN_IN_PROCESS);
	} else if (what == BLOCKS_OTHER && is_wanted(m, row)) {
		struct mark_process *p = process_of(c.process);

		device_of(p, row->device)->window.marks++;
		p->all.marks++;
	}
}

/* --- what was leaked --- */

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

	return ORDER(a->row, b->row);
}

static void list_leaks(struct result *r)
{
	size_t cap = 0;

	for (size_t i = 0; i < r->window->nentries; i++) {
		const struct mark_entry *e = &r->window->entries[i];

		if (!e->pool || e->pool->device->device != r->device)
			continue;
		LIST_ADD(r->leaks, r->nleaks, cap, e);
		r->bytes += e->bytes;
	}
	SORT(r->leaks, r->nleaks, by_row);
}

static int by_device(const void *pa, const void *pb)
{
	return ORDER(((const struct result *)pa)->device, ((const struct result *)pb)->device);
}

static void judge_devices(const struct marks *m, struct results *out)
{
	for (size_t i = 0; i < m->base.blocks->nprocesses; i++) {
		const struct block_process *process = m->base.blocks->processes[i];
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
			LIST_ADD(out->list, out->n, out->cap, r);
		}
		if (out->n > from)
			qsort(out->list + from, out->n - from, sizeof(*out->list), by_device);
	}
}

static void release_results(struct results *r)
{
	for (size_t i = 0; i < r->n; i++)
		free(r->list[i].leaks);
	free(r->list);
}

static size_t marks_findings(struct analysis *a)
{
	struct results all = {0};
	size_t n = 0;

	judge_devices((struct marks *)a, &all);
	for (size_t i = 0; i < all.n; i++)
		n += all.list[i].nleaks;
	release_results(&all);
	return n;
}

bool leaks_marks_failed(struct analysis *a)
{
	struct results all = {0};
	bool failed;

	judge_devices((struct marks *)a, &all);
	failed = !all.n;
	for (size_t i = 0; i < all.n; i++)
		failed |= all.list[i].trouble != TROUBLE_NONE;
	release_results(&all);
	return failed;
}

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
static struct mark_site *list_sites(const struct result *r, size_t *out_n)
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

static void say_leaks(const struct marks *m, const struct result *r, struct buf *out)
{
	const char *was = words_was(r->nleaks);
	size_t n;
	struct mark_site *sites = list_sites(r, &n);

	say(out, "{} ({}) that {} allocated between marks {} and {} {} not freed by mark {}",
	    COUNT_OF(r->nleaks, "block"), BYTES(r->bytes), TEXT(was), NUMBER(m->start),
	    NUMBER(m->start + 1), TEXT(was), NUMBER(m->start + 2));
	if (sites[0].stack)
		say(out, n == 1 ? ", all from {}" : ", the largest part from {}",
		    WHERE(&m->base.blocks->stacks, sites[0].stack));
	say(out, ".");
	free(sites);
}

static void say_result(const struct marks *m, const struct result *r, struct buf *out)
{
	uint64_t marks = r->window->marks;

	say(out, "Process {}, device {}: ", NUMBER(r->process->pid), DEVICE(r->device));
	if (r->trouble == TROUBLE_FEW)
		say(out, "there are {} marks \"{}\", and three are needed.", NUMBER(marks),
		    PRINTABLE(m->text));
	else if (r->trouble == TROUBLE_START)
		say(out, "there are {} such marks, so --start can be 0 to {}.", NUMBER(marks),
		    NUMBER(marks - 3));
	else if (!r->nleaks)
		say(out,
		    "everything that was allocated between marks {} and {} was freed by mark {}.",
		    NUMBER(m->start), NUMBER(m->start + 1), NUMBER(m->start + 2));
	else
		say_leaks(m, r, out);
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
static void say_instead(const struct marks *m, struct buf *out)
{
	uint32_t *list = names_by_count(m);
	size_t n = m->names.count, len;

	for (size_t i = 0; i < n && i < MAX_SAID; i++) {
		const char *name = names_get(&m->names, list[i], &len);
		bool whole = len < MAX_NAME_BYTES;

		say(out, i ? ", \"" : " The marks in this file are \"");
		text_add_printable(out, name, whole ? len : MAX_NAME_BYTES);
		say(out, "{}\" ({})", TEXT(whole ? "" : "…"), COUNT(m->counts[list[i]]));
	}
	if (n > MAX_SAID)
		say(out, " and {}", COUNT_OF(n - MAX_SAID, "other"));
	say(out, n ? "." : " There are no marks at all.");
	free(list);
	if (m->steps || m->ranges)
		say(out,
		    " The steps of this job were reported by {}: `sonde mem leaks` without --mark "
		    "uses "
		    "them.",
		    TEXT(m->steps ? "step()" : "ranges named \"step start\""));
}

static void print_answer(const struct marks *m, const struct results *all, const struct report *r)
{
	struct buf t = {0};

	for (size_t i = 0; i < all->n; i++) {
		say(&t, i ? " " : "");
		say_result(m, &all->list[i], &t);
	}
	if (!all->n)
		say(&t, "There is nothing to look at: neither an allocation nor such a mark was "
			"recorded.");
	if (!has_marks(all) && (all->n || m->names.count || m->steps || m->ranges))
		say_instead(m, &t);
	report_paragraph(r, 0, &t);
}

static void print_leak(const struct mark_entry *e, struct buf *out)
{
	say(out, "Direct {} leak of ",
	    TEXT(e->pool->type == TYPE_HAL ? "Hal memory" : blocks_pool_name(e->pool->type)));
	add_float(out, (double)e->bytes / MIB);
	say(out, " Mb(s) at ");
	buf_add_addr(out, e->ptr);
	say(out, " in Index {}.\n", NUMBER(e->row));
}

/* The driver's memory in the words of msmemscope; then the other pools in the same manner. */
static void print_leaks(const struct result *r, struct buf *out)
{
	size_t driver = 0;

	for (size_t i = 0; i < r->nleaks; i++)
		driver += r->leaks[i]->pool->type == TYPE_HAL;
	if (!driver)
		say(out, "No hal memory leaks detected on device {}.\n", DEVICE(r->device));
	if (r->nleaks)
		say(out, "====== ERROR: Detected memory leaks on device {} ======\n",
		    DEVICE(r->device));
	for (int pass = 0; pass < 2; pass++)
		for (size_t i = 0; i < r->nleaks; i++)
			if ((r->leaks[i]->pool->type == TYPE_HAL) == !pass)
				print_leak(r->leaks[i], out);
}

static void print_sites(const struct marks *m, const struct result *result, const struct report *r)
{
	unsigned top = r->style->top;
	size_t n;
	struct mark_site *sites = list_sites(result, &n);

	if (n && top)
		report_say(r, "\nBy place:\n");
	for (size_t i = 0; i < n && i < top; i++) {
		report_say(r, "  {}: {}{}\n", POOL(sites[i].type),
			   HELD(sites[i].bytes, sites[i].blocks),
			   TEXT(sites[i].stack ? "" : ", no call stack recorded"));
		report_stack(r, 6, stacks_get(&m->base.blocks->stacks, sites[i].stack));
	}
	if (n > top && top)
		report_more(r, 2, n - top, "place");
	free(sites);
}

static void print_result(const struct marks *m, const struct result *result, const struct report *r)
{
	const struct word device = DEVICE(result->device);

	report_say(r, "\nINFO: Starting to analyze data for device {}...\n", device);
	if (result->trouble == TROUBLE_FEW) {
		report_say(r,
			   "ERROR: Device {} has fewer than 3 data points. Please re-collect the "
			   "data points.\n",
			   device);
	} else if (result->trouble == TROUBLE_START) {
		report_say(r,
			   "INFO: Start index {} is out of bounds. Device {} has a total of {} "
			   "MSTX events.\n",
			   NUMBER(m->start), device, NUMBER(result->window->marks));
	} else {
		report_say(r, "\nLeak Analysis Results for the Custom Range:\n");
		print_leaks(result, r->out);
		print_sites(m, result, r);
	}
}

static void marks_text(struct analysis *a, const struct analysis_style *style, struct buf *out)
{
	struct marks *m = (struct marks *)a;
	struct report report = report_begin(style, out);
	struct results all = {0};

	judge_devices(m, &all);
	print_answer(m, &all, &report);
	for (size_t i = 0; i < all.n; i++)
		print_result(m, &all.list[i], &report);
	release_results(&all);
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

static json_t *result_value(const struct marks *m, const struct result *r, unsigned top)
{
	static const char *const troubles[] = {[TROUBLE_NONE] = NULL,
					       [TROUBLE_FEW] = "fewer than 3 marks",
					       [TROUBLE_START] = "start is out of bounds"};
	json_t *o = json_object(), *allocations = json_array();
	size_t n;
	struct mark_site *sites = list_sites(r, &n);

	put_number(o, "pid", r->process->pid);
	put_device(o, r->device);
	put_number(o, "marks", r->window->marks);
	put_bool(o, "marks_of_process", r->of_process);
	put_text(o, "error", troubles[r->trouble]);
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

static json_t *marks_json(struct analysis *a, unsigned top)
{
	struct marks *m = (struct marks *)a;
	json_t *o = json_object();
	struct results all = {0};

	judge_devices(m, &all);
	json_object_set_new(o, "marks", names_value(m, top));
	put_number(o, "steps", m->steps + m->ranges);
	put_text(o, "mark", m->text);
	put_number(o, "start", m->start);
	put_number(o, "findings", marks_findings(a));
	put_bool(o, "failed", leaks_marks_failed(a));
	PUT_LIST(o, "devices", all.n, result_value(m, &all.list[i], top));
	release_results(&all);
	return o;
}

/* --- the analysis --- */

static void marks_free(struct analysis *a)
{
	struct marks *m = (struct marks *)a;

	for (size_t i = 0; i < m->base.blocks->nprocesses; i++) {
		struct mark_process *p = m->base.blocks->processes[i]->own;

		for (size_t k = 0; p && k < p->ndevices; k++)
			window_release(&p->devices[k].window);
		if (p) {
			window_release(&p->all);
			free(p->devices);
		}
		free(p);
	}
	blocks_free(m->base.blocks);
	names_release(&m->names);
	free(m->counts);
	free(m->text);
	free(m);
}

static const struct analysis_ops marks_ops = {
	.name = "leaks between marks",
	.row = marks_row,
	.process = analysis_blocks_process,
	.unordered = analysis_blocks_unordered,
	.findings = marks_findings,
	.text = marks_text,
	.json = marks_json,
	.free = marks_free,
};

struct analysis *leaks_marks_new(const char *text, unsigned start)
{
	struct marks *m = xcalloc(1, sizeof(*m));
	size_t len = strlen(text);

	trim_quotes(&text, &len);
	m->base = (struct analysis){&marks_ops, blocks_new()};
	m->text = xstrndup(text, len);
	m->start = start;
	return &m->base;
}
