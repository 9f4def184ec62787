/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The summary for programs; summary.h names the keys. */
#include "memory/analysis/summary/summary.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>

#include "formats/json_value.h"
#include "memory/analysis/common/json.h"
#include "memory/analysis/summary/query.h"

static void put_after(json_t *o, const struct summary *s, const char *prefix, uint64_t time_ns)
{
	char key[32];

	snprintf(key, sizeof(key), "%stime_ns", prefix);
	put_number(o, key, time_ns);
	snprintf(key, sizeof(key), "%safter_ns", prefix);
	put_number(o, key, time_ns > s->first_ns ? time_ns - s->first_ns : 0);
}

static json_t *place_value(const struct summary *s, const struct summary_place *place)
{
	json_t *o = json_object();

	put_number(o, "blocks", place->held.blocks);
	put_number(o, "bytes", place->held.bytes);
	put_bool(o, "older_than_recording", place->before);
	put_stack(o, &s->stacks, place->number);
	return o;
}

static json_t *places_value(const struct summary *s, const struct summary_pool *pool, bool at_peak,
			    unsigned top)
{
	json_t *o = json_object(), *list = json_array();
	struct summary_held total = {0};
	size_t n;
	struct summary_place *places = summary_places(s, pool, at_peak, &n);

	for (size_t i = 0; i < n; i++) {
		total.blocks += places[i].held.blocks;
		total.bytes += places[i].held.bytes;
		if (i < top)
			json_array_append_new(list, place_value(s, &places[i]));
	}
	put_number(o, "blocks", total.blocks);
	put_number(o, "bytes", total.bytes);
	put_number(o, "places_total", n);
	json_object_set_new(o, "places", list);
	free(places);
	return o;
}

static json_t *pool_value(const struct summary *s, const struct summary_pool *pool, unsigned top)
{
	json_t *o = json_object();

	put_device(o, pool->device);
	put_pool(o, pool->type);
	put_number(o, "events", pool->mallocs + pool->frees);
	put_number(o, "mallocs", pool->mallocs);
	put_number(o, "frees", pool->frees);
	put_number(o, "unmatched_frees", pool->unmatched_frees);
	put_number(o, "synthetic_frees", pool->ended.blocks);
	put_number(o, "peak_bytes", pool->bytes.peak_bytes);
	put_number(o, "peak_blocks", pool->peak_blocks);
	put_after(o, s, "peak_", pool->bytes.peak_time_ns);
	json_object_set_new(o, "alive_at_end", places_value(s, pool, false, top));
	json_object_set_new(o, "alive_at_peak", places_value(s, pool, true, top));
	return o;
}

static json_t *counts_value(const struct summary_counts *c)
{
	json_t *o = json_object();

	put_number(o, "mallocs", c->mallocs);
	put_number(o, "frees", c->frees);
	put_number(o, "unmatched_frees", c->unmatched_frees);
	put_number(o, "synthetic_frees", c->synthetic_frees);
	put_number(o, "accesses", c->accesses);
	put_number(o, "operator_launches", c->operators);
	put_number(o, "kernel_launches", c->kernels);
	put_number(o, "marks", c->marks);
	put_number(o, "ranges", c->ranges);
	put_number(o, "steps", c->steps);
	put_number(o, "snapshots", c->snapshots);
	put_number(o, "ooms", c->ooms);
	return o;
}

static json_t *loss_value(const struct summary_loss *lost)
{
	json_t *o = json_object();

	put_number(o, "events", lost->events);
	put_number(o, "stacks", lost->stacks);
	put_number(o, "damaged_bytes", lost->damaged_bytes);
	return o;
}

static void put_span(json_t *o, uint64_t first_ns, uint64_t last_ns)
{
	bool any = first_ns <= last_ns;

	put_number(o, "first_time_ns", any ? first_ns : 0);
	put_number(o, "last_time_ns", any ? last_ns : 0);
	put_number(o, "duration_ns", any ? last_ns - first_ns : 0);
}

static json_t *use_value(const struct summary_pool *pool)
{
	struct summary_share u;

	if (!summary_use(pool, &u))
		return NULL;
	json_t *o = json_object();
	put_device(o, pool->device);
	put_number(o, "time_ns", u.time_ns);
	put_known(o, "total_bytes", u.total != 0, u.total);
	put_number(o, "used_bytes", u.used);
	put_number(o, "pool_bytes", u.pool);
	put_number(o, "tensor_bytes", u.tensors);
	put_known(o, "rest_of_process_bytes", u.has_others, u.process);
	put_known(o, "others_bytes", u.has_others, u.others);
	put_known(o, "not_told_bytes", !u.has_others, u.not_told);
	return o;
}

