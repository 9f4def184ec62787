/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Memory recordings and dumps: a counter for each pool, steps, marks, and where memory ran out. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/containers/intern.h"
#include "base/mem.h"
#include "memory/analysis/common/blocks.h"
#include "memory/input/input.h"
#include "timeline/memory_findings.h"
#include "timeline/sources.h"
#include "wire/record.h"

#define HOST_NS 100000u /* between values of host memory; a viewer shows no more */

/* What is known of a pool's counters; in its `own`. */
struct pool_tracks {
	struct timeline_track *allocated, *reserved;
	uint64_t last_allocated, last_reserved;
	/* Of the host, which allocates millions of times: what was not written yet. */
	uint64_t written_ns;
	uint64_t high_ns, high; /* the highest since then; 0: nothing waits */
	uint64_t newest_ns, newest;
};

struct open_range {
	uint64_t start_ns;
	const char *name;
	struct timeline_track *track;
};

/* The newest of a process; in its `own`. */
struct begun_step {
	uint32_t number; /* 0: none */
	uint64_t time_ns;
};

struct memory_source {
	struct timeline *t;
	const char *host;
	struct processes *processes; /* who they are, of the first reading */
	struct blocks *blocks;
	struct memory_findings *findings;
	struct buf *notes;
	struct pool_tracks **pools;
	size_t npools, cap_pools;
	struct begun_step **steps;
	size_t nsteps, cap_steps;
	struct open_range *ranges;
	size_t nranges, cap_ranges;
	struct hmap used; /* process, device and which: the newest sample */
	struct hmap range_of; /* id to its place in the list */
};

static struct timeline_process *find_process(void *arg, uint32_t pid)
{
	struct memory_source *s = arg;

	return timeline_process_of(s->t, s->host, s->processes, pid, -1, NULL);
}

/* --- counters --- */

static struct timeline_track *pool_track(struct timeline_process *p, const struct block_pool *pool,
					 const char *what, int32_t part)
{
	uint32_t device = pool->device->device;
	struct timeline_place where = {.group = GROUP_MEMORY,
				       .order =
					       (int32_t)(device % 512) * 64 + pool->type * 2 + part,
				       .id = device,
				       .kind = TRACK_BYTES};
	char name[96];

	if (device == DEV_HOST)
		snprintf(name, sizeof(name), "host %s %s", row_type_text(pool->type, ROW_SEED),
			 what);
	else
		snprintf(name, sizeof(name), "device %u %s %s", device,
			 row_type_text(pool->type, ROW_SEED), what);
	return timeline_track(p, &where, name);
}

static struct pool_tracks *tracks_of(struct memory_source *s, struct block_pool *pool)
{
	struct pool_tracks *k = pool->own;
	struct timeline_process *p;

	if (k)
		return k;
	k = xcalloc(1, sizeof(*k));
	k->last_allocated = k->last_reserved = UINT64_MAX;
	pool->own = k;
	LIST_ADD(s->pools, s->npools, s->cap_pools, k);
	p = find_process(s, pool->process->pid);
	if (!p)
		return k;
	k->allocated = pool_track(p, pool, "allocated", 0);
	if (!blocks_is_driver(pool->type))
		k->reserved = pool_track(p, pool, "reserved", 1);
	return k;
}

static void put_change(struct timeline_track *k, uint64_t time_ns, uint64_t value, uint64_t *last)
{
	if (!k || value == *last)
		return;
	*last = value;
	timeline_counter(k, time_ns, (double)value);
}

static void put_waiting(struct pool_tracks *k)
{
	if (!k->high_ns)
		return;
	if (k->high_ns < k->newest_ns)
		put_change(k->allocated, k->high_ns, k->high, &k->last_allocated);
	put_change(k->allocated, k->newest_ns, k->newest, &k->last_allocated);
	k->high_ns = 0;
}

/* At most two values for each HOST_NS: the highest and the last. */
static void put_host(struct pool_tracks *k, uint64_t time_ns, uint64_t value)
{
	if (time_ns >= k->written_ns + HOST_NS) {
		put_waiting(k);
		put_change(k->allocated, time_ns, value, &k->last_allocated);
		k->written_ns = time_ns;
		return;
	}
	if (!k->high_ns || value > k->high) {
		k->high = value;
		k->high_ns = time_ns;
	}
	k->newest = value;
	k->newest_ns = time_ns;
}

static void put_pool(struct memory_source *s, struct block_pool *pool, uint64_t time_ns)
{
	struct pool_tracks *k = tracks_of(s, pool);

	if (pool->device->device == DEV_HOST)
		put_host(k, time_ns, pool->live_bytes);
	else
		put_change(k->allocated, time_ns, pool->live_bytes, &k->last_allocated);
	if (pool->reserved)
		put_change(k->reserved, time_ns, pool->reserved, &k->last_reserved);
}

