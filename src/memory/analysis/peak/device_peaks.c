/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/analysis/peak/device_peaks.h"

#include <stdlib.h>

#include "formats/json_value.h"
#include "memory/analysis/common/fields.h"
#include "memory/analysis/common/memory_words.h"
#include "memory/analysis/processes/programs.h"

static struct device_peaks_device *device_of(struct device_peaks *t, uint32_t device)
{
	for (size_t i = 0; i < t->ndevices; i++)
		if (t->devices[i].device == device)
			return &t->devices[i];
	LIST_ADD(t->devices, t->ndevices, t->cap, (struct device_peaks_device){.device = device});
	return &t->devices[t->ndevices - 1];
}

void device_peaks_add(struct device_peaks *t, const struct block_change *c, uint64_t time_ns)
{
	if (!c->block ||
	    (c->what != BLOCKS_ALLOC && c->what != BLOCKS_FREE && c->what != BLOCKS_LEFT))
		return;
	struct device_peaks_device *d = device_of(t, c->pool->device->device);
	bool driver = blocks_is_driver(c->pool->type);
	uint64_t bytes = c->block->bytes;

	d->has_driver |= driver;
	total_add(driver ? &d->driver : &d->pools, time_ns,
		  c->what == BLOCKS_ALLOC ? bytes : -bytes);
}

static size_t users_of(const struct blocks *b, uint32_t device)
{
	struct programs users = {0};

	for (size_t i = 0; i < b->nprocesses; i++)
		for (size_t k = 0; k < b->processes[i]->ndevices; k++)
			if (b->processes[i]->devices[k]->device == device)
				programs_add(&users, b->processes[i], b->processes[i]->pid, 0);
	size_t n = users.processes;
	programs_release(&users);
	return n;
}

/* The next device that several processes use, and its highest moment; false: there is none. */
static bool next_shared(struct device_peaks *t, const struct blocks *b, size_t *at,
			struct total_peak *out, size_t *out_users)
{
	for (; *at < t->ndevices; ++*at) {
		struct device_peaks_device *d = &t->devices[*at];

		*out_users = users_of(b, d->device);
		*out = total_peak(d->has_driver ? &d->driver : &d->pools);
		if (*out_users > 1 && !out->late && out->bytes)
			return true;
	}
	return false;
}

void device_peaks_describe(struct device_peaks *t, const struct blocks *b, struct buf *out)
{
	struct total_peak peak;
	size_t users;

	for (size_t at = 0; next_shared(t, b, &at, &peak, &users); at++) {
		add_text(out, " All {} processes together had {} of ", NUMBER(users),
			 BYTES(peak.bytes));
		words_device(out, t->devices[at].device, false);
		add_text(out, " at most, {} after the start.",
			 DURATION(peak.time_ns > b->first_ns ? peak.time_ns - b->first_ns : 0));
	}
}

json_t *device_peaks_json(struct device_peaks *t, const struct blocks *b)
{
	json_t *list = json_array();
	struct total_peak peak;
	size_t users;

	for (size_t at = 0; next_shared(t, b, &at, &peak, &users); at++) {
		json_t *o = json_object();

		put_device(o, t->devices[at].device);
		put_number(o, "processes", users);
		put_number(o, "peak_bytes", peak.bytes);
		put_number(o, "peak_time_ns", peak.time_ns);
		put_number(o, "peak_after_ns",
			   peak.time_ns > b->first_ns ? peak.time_ns - b->first_ns : 0);
		json_array_append_new(list, o);
	}
	return list;
}

void device_peaks_release(struct device_peaks *t)
{
	for (size_t i = 0; i < t->ndevices; i++) {
		total_release(&t->devices[i].driver);
		total_release(&t->devices[i].pools);
	}
	free(t->devices);
}
