/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The file: protobuf of Perfetto, or a Chrome trace. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/containers/intern.h"
#include "base/mem.h"
#include "base/text/text.h"
#include "timeline/timeline_impl.h"

#define DAY_NS 86400000000000ull
#define ORDER_UNRANKED (1 << 24) /* processes without a rank are behind those with one */
#define ORDER_RANKS 2 /* a rank, then its helpers */
#define FLOW "ac2g"

static int32_t process_order(const struct timeline_process *p)
{
	if (!p->pid)
		return INT32_MAX; /* the machine */
	return p->rank >= 0 && p->rank < ORDER_UNRANKED / ORDER_RANKS
		       ? p->rank * ORDER_RANKS + (p->role == SAMPLED_HELPER)
		       : ORDER_UNRANKED + (int32_t)p->index;
}

static const char *const group_names[] = {
	[GROUP_DEVICE] = "device", [GROUP_MEMORY] = "memory", [GROUP_HOST] = "host",
	[GROUP_MARKS] = "marks",   [GROUP_PYTHON] = "Python", [GROUP_COUNTERS] = "counters",
};

/* What a Chrome trace says about itself; HTA wants to know the rank, of which a file has one. */
static void add_members(void *arg, struct buf *out)
{
	const struct timeline *t = arg;
	int32_t rank = -1;
	size_t ranks = 0;

	for (size_t i = 0; i < t->nprocesses; i++)
		if (t->processes[i]->rank >= 0 && t->processes[i]->rank != rank) {
			rank = t->processes[i]->rank;
			ranks++;
		}
	buf_addf(out, "\"baseTimeNanoseconds\":%llu", (unsigned long long)t->base_ns);
	if (ranks == 1)
		buf_addf(out, ",\"distributedInfo\":{\"rank\":%d}", rank);
	json_t *clocks = timeline_clocks_json(t->o.clocks);
	char *text = clocks ? json_dumps(clocks, JSON_COMPACT) : NULL;
	if (text)
		buf_addf(out, ",\"sonde\":{\"hosts\":%s}", text);
	free(text);
	json_decref(clocks);
}

static int open_chrome(struct timeline *t, struct err *err)
{
	struct chrome_trace_options o = {
		.path = t->o.path, .gzip = t->o.gzip, .add_members = add_members, .arg = t};

	return chrome_trace_new(&o, &t->chrome, err);
}

int output_open(struct timeline *t, struct err *err)
{
	return t->o.json ? open_chrome(t, err)
			 : perfetto_trace_new(t->o.path, t->o.gzip, &t->perfetto, err);
}

int output_close(struct timeline *t, struct err *err)
{
	if (t->o.json) {
		struct err flushed = {0};
		int r = chrome_trace_flush(t->chrome, &flushed);

		t->counts.bytes = chrome_trace_bytes(t->chrome);
		int closed = chrome_trace_close(t->chrome, err);
		if (r < 0 && closed == 0)
			*err = flushed;
		return closed < 0 ? closed : r;
	}
	t->counts.bytes = perfetto_trace_bytes(t->perfetto);
	return perfetto_trace_close(t->perfetto, err);
}

/* --- tracks --- */

static const char *intern_text(const char *text)
{
	return intern(text, strlen(text));
}

/* On the track of the host, where its recording begins. */
static void put_clock(struct timeline *t, uint32_t track, const struct timeline_clock *k)
{
	const struct chrome_arg args[] = {
		{intern_text("ahead_ns"), CHROME_INT, {.i = k->line.offset_ns}},
		{intern_text("drift_ppm"), CHROME_FLOAT, {.f = k->line.drift * 1e6}},
		{intern_text("bound_ns"), CHROME_INT, {.i = k->known ? k->line.bound_ns : -1}},
		{intern_text("known from"),
		 CHROME_TEXT,
		 {.text = intern_text(timeline_clock_from(k))}}};

	perfetto_instant(
		t->perfetto,
		&(struct perfetto_event){
			.track = track,
			.time_ns = (uint64_t)(k->first_ns - clock_line_at(&k->line, k->first_ns)),
			.name = intern_text("clock"),
			.args = args,
			.nargs = sizeof(args) / sizeof(args[0])});
	t->counts.instants++;
}