/* What the device's library says is used of it, by the process and by all: samples, which rows repeat. */
static void put_used(struct memory_source *s, const struct row *row, enum attr_key key,
		     const char *by)
{
	uint64_t value,
		at = (uint64_t)row->pid << 32 | row->device << 1 | (key == ATTR_DEVICE_USED);
	struct timeline_process *p;
	char name[64];

	if (row->device >= DEV_NONE || !row_number(row, key, &value) ||
	    hmap_put(&s->used, at, value) == value || !(p = find_process(s, row->pid)))
		return;
	struct timeline_place where = {.group = GROUP_MEMORY,
				       .order = (int32_t)(row->device % 512) * 64 + 62 +
						(key == ATTR_DEVICE_USED),
				       .id = row->device,
				       .kind = TRACK_BYTES};
	snprintf(name, sizeof(name), "device %u used by %s", row->device, by);
	timeline_counter(timeline_track(p, &where, name), row->time_ns, (double)value);
}

/* --- steps, marks, out of memory --- */

static struct timeline_track *step_track(struct timeline_process *p)
{
	return timeline_track(p, &(struct timeline_place){.group = GROUP_NONE, .order = 0},
			      "steps");
}

/* Of a recording without its oldest part: which step comes first is known when that has ended. */
static bool is_before_cut(const struct memory_source *s, const struct block_change *c)
{
	const struct dropped *d = &s->processes->dropped;

	return d->yes && !c->step_ended && c->step_begun <= d->cut.last_step;
}

static void begin_step(struct timeline_process *p, uint64_t time_ns, const char *name, size_t len)
{
	timeline_begin(
		step_track(p), time_ns,
		&(struct timeline_event){.name = intern(name, len), .category = "user_annotation"});
}

static void put_step(struct timeline_process *p, const struct begun_step *b)
{
	char name[32];
	int n = snprintf(name, sizeof(name), "step %u", b->number);

	timeline_note_step(p, b->number, b->time_ns, 0);
	begin_step(p, b->time_ns, name, (size_t)n);
}

/* A step is written when it has ended: calls that end one begin the next, which there may never be. */
static void put_steps(struct memory_source *s, const struct block_change *c, uint64_t time_ns)
{
	struct timeline_process *p = find_process(s, c->process->pid);
	struct begun_step *b = c->process->own;

	if (!p || is_before_cut(s, c))
		return;
	if (!b) {
		b = c->process->own = xcalloc(1, sizeof(*b));
		LIST_ADD(s->steps, s->nsteps, s->cap_steps, b);
	}
	if (c->step_ended && !c->steps_anew && b->number == c->step_ended) {
		put_step(p, b);
		timeline_end(step_track(p), time_ns);
	}
	if (c->step_ended)
		timeline_note_step(p, c->step_ended, 0, time_ns);
	*b = (struct begun_step){c->step_begun, time_ns};
}

static void put_last_steps(struct memory_source *s)
{
	static const char after[] = "after the last step";

	for (size_t i = 0; i < s->blocks->nprocesses; i++) {
		const struct block_process *from = s->blocks->processes[i];
		const struct begun_step *b = from->own;
		struct timeline_process *p = b ? find_process(s, from->pid) : NULL;

		if (!p || !b->number)
			continue;
		if (!from->by_call) {
			put_step(p, b); /* the program has said that it began */
		} else if (from->last_ns > b->time_ns) {
			begin_step(p, b->time_ns, after, sizeof(after) - 1);
			timeline_end(step_track(p), from->last_ns);
		}
	}
}

static struct timeline_track *mark_track(struct timeline_process *p, const struct row *row)
{
	char name[48];

	snprintf(name, sizeof(name), "thread %u", row->tid);
	return timeline_track(
		p, &(struct timeline_place){.group = GROUP_MARKS, .order = 0, .id = row->tid},
		name);
}

static const char *row_name(const struct row *row, const char *otherwise)
{
	return row->name ? intern(row->name, row->name_len) : otherwise;
}

/* A range is written when it ends: it may overlap others. */
static void put_mark(struct memory_source *s, const struct row *row)
{
	struct timeline_process *p = find_process(s, row->pid);
	uint64_t key = row->range ^ (uint64_t)row->pid << 40, at = hmap_get(&s->range_of, key);

	if (!p)
		return;
	if (row->type == TYPE_MARK) {
		struct timeline_event e = {.name = row_name(row, "mark")};

		timeline_instant(mark_track(p, row), row->time_ns, &e);
	} else if (row->type == TYPE_RANGE_START && row->range) {
		struct open_range r = {row->time_ns, row_name(row, "range"), mark_track(p, row)};

		hmap_put(&s->range_of, key, s->nranges);
		LIST_ADD(s->ranges, s->nranges, s->cap_ranges, r);
	} else if (row->type == TYPE_RANGE_END && at != HMAP_NONE) {
		struct open_range *r = &s->ranges[at];
		struct timeline_event e = {.name = r->name, .category = "user_annotation"};

		timeline_slice(r->track, r->start_ns, row->time_ns, &e);
		hmap_remove(&s->range_of, key);
		if (!s->range_of.count)
			s->nranges = 0;
	}
}

