/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/analysis/leaks/marks.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "memory/analysis/leaks/marks_impl.h"

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
static void note_others(struct marks *m, const struct row *row)
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
	if (m->names.count >= MARKS_MAX_NAMES)
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

	note_others(m, row);
	enum block_what what = blocks_add(m->blocks, row, &c);
	if (what == BLOCKS_ALLOC || ((what == BLOCKS_FREE || what == BLOCKS_LEFT) && c.block)) {
		struct mark_process *p = process_of(c.process);
		struct mark_device *d = device_of(p, c.pool->device->device);

		d->has_memory = true;
		window_change(m, &d->window, &c, OWN_IN_DEVICE);
		window_change(m, &p->all, &c, OWN_IN_PROCESS);
	} else if (what == BLOCKS_OTHER && is_wanted(m, row)) {
		struct mark_process *p = process_of(c.process);

		device_of(p, row->device)->window.marks++;
		p->all.marks++;
	}
}

static void marks_process(struct analysis *a, uint32_t pid, const char *command)
{
	blocks_process(((struct marks *)a)->blocks, pid, command);
}

static bool marks_unordered(const struct analysis *a)
{
	return blocks_unordered(((const struct marks *)a)->blocks);
}

static void marks_free(struct analysis *a)
{
	struct marks *m = (struct marks *)a;

	for (size_t i = 0; i < blocks_nprocesses(m->blocks); i++) {
		struct mark_process *p = blocks_process_at(m->blocks, i)->own;

		for (size_t k = 0; p && k < p->ndevices; k++)
			window_release(&p->devices[k].window);
		if (p) {
			window_release(&p->all);
			free(p->devices);
		}
		free(p);
	}
	blocks_free(m->blocks);
	names_release(&m->names);
	free(m->counts);
	free(m->text);
	free(m);
}

static const struct analysis_ops marks_ops = {
	.name = "leaks between marks",
	.row = marks_row,
	.process = marks_process,
	.unordered = marks_unordered,
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
	m->base.ops = &marks_ops;
	m->text = xstrndup(text, len);
	m->start = start;
	m->blocks = blocks_new();
	return &m->base;
}