static uint32_t find_host(struct timeline *t, const char *host)
{
	uint64_t found;

	if (!host)
		return 0;
	found = hmap_get(&t->hosts, (uintptr_t)host);
	if (found != HMAP_NONE)
		return (uint32_t)found;
	const struct timeline_clock *k = timeline_clocks_find(t->o.clocks, host);
	struct buf name = {0};
	buf_add_str(&name, host); /* viewers cut long names in the middle */
	if (k && k->is_base)
		buf_add_str(&name, " · base clock");
	else if (k && k->known)
		buf_addf(&name, " · ± %.3f ms", (double)k->line.bound_ns / 1e6);
	else if (k)
		buf_add_str(&name, " · clock not known");
	struct perfetto_track d = {.name = buf_str(&name), .order = (int32_t)t->hosts.count};
	uint32_t number = perfetto_add_track(t->perfetto, &d);
	hmap_put(&t->hosts, (uintptr_t)host, number);
	t->counts.tracks++;
	buf_release(&name);
	if (k)
		put_clock(t, number, k);
	return number;
}

static void name_chrome(struct timeline *t, int64_t pid, int64_t tid, const char *what,
			const char *name, const char *order_what, int64_t order)
{
	struct chrome_arg text = {.key = "name", .type = CHROME_TEXT, .text = name};
	struct chrome_arg number = {.key = "sort_index", .type = CHROME_INT, .i = order};

	chrome_meta(t->chrome, pid, tid, what, &text, 1);
	chrome_meta(t->chrome, pid, tid, order_what, &number, 1);
}

struct out_track output_process(struct timeline *t, const struct timeline_process *p,
				const char *name)
{
	t->counts.tracks++;
	if (t->o.json) {
		name_chrome(t, p->shown_pid, 0, "process_name", name, "process_sort_index",
			    process_order(p));
		return (struct out_track){0, p->shown_pid};
	}
	struct perfetto_track d = {
		.parent = find_host(t, p->host), .name = name, .order = process_order(p)};
	return (struct out_track){perfetto_add_track(t->perfetto, &d), 0};
}

static void name_group(const struct timeline_place *where, struct buf *out)
{
	buf_add_str(out, where->group_name ? where->group_name : group_names[where->group]);
	if (where->group == GROUP_DEVICE && !where->group_name)
		buf_addf(out, " %u", where->number);
}

static uint32_t find_group(struct timeline *t, const struct timeline_process *p,
			   const struct timeline_place *where)
{
	const uint64_t key[] = {p->index, where->group, where->number};
	uint64_t hash = XXH3_64bits(key, sizeof(key)), found = hmap_get(&t->groups, hash);
	struct buf name = {0};

	if (where->group == GROUP_NONE)
		return p->out.number;
	if (found != HMAP_NONE)
		return (uint32_t)found;
	name_group(where, &name);
	struct perfetto_track d = {.parent = p->out.number,
				   .name = buf_str(&name),
				   .order = (int32_t)where->group * 1000 +
					    (int32_t)(where->number % 1000)};
	uint32_t number = perfetto_add_track(t->perfetto, &d);
	hmap_put(&t->groups, hash, number);
	t->counts.tracks++;
	buf_release(&name);
	return number;
}

