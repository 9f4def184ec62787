/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/input/sorted_index.h"

#include <stdlib.h>

#include "base/mem.h"

_Static_assert(sizeof(struct dump_entry) == 32, "what the documents promise");

static int by_time(const void *left, const void *right)
{
	const struct dump_entry *a = left, *b = right;

	if (a->time_ns != b->time_ns)
		return a->time_ns < b->time_ns ? -1 : 1;
	if (a->id != b->id)
		return a->id < b->id ? -1 : 1;
	return a->place.offset < b->place.offset ? -1 : a->place.offset > b->place.offset;
}

void dump_index_add(struct dump_index *index, uint64_t time_ns, uint64_t id,
		    struct dump_place place)
{
	index->entries =
		xgrow(index->entries, &index->capacity, index->count + 1, sizeof(*index->entries));
	struct dump_entry *entry = &index->entries[index->count++];
	*entry = (struct dump_entry){time_ns, id, place};
	if (index->count > 1)
		index->mixed |= by_time(entry - 1, entry) > 0;
}

void dump_index_sort(struct dump_index *index)
{
	if (index->mixed)
		qsort(index->entries, index->count, sizeof(*index->entries), by_time);
	index->mixed = false;
}

const struct dump_place *dump_index_next(struct dump_index *index)
{
	return index->at < index->count ? &index->entries[index->at++].place : NULL;
}

void dump_index_release(struct dump_index *index)
{
	free(index->entries);
	*index = (struct dump_index){0};
}
