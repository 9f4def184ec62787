/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The summary for programs; summary.h names the keys. */
#include "memory/analysis/summary/summary.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>

#include "formats/json_value.h"
#include "memory/analysis/processes/processes.h"
#include "memory/analysis/summary/summary_impl.h"

static void put_after(json_t *o, const struct summary *s, const char *prefix, uint64_t time_ns)
{
	char key[32];

	snprintf(key, sizeof(key), "%stime_ns", prefix);
	put_number(o, key, time_ns);
	snprintf(key, sizeof(key), "%safter_ns", prefix);
	put_number(o, key, time_ns > s->first_ns ? time_ns - s->first_ns : 0);
}

static const struct field site_fields[] = {
	FIELDS(struct call_site, blocks, bytes),
	FIELD("older_than_recording", struct call_site, before),
	FIELD_AS("where", FIELD_STACK, struct call_site, stack),
	{0},
};
static const struct field counts_fields[] = {
	FIELDS(struct summary_counts, mallocs, frees, unmatched_frees, synthetic_frees, accesses,
	       operator_launches, kernel_launches, marks, ranges, steps),
	FIELDS(struct summary_counts, detected_steps, snapshots, ooms),
	{0},
};
static const struct field loss_fields[] = {
	FIELDS(struct summary_loss, events, stacks, damaged_bytes),
	{0},
};

static json_t *alive_value(const struct summary *s, const struct summary_pool *pool, bool at_peak,
			   unsigned top)
{
	json_t *o = json_object();
	struct summary_held total = {0};
	size_t n;
	struct call_site *sites = summary_sites(s, pool, at_peak, &n);

	for (size_t i = 0; i < n; i++) {
		total.blocks += sites[i].blocks;
		total.bytes += sites[i].bytes;
	}
	put_number(o, "blocks", total.blocks);
	put_number(o, "bytes", total.bytes);
	put_number(o, "places_total", n);
	json_object_set_new(
		o, "places",
		fields_list(site_fields, sites, n < top ? n : top, sizeof(*sites), &s->stacks));
	free(sites);
	return o;
}

static json_t *pool_value(const struct summary *s, const struct summary_pool *pool, unsigned top)
{
	struct summary_pool_row row = summary_pool_row(s, pool);
	json_t *o = fields_object(summary_pool_fields, &row, NULL);

	json_object_set_new(o, "alive_at_end", alive_value(s, pool, false, top));
	json_object_set_new(o, "alive_at_peak", alive_value(s, pool, true, top));
	return o;
}

static void put_span(json_t *o, uint64_t first_ns, uint64_t last_ns)
{
	bool any = first_ns <= last_ns;

	put_number(o, "first_time_ns", any ? first_ns : 0);
	put_number(o, "last_time_ns", any ? last_ns : 0);
	put_number(o, "duration_ns", any ? last_ns - first_ns : 0);
}

static const struct field use_fields[] = {
	FIELDS(struct summary_share, used_bytes, pool_bytes, tensor_bytes, kept_bytes),
	{0},
};

static json_t *use_value(const struct summary_pool *pool)
{
	struct summary_share u;

	if (!summary_use(pool, &u))
		return NULL;
	json_t *o = json_object();
	put_device(o, pool->device);
	put_number(o, "time_ns", u.time_ns);
	put_known(o, "total_bytes", u.total_bytes != 0, u.total_bytes);
	fields_put(o, use_fields, &u, NULL);
	put_known(o, "rest_of_process_bytes", u.has_others, u.process);
	put_known(o, "others_bytes", u.has_others, u.others);
	put_known(o, "job_bytes", u.has_others && u.job, u.job);
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
	json_object_set_new(o, "counts", fields_object(counts_fields, &c, NULL));
	json_object_set_new(o, "lost", fields_object(loss_fields, &p->lost, NULL));
	put_bool(o, "frees_recorded", !summary_frees_missing(&c));
	for (size_t i = 0; i < p->npools; i++) {
		json_t *use = use_value(pools[i]);

		json_array_append_new(list, pool_value(s, pools[i], top));
		if (use)
			json_array_append_new(uses, use);
	}
	json_object_set_new(o, "pools", list);
	json_object_set_new(o, "gpus", uses);
	json_t *files = json_object();
	put_number(files, "mappings", p->file_mappings);
	put_number(files, "peak_bytes", p->files.peak_bytes);
	put_number(files, "left_bytes", p->files.live_bytes);
	json_object_set_new(o, "mapped_files", files);
	free(pools);
	return o;
}

static json_t *course_value(struct summary_device *d)
{
	struct timed_course course = summary_device_course(d);
	json_t *o = json_object(), *list = json_array();

	put_number(o, "first_time_ns", course.first_ns);
	put_number(o, "bin_ns", course.bin_ns);
	for (size_t i = 0; i < timed_course_count(&course); i++)
		json_array_append_new(list, json_integer((json_int_t)course.course.bins[i]));
	json_object_set_new(o, "bytes", list);
	return o;
}

static json_t *device_value(const struct summary *s, struct summary_device *d)
{
	json_t *o = json_object();
	struct summary_tally peak = *summary_device_peak(d);

	put_device(o, d->device);
	put_number(o, "peak_bytes", peak.peak_bytes);
	put_after(o, s, "peak_", peak.peak_time_ns);
	put_text(o, "peak_source", d->has_driver ? "driver" : "pools");
	put_bool(o, "peak_is_lower_bound", d->late);
	json_object_set_new(o, "over_time", course_value(d));
	gpu_use_put_json(&s->gpu, d->device, o);
	const struct mem_gpu_device *g = mem_asked_device(&s->asked, d->device);
	put_text(o, "gpu", g ? g->name : NULL);
	put_known(o, "gpu_bytes", g && g->total_bytes, g ? g->total_bytes : 0);
	put_bool(o, "mig", g && g->mig);
	put_bool(o, "mps", g && g->mps);
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

int summary_json(struct summary *s, unsigned top, struct buf *out)
{
	json_t *o = json_object();
	struct summary_counts c;
	struct loss lost;

	summary_settle(s);
	summary_count_all(s, &c);
	summary_loss_all(s, &lost);
	loss_json(&lost, o);
	put_span(o, s->first_ns, s->last_ns);
	put_number(o, "rows", c.rows);
	put_number(o, "python_calls", s->calls);
	put_number(o, "python_call_threads", s->call_threads);
	put_bool(o, "time_ordered", !s->unordered);
	put_number(o, "nameless_mallocs", s->nameless);
	json_object_set_new(o, "counts", fields_object(counts_fields, &c, NULL));
	summary_sort_devices(s);
	PUT_LIST(o, "devices", s->ndevices, device_value(s, s->devices[i]));
	PUT_LIST(o, "processes", s->nprocesses, process_value(s, s->processes[i], top));
	PUT_LIST(o, "ooms", s->nooms, oom_value(s, &s->ooms[i]));
	PUT_LIST(o, "notes", s->nnotes, text_value(s->notes[i], strlen(s->notes[i])));
	if (s->facts)
		processes_json(s->facts, o);
	char *text = json_dumps(o, JSON_INDENT(2));
	json_decref(o);
	if (!text)
		return -ENOMEM;
	buf_add_str(out, text);
	buf_add_char(out, '\n');
	free(text);
	return 0;
}