struct out_track output_track(struct timeline *t, const struct timeline_process *p,
			      const struct timeline_place *where, const char *name, unsigned lane)
{
	struct buf shown = {0};
	struct out_track k = {0, p->shown_pid};

	if (t->o.json && where->group != GROUP_NONE) {
		name_group(where, &shown);
		buf_add_str(&shown, ": ");
	}
	buf_add_str(&shown, name);
	if (lane)
		buf_addf(&shown, " (%u)", lane + 1);
	t->counts.tracks++;
	if (t->o.json) {
		k.number = (uint32_t)++t->next_tid;
		if (where->kind == TRACK_SLICES)
			name_chrome(t, k.pid, k.number, "thread_name", buf_str(&shown),
				    "thread_sort_index",
				    (int64_t)where->group * 1000000 + where->number * 10000 +
					    where->order);
	} else {
		struct perfetto_track d = {.parent = find_group(t, p, where),
					   .name = buf_str(&shown),
					   .order = where->order * LANES_MAX + (int32_t)lane,
					   .kind = where->kind == TRACK_BYTES
							   ? PERFETTO_COUNTER_BYTES
						   : where->kind == TRACK_COUNTER ? PERFETTO_COUNTER
										  : PERFETTO_PLAIN};
		k.number = perfetto_add_track(t->perfetto, &d);
	}
	buf_release(&shown);
	return k;
}

/* --- events --- */

/* Chrome's times count from the beginning of a day, so that floating point loses nothing. */
static int64_t chrome_time(struct timeline *t, uint64_t ns)
{
	if (!t->base_ns)
		t->base_ns = ns - ns % DAY_NS;
	return (int64_t)(ns - t->base_ns);
}

void output_begin(struct timeline *t, const struct out_track *k, uint64_t start_ns, uint64_t end_ns,
		  const struct timeline_event *e)
{
	if (!t->o.json) {
		perfetto_begin(t->perfetto,
			       &(struct perfetto_event){.track = k->number,
							.time_ns = start_ns,
							.name = e->name,
							.args = e->args,
							.nargs = e->nargs - e->track_args,
							.flow = e->flow});
		return;
	}
	int64_t ts = chrome_time(t, start_ns);
	if (end_ns == UINT64_MAX)
		chrome_begin(t->chrome, ts, k->pid, k->number, e->category, e->name, e->args,
			     e->nargs);
	else
		chrome_complete(t->chrome, ts, (int64_t)(end_ns - start_ns), k->pid, k->number,
				e->category, e->name, e->args, e->nargs);
	if (e->flow)
		chrome_flow(t->chrome, e->flow_end, ts, k->pid, k->number, FLOW,
			    e->flow >> 16); /* readers take it for a floating point number */
}

void output_end(struct timeline *t, const struct out_track *k, uint64_t end_ns, bool known)
{
	if (!t->o.json)
		perfetto_end(t->perfetto, k->number, end_ns);
	else if (!known)
		chrome_end(t->chrome, chrome_time(t, end_ns), k->pid, k->number, "", NULL, 0);
}

void output_instant(struct timeline *t, const struct out_track *k, uint64_t time_ns,
		    const struct timeline_event *e)
{
	if (t->o.json)
		chrome_instant(t->chrome, chrome_time(t, time_ns), k->pid, k->number, e->name,
			       e->args, e->nargs);
	else
		perfetto_instant(t->perfetto, &(struct perfetto_event){.track = k->number,
								       .time_ns = time_ns,
								       .name = e->name,
								       .args = e->args,
								       .nargs = e->nargs,
								       .flow = e->flow});
}

void output_counter(struct timeline *t, const struct timeline_track *k, uint64_t time_ns,
		    double value)
{
	bool whole = value >= -9e15 && value <= 9e15 && value == (double)(int64_t)value;
	struct chrome_arg arg = {.key = "value", .type = CHROME_FLOAT, .f = value};

	if (t->o.json) {
		if (whole)
			arg = (struct chrome_arg){"value", CHROME_INT, {.i = (int64_t)value}};
		chrome_counter(t->chrome, chrome_time(t, time_ns), k->out.pid, k->name, NULL, &arg,
			       1);
	} else if (whole) {
		perfetto_counter(t->perfetto, k->out.number, time_ns, (int64_t)value);
	} else {
		perfetto_counter_double(t->perfetto, k->out.number, time_ns, value);
	}
}