static void put_oom(struct memory_source *s, const struct row *row)
{
	struct timeline_process *p = find_process(s, row->pid);
	struct chrome_arg args[2];
	uint64_t size;
	unsigned n = 0;

	if (!p)
		return;
	if (row_number(row, ATTR_REQ_SIZE, &size) || row_number(row, ATTR_SIZE, &size))
		args[n++] =
			(struct chrome_arg){"requested bytes", CHROME_INT, {.i = (int64_t)size}};
	if (row->device < DEV_NONE)
		args[n++] = (struct chrome_arg){"device", CHROME_INT, {.i = row->device}};
	timeline_instant(
		timeline_track(p, &(struct timeline_place){.group = GROUP_NONE, .order = 1},
			       "out of memory"),
		row->time_ns,
		&(struct timeline_event){.name = "out of memory", .args = args, .nargs = n});
}

/* Of a device: what the host waits for. */
static void put_driver_event(struct memory_source *s, const struct block_pool *pool,
			     uint64_t time_ns)
{
	if (!blocks_is_driver(pool->type) || pool->device->device == DEV_HOST)
		return;
	struct timeline_process *p = find_process(s, pool->process->pid);
	if (p)
		timeline_note_allocation(p, time_ns);
}

/* The highest moment of a device so far: its bytes, and when. */
static void note_peak(struct block_device *d, uint64_t time_ns)
{
	uint64_t bytes = d->has_driver ? d->driver_bytes : d->pool_bytes;

	if (bytes <= d->own[0])
		return;
	d->own[0] = bytes;
	d->own[1] = time_ns;
}

static void take_row(void *arg, const struct row *row)
{
	struct memory_source *s = arg;
	struct block_change c;
	enum block_what what = blocks_add(s->blocks, row, &c);

	memory_findings_row(s->findings, row);
	if (what == BLOCKS_ALLOC || what == BLOCKS_FREE) {
		put_pool(s, c.pool, row->time_ns);
		put_driver_event(s, c.pool, row->time_ns);
	}
	if (what == BLOCKS_ALLOC)
		note_peak(c.pool->device, row->time_ns);
	put_used(s, row, ATTR_PROCESS_USED, "the process");
	put_used(s, row, ATTR_DEVICE_USED, "all processes");
	if (c.step_ended || c.step_begun)
		put_steps(s, &c, row->time_ns);
	if (row->event == ROW_MSTX)
		put_mark(s, row);
	else if (row->type == TYPE_OOM_TRIGGER)
		put_oom(s, row);
}

/* --- reading --- */

static void take_process(void *arg, uint32_t pid, const char *command)
{
	struct memory_source *s = arg;

	blocks_process(s->blocks, pid, command);
	memory_findings_process(s->findings, pid, command);
}

static void take_note(void *arg, const char *text)
{
	struct memory_source *s = arg;

	buf_addf(s->notes, "%s\n", text);
}

/* Ranges that never ended, so far as is known. */
static void end_ranges(struct memory_source *s)
{
	uint64_t key, at;

	for (size_t i = 0; hmap_next(&s->range_of, &i, &key, &at);) {
		struct open_range *r = &s->ranges[at];
		struct timeline_event e = {.name = r->name, .category = "user_annotation"};

		timeline_slice(r->track, r->start_ns, s->blocks->last_ns, &e);
	}
}

int timeline_read_memory(struct timeline *t, const struct timeline_source *from,
			 const struct recording_hearers *others, struct buf *notes, struct err *err)
{
	struct memory_source s = {
		.t = t, .host = from->host, .processes = others->processes, .notes = notes};
	struct mem_asked asked = {0};
	struct input_sink who = {.processes = others->processes,
				 .asked = &asked,
				 .attrs = 1ull << ATTR_SIZE,
				 .beside = others->names};
	struct input_sink sink = {
		.process = take_process,
		.row = take_row,
		.note = take_note,
		.attrs = BLOCKS_ATTRS | 1ull << ATTR_REQ_SIZE | 1ull << ATTR_PROCESS_USED |
			 1ull << ATTR_DEVICE_USED | memory_findings_attrs(),
		.arg = &s,
		.beside = others->all,
	};
	int r = input_read(from->path, &who, err);

	s.blocks = blocks_new();
	s.findings = memory_findings_new(!asked.known || asked.own || asked.accesses);
	if (r == 0)
		r = input_read(from->path, &sink, err);
	for (size_t i = 0; i < s.npools; i++)
		put_waiting(s.pools[i]);
	if (r == 0) {
		put_last_steps(&s);
		end_ranges(&s);
		memory_findings_put(s.findings, s.blocks, find_process, &s);
	}
	memory_findings_free(s.findings);
	blocks_free(s.blocks);
	for (size_t i = 0; i < s.npools; i++)
		free(s.pools[i]);
	for (size_t i = 0; i < s.nsteps; i++)
		free(s.steps[i]);
	free(s.pools);
	free(s.steps);
	free(s.ranges);
	hmap_release(&s.used);
	hmap_release(&s.range_of);
	return r;
}