static json_t *process_value(const struct summary *s, const struct summary_process *p, unsigned top)
{
	json_t *o = json_object(), *list = json_array(), *uses = json_array();
	struct summary_pool **pools = summary_pools(p);
	struct summary_counts c;

	summary_count(p, &c);
	put_number(o, "pid", p->pid);
	put_text(o, "command", p->cmdline);
	put_span(o, p->first_ns, p->last_ns);
	put_number(o, "rows", c.rows);
	json_object_set_new(o, "counts", counts_value(&c));
	json_object_set_new(o, "lost", loss_value(&p->lost));
	put_bool(o, "frees_recorded", !summary_frees_missing(&c));
	for (size_t i = 0; i < p->npools; i++) {
		json_t *use = use_value(pools[i]);

		json_array_append_new(list, pool_value(s, pools[i], top));
		if (use)
			json_array_append_new(uses, use);
	}
	json_object_set_new(o, "pools", list);
	json_object_set_new(o, "gpus", uses);
	free(pools);
	return o;
}

static json_t *device_value(const struct summary *s, const struct summary_device *d)
{
	json_t *o = json_object();
	bool exact;
	struct summary_tally peak = summary_whole_peak(s, d, &exact);

	put_device(o, d->device);
	put_number(o, "peak_bytes", peak.peak_bytes);
	put_after(o, s, "peak_", peak.peak_time_ns);
	put_text(o, "peak_source", d->has_driver ? "driver" : "pools");
	put_bool(o, "peak_is_lower_bound", !exact);
	return o;
}

static json_t *oom_value(const struct summary *s, const struct summary_oom *oom)
{
	json_t *o = json_object();

	put_number(o, "pid", oom->pid);
	put_device(o, oom->device);
	put_after(o, s, "", oom->time_ns);
	put_number(o, "requested_bytes", oom->requested_bytes);
	put_text(o, "function", oom->function[0] ? oom->function : NULL);
	return o;
}

static int by_number(const void *pa, const void *pb)
{
	const struct summary_device *a = *(struct summary_device *const *)pa;
	const struct summary_device *b = *(struct summary_device *const *)pb;

	return (a->device > b->device) - (a->device < b->device);
}

static void put_lists(json_t *o, struct summary *s, unsigned top)
{
	json_t *devices = json_array(), *processes = json_array();
	json_t *ooms = json_array(), *notes = json_array();

	if (s->ndevices)
		qsort(s->devices, s->ndevices, sizeof(struct summary_device *), by_number);
	for (size_t i = 0; i < s->ndevices; i++)
		json_array_append_new(devices, device_value(s, s->devices[i]));
	for (size_t i = 0; i < s->nprocesses; i++)
		json_array_append_new(processes, process_value(s, s->processes[i], top));
	for (unsigned i = 0; i < s->nooms; i++)
		json_array_append_new(ooms, oom_value(s, &s->ooms[i]));
	for (size_t i = 0; i < s->nnotes; i++)
		json_array_append_new(notes, text_value(s->notes[i], strlen(s->notes[i])));
	json_object_set_new(o, "devices", devices);
	json_object_set_new(o, "processes", processes);
	json_object_set_new(o, "ooms", ooms);
	json_object_set_new(o, "notes", notes);
}

int summary_json(struct summary *s, unsigned top, struct buf *out)
{
	json_t *o = json_object();
	struct summary_counts c;
	struct summary_loss lost;

	summary_count_all(s, &c);
	summary_loss_all(s, &lost);
	put_span(o, s->first_ns, s->last_ns);
	put_number(o, "rows", c.rows);
	put_number(o, "python_calls", s->calls);
	put_number(o, "python_call_threads", s->call_threads);
	put_bool(o, "time_ordered", !s->unordered);
	json_object_set_new(o, "counts", counts_value(&c));
	json_object_set_new(o, "lost", loss_value(&lost));
	put_lists(o, s, top);
	char *text = json_dumps(o, JSON_INDENT(2));
	json_decref(o);
	if (!text)
		return -ENOMEM;
	buf_add_str(out, text);
	buf_add_char(out, '\n');
	free(text);
	return 0;
}
