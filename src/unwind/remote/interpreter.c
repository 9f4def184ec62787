/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Bytes first, sense afterwards: runtime_spans() says what to copy, walk_thread() copies it along
 * with a stack in one call, interp_read() and interp_holder() read the copies. So who has the GIL
 * is of the same moment as the stack.
 *
 * A word that is not in any area (the version has no such field) reads as 0, which means "none" for
 * every field here.
 */
#include "unwind/remote/interpreter.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "unwind/python/frame.h"

static int by_offset(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

/*
 * Areas of at most `max` bytes that hold the words at these offsets.
 *
 * Sorted, then joined greedily: a word joins the area before it as long as that stays within `max`
 * bytes. A few hundred bytes more in one span cost less than one span more.
 */
static unsigned make_areas(const uint32_t *fields, unsigned n, uint32_t max, unsigned most,
			   struct interp_area *out)
{
	uint32_t at[INTERP_FIELDS];
	unsigned nat = 0, areas = 0;

	for (unsigned i = 0; i < n; i++)
		if (fields[i] != PYTHON_NONE)
			at[nat++] = fields[i];
	qsort(at, nat, sizeof(*at), by_offset);
	for (unsigned i = 0; i < nat; i++) {
		struct interp_area *last = areas ? &out[areas - 1] : NULL;

		if (last && at[i] + 8 - last->at <= max)
			last->n = at[i] + 8 - last->at;
		else if (areas < most)
			out[areas++] = (struct interp_area){at[i], 8};
	}
	return areas;
}

void runtime_init(struct remote_runtime *r, const struct python_place *place)
{
	const struct python_layout *l = &place->layout;
	const uint32_t of_runtime[] = {l->runtime.interpreters_head, l->runtime.tstate_current,
				       l->runtime.gc_collecting};
	const uint32_t of_interp[INTERP_FIELDS] = {
		l->interp.next,		 l->interp.id,	l->interp.threads_head,
		l->interp.gc_collecting, l->interp.gil, l->interp.code_generation};

	memset(r, 0, sizeof(*r));
	make_areas(of_runtime, 3, sizeof(r->bytes), 1, &r->area);
	r->nareas = make_areas(of_interp, INTERP_FIELDS, INTERP_AREA_BYTES, INTERP_AREAS, r->areas);
}

void runtime_release(struct remote_runtime *r)
{
	for (unsigned i = 0; i < r->n; i++)
		free(r->interps[i]);
	free(r->interps);
	*r = (struct remote_runtime){.n = 0};
}

unsigned runtime_spans(struct remote_runtime *r, const struct python_place *place,
		       struct remote_interp *i, bool all, struct remote_span *out)
{
	unsigned n = 0;

	if (all)
		out[n++] = (struct remote_span){place->runtime + r->area.at, r->bytes, r->area.n};
	for (unsigned k = 0; i && k < r->nareas; k++)
		out[n++] =
			(struct remote_span){i->addr + r->areas[k].at, i->bytes[k], r->areas[k].n};
	if (i && i->gil)
		out[n++] = (struct remote_span){i->gil, i->gil_bytes, sizeof(i->gil_bytes)};
	return n;
}

static uint64_t runtime_word(const struct remote_runtime *r, uint32_t at)
{
	if (at == PYTHON_NONE || at < r->area.at || at + 8 > r->area.at + r->area.n)
		return 0;
	return python_word(r->bytes, at - r->area.at);
}

int runtime_read(struct remote_runtime *r, const struct python_place *place)
{
	r->head = runtime_word(r, place->layout.runtime.interpreters_head);
	return r->head ? 0 : -EAGAIN;
}

static uint64_t interp_word(const struct remote_interp *i, const struct remote_runtime *r,
			    uint32_t at)
{
	for (unsigned k = 0; at != PYTHON_NONE && k < r->nareas; k++)
		if (at >= r->areas[k].at && at + 8 <= r->areas[k].at + r->areas[k].n)
			return python_word(i->bytes[k], at - r->areas[k].at);
	return 0;
}

/* An interpreter may get another GIL when it is made with its own; the words that were read
 * along are of the old one then. */
bool interp_read(struct remote_interp *i, const struct remote_runtime *r,
		 const struct python_place *place)
{
	const struct python_layout *l = &place->layout;
	uint64_t gil = interp_word(i, r, l->interp.gil);
	bool same = gil == i->gil;

	i->next = interp_word(i, r, l->interp.next);
	i->id = (int64_t)interp_word(i, r, l->interp.id);
	i->threads_head = interp_word(i, r, l->interp.threads_head);
	i->code_generation = interp_word(i, r, l->interp.code_generation);
	i->collecting = l->interp.gc_collecting != PYTHON_NONE
				? (uint32_t)interp_word(i, r, l->interp.gc_collecting)
				: (uint32_t)runtime_word(r, l->runtime.gc_collecting);
	i->gil = gil;
	return same;
}

/* last_holder is the thread that had the GIL last; it has it now only while `locked` is 1. Before
 * 3.12 the runtime names the current thread state itself. */
void interp_holder(struct remote_interp *i, const struct remote_runtime *r,
		   const struct python_place *place)
{
	const struct python_layout *l = &place->layout;
	uint32_t locked;

	i->gil_holder = l->minor <= 11 ? runtime_word(r, l->runtime.tstate_current) : 0;
	if (!i->gil || l->gil.locked > INTERP_GIL_BYTES - 4 ||
	    l->gil.last_holder > INTERP_GIL_BYTES - 8)
		return;
	memcpy(&locked, i->gil_bytes + l->gil.locked, sizeof(locked));
	if (locked == 1)
		i->gil_holder = python_word(i->gil_bytes, l->gil.last_holder);
}

struct remote_interp *runtime_interp(struct remote_runtime *r, uint64_t addr)
{
	for (unsigned i = 0; i < r->n; i++)
		if (r->interps[i]->addr == addr)
			return r->interps[i];
	if (r->n == MAX_INTERPS)
		return NULL;
	r->interps = xgrow(r->interps, &r->cap, r->n + 1, sizeof(*r->interps));
	r->interps[r->n] = xcalloc(1, sizeof(**r->interps));
	r->interps[r->n]->addr = addr;
	return r->interps[r->n++];
}

void runtime_prune(struct remote_runtime *r, uint64_t round)
{
	unsigned n = 0;

	for (unsigned i = 0; i < r->n; i++) {
		if (r->interps[i]->seen == round)
			r->interps[n++] = r->interps[i];
		else
			free(r->interps[i]);
	}
	r->n = n;
}
