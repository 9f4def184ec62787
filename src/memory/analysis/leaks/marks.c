/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/analysis/leaks/marks_impl.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "wire/record.h"

#define MAX_NAMES 10000u
#define BY_ADDRESS (1ull << 63) /* of a block's key: there was no allocation id */

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

static void list_leaks(struct mark_result *r)
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
	return ORDER(((const struct mark_result *)pa)->device,
		     ((const struct mark_result *)pb)->device);
}

void marks_judge(const struct marks *m, struct mark_results *out)
{
	for (size_t i = 0; i < m->base.blocks->nprocesses; i++) {
		const struct block_process *process = m->base.blocks->processes[i];
		const struct mark_process *p = process->own;
		size_t from = out->n;

		for (size_t k = 0; p && k < p->ndevices; k++) {
			const struct mark_device *d = &p->devices[k];
			struct mark_result r = {.process = process, .device = d->device};

			if (d->device == DEV_NONE)
				continue;
			r.window = window_for(p, d, &r.of_process);
			if (r.window->marks < 3)
				r.problem = MARK_TROUBLE_FEW;
			else if (r.window->marks - 3 < m->start)
				r.problem = MARK_TROUBLE_START;
			else
				list_leaks(&r);
			LIST_ADD(out->list, out->n, out->cap, r);
		}
		if (out->n > from)
			qsort(out->list + from, out->n - from, sizeof(*out->list), by_device);
	}
}

void marks_results_release(struct mark_results *r)
{
	for (size_t i = 0; i < r->n; i++)
		free(r->list[i].leaks);
	free(r->list);
}

static size_t marks_findings(struct analysis *a)
{
	struct mark_results all = {0};
	size_t n = 0;

	marks_judge((struct marks *)a, &all);
	for (size_t i = 0; i < all.n; i++)
		n += all.list[i].nleaks;
	marks_results_release(&all);
	return n;
}

bool leaks_marks_failed(struct analysis *a)
{
	struct mark_results all = {0};
	bool failed;

	marks_judge((struct marks *)a, &all);
	failed = !all.n;
	for (size_t i = 0; i < all.n; i++)
		failed |= all.list[i].problem != MARK_TROUBLE_NONE;
	marks_results_release(&all);
	return failed;
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
	m->base = (struct analysis){.ops = &marks_ops, .blocks = blocks_new()};
	m->text = xstrndup(text, len);
	m->start = start;
	return &m->base;
}
