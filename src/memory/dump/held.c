/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/dump/held.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

void held_release(struct held *h)
{
	free(h->marks);
	names_release(&h->texts);
	*h = (struct held){0};
}

/* The newest row of the block; NULL: there is none. */
static struct mark *find_mark(struct held *h, uint64_t allocation_id)
{
	size_t from = 0, to = h->nmarks;

	while (h->unsorted && to && h->marks[to - 1].allocation_id != allocation_id)
		to--;
	while (!h->unsorted && from < to) {
		size_t middle = from + (to - from) / 2;

		if (h->marks[middle].allocation_id <= allocation_id)
			from = middle + 1;
		else
			to = middle;
	}
	return to && h->marks[to - 1].allocation_id == allocation_id ? &h->marks[to - 1] : NULL;
}

/* Pools of which is judged how blocks are used. */
static bool wants_room(const struct held *h, const struct row *row)
{
	return h->wants == HOLD_FOR_USE &&
	       (row->type == TYPE_PTA || row->type == TYPE_TORCH || row->type == TYPE_ATB);
}

void held_mark(struct held *h, struct front end, const struct row *row)
{
	const struct attr *id = row_attr(row, ATTR_ALLOCATION_ID);
	struct mark *m;

	if (!h->half.bytes && end.bytes >= HELD_BYTES)
		h->half = end;
	if (id && row->event == ROW_FREE && wants_room(h, row) && (m = find_mark(h, id->number)))
		m->room = false;
	if (!id || row->event != ROW_MALLOC)
		return;
	if (h->nmarks && h->marks[h->nmarks - 1].allocation_id >= id->number)
		h->unsorted = true;
	h->marks = xgrow(h->marks, &h->cap_marks, h->nmarks + 1, sizeof(*h->marks));
	h->marks[h->nmarks++] = (struct mark){
		.allocation_id = id->number, .at = end.bytes, .room = wants_room(h, row)};
	h->found |= wants_room(h, row);
}

static uint32_t keep_text(struct held *h, const char *text, uint32_t before)
{
	return text ? names_of(&h->texts, text, strlen(text) + 1) + 1 : before;
}

bool held_find(struct held *h, const struct amendment *finding)
{
	struct mark *m = find_mark(h, finding->allocation_id);

	if (!m)
		return false;
	m->owner = keep_text(h, finding->owner, m->owner);
	m->inefficient = keep_text(h, finding->inefficient, m->inefficient);
	h->found = true;
	return true;
}

static const char *text_of(const struct held *h, uint32_t number)
{
	size_t len;

	return number ? names_get(&h->texts, number - 1, &len) : NULL;
}

void held_copy(const struct held *h, const struct buf *rows, size_t bytes, enum row_compat compat,
	       struct buf *out)
{
	size_t done = 0;

	for (size_t i = 0; h->found && i < h->nmarks && h->marks[i].at < bytes; i++) {
		const struct mark *m = &h->marks[i];
		size_t end = i + 1 < h->nmarks ? h->marks[i + 1].at : bytes;

		bool room = m->room && h->wants == HOLD_FOR_USE;
		if (!m->owner && !m->inefficient && !room)
			continue;
		buf_add(out, rows->data + done, m->at - done);
		size_t row = out->len;
		done = end < bytes ? end : bytes;
		buf_add(out, rows->data + m->at, done - m->at);
		const struct amendment finding = {.owner = text_of(h, m->owner),
						  .inefficient = text_of(h, m->inefficient),
						  .room = room};
		dump_amend_text(out, row, &finding, compat);
	}
	buf_add(out, rows->data + done, bytes - done);
}

static void cut_front(struct front *f, struct front by)
{
	*f = f->bytes > by.bytes ? (struct front){f->bytes - by.bytes, f->rows - by.rows}
				 : (struct front){0};
}

void held_cut(struct held *h, struct front by)
{
	size_t gone = 0;

	cut_front(&h->half, by);
	cut_front(&h->old, by);
	while (gone < h->nmarks && h->marks[gone].at < by.bytes)
		gone++;
	h->nmarks -= gone;
	for (size_t i = 0; i < h->nmarks; i++) {
		h->marks[i] = h->marks[i + gone];
		h->marks[i].at -= by.bytes;
	}
}

void held_forget(struct held *h)
{
	h->nmarks = 0;
	h->unsorted = h->found = false;
	h->half = h->old = (struct front){0};
}
