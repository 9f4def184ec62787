/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What files say about clocks: whose they are, when something was recorded, and collectives. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "activity/read/read.h"
#include "activity/read/recording.h"
#include "base/containers/hmap.h"
#include "base/containers/intern.h"
#include "base/mem.h"
#include "base/text/printable.h"
#include "formats/chrome_trace/scan.h"
#include "memory/input/input.h"
#include "timeline/clocks_impl.h"
#include "timeline/timeline_impl.h"
#include "wire/record_samples.h"

#define TRACE_DIR_END "_sonde"

/* --- whose --- */

/* "<host>_<pid>_<time>_sonde/trace.json" */
static const char *host_of_trace(const char *path)
{
	const char *slash = strrchr(path, '/'), *begin = slash, *end;

	if (!slash)
		return NULL;
	while (begin > path && begin[-1] != '/')
		begin--;
	end = slash - (sizeof(TRACE_DIR_END) - 1);
	if (end <= begin || strncmp(end, TRACE_DIR_END, sizeof(TRACE_DIR_END) - 1) != 0)
		return NULL;
	for (unsigned part = 0; part < 2; part++) {
		const char *digits = end;

		while (digits > begin && digits[-1] >= '0' && digits[-1] <= '9')
			digits--;
		if (digits == end || digits - 1 <= begin || digits[-1] != '_')
			return NULL;
		end = digits - 1;
	}
	return intern(begin, (size_t)(end - begin));
}

static int stop_reading(void *arg, const struct activity *a)
{
	(void)arg, (void)a;
	return 1;
}

static void name_of_activities(const char *path, struct buf *out)
{
	struct activity_about about = {.rank = -1};

	if (activity_read(path, stop_reading, NULL, &about, NULL) >= 0 && about.host)
		buf_add_str(out, about.host);
	activity_about_release(&about);
}

const char *clocks_own_name(const char *path, enum source_kind kind)
{
	struct buf name = {0}, shown = {0};
	const char *host = NULL;

	if (kind == SOURCE_CHROME)
		return host_of_trace(path);
	if (kind == SOURCE_ACTIVITY)
		name_of_activities(path, &name);
	else if (kind == SOURCE_MEMORY)
		(void)input_find_host(path, &name);
	if (name.len) {
		text_add_printable(&shown, name.data, name.len);
		host = intern(shown.data, shown.len);
	}
	buf_release(&name);
	buf_release(&shown);
	return host;
}

/* --- reading --- */

struct reading {
	struct collectives *collectives;
	int64_t first_ns, last_ns;
	/* of traces: times count from here */
	int64_t base_ns;
};

static void note_time(struct reading *r, int64_t start_ns, int64_t end_ns)
{
	if (start_ns < r->first_ns)
		r->first_ns = start_ns;
	if (end_ns > r->last_ns)
		r->last_ns = end_ns;
}

static void take_row(void *arg, const struct row *row)
{
	note_time(arg, (int64_t)row->time_ns, (int64_t)row->time_ns);
}

static int take_activity(void *arg, const struct activity *a)
{
	struct reading *r = arg;
	bool kernel = a->kind == ACTIVITY_KERNEL && !strncmp(a->name, "nccl", 4);

	note_time(r, (int64_t)a->start_ns, (int64_t)a->end_ns);
	if (a->kind == ACTIVITY_MARKER && timeline_step_number(a->name))
		collectives_add_step(r->collectives, timeline_step_number(a->name), a->start_ns,
				     a->end_ns);
	if ((kernel || a->kind == ACTIVITY_COMMUNICATION) && collectives_is_one(a->name))
		collectives_add(r->collectives,
				&(struct collective){.group = kernel ? a->name : a->detail,
						     .name = a->name,
						     .size = kernel ? 0 : a->amount,
						     .start_ns = a->start_ns,
						     .end_ns = a->end_ns});
	return 0;
}

/* --- traces --- */

static const char *text_in(const json_t *args, const char *key)
{
	const json_t *v = json_object_get(args, key);

	return json_is_string(v) ? intern(json_string_value(v), json_string_length(v)) : NULL;
}

/* As PyTorch's profiler and ours say what a kernel of communication is. */
static void take_kernel(struct reading *r, const json_t *event, const char *name, int64_t start_ns,
			int64_t end_ns)
{
	const json_t *args = json_object_get(event, "args");
	const char *group = text_in(args, "Process Group Name");
	const char *what = text_in(args, "Collective name");
	json_int_t size = json_integer_value(json_object_get(args, "In msg nelems"));

	if (!group && (group = text_in(args, "group")))
		size = json_integer_value(json_object_get(args, "count"));
	if (!group && strncmp(name, "nccl", 4) != 0)
		return;
	what = what ? what : intern(name, strlen(name));
	if (collectives_is_one(what))
		collectives_add(r->collectives, &(struct collective){.group = group ? group : what,
								     .name = what,
								     .size = (uint64_t)size,
								     .start_ns = (uint64_t)start_ns,
								     .end_ns = (uint64_t)end_ns});
}

static bool read_us(const json_t *v, int64_t *out_ns)
{
	double us = json_number_value(v);

	*out_ns = 0;
	if (!json_is_number(v) || !isfinite(us) || fabs(us) > 2e15)
		return false;
	*out_ns = llround(us * 1000.0);
	return true;
}

static int take_event(void *arg, uint64_t offset, const char *text, size_t len)
{
	struct reading *r = arg;
	json_t *event = json_loadb(text, len, 0, NULL);
	const char *ph = json_string_value(json_object_get(event, "ph"));
	const char *cat = json_string_value(json_object_get(event, "cat"));
	const char *name = json_string_value(json_object_get(event, "name"));
	int64_t start, took;

	(void)offset;
	if (ph && *ph && strchr("XBEiIC", *ph) && read_us(json_object_get(event, "ts"), &start)) {
		(void)read_us(json_object_get(event, "dur"), &took);
		took = took > 0 ? took : 0;
		note_time(r, start, start + took);
		if (*ph == 'X' && cat && name && start >= 0 && !strcmp(cat, "kernel"))
			take_kernel(r, event, name, start, start + took);
		else if (*ph == 'X' && name && start >= 0 && timeline_step_number(name))
			collectives_add_step(r->collectives, timeline_step_number(name),
					     (uint64_t)start, (uint64_t)(start + took));
	}
	json_decref(event);
	return 0;
}

static int take_member(void *arg, const char *key, size_t key_len, const char *text, size_t len)
{
	struct reading *r = arg;

	chrome_source_base(key, key_len, text, len, &r->base_ns);
	return 0;
}

static int read_trace(struct reading *r, const char *path, const char *beside, struct err *err)
{
	struct chrome_scan_sink sink = {take_event, take_member, r};
	struct chrome_scan_result found;
	struct err why = {0};
	int fd = chrome_source_open(path, beside, err), got;

	if (fd < 0)
		return fd;
	if ((got = chrome_scan(fd, &sink, &found, &why)) < 0)
		err_set(err, got, "'%s': %s", path, why.text);
	close(fd);
	collectives_shift_rank(r->collectives, r->base_ns);
	r->first_ns += r->first_ns < INT64_MAX ? r->base_ns : 0;
	r->last_ns += r->base_ns;
	return got;
}

/* --- recordings, which have all processes of a host --- */

struct recorded_host {
	struct reading *reading;
	unsigned host;
	struct hmap ranks; /* the number of a process in the recording to struct recorded_rank */
};

struct recorded_rank {
	struct reading *reading;
	size_t rank; /* of collectives */
	uint64_t step, step_ns; /* that has begun; 0: none */
};

static void *begin_recorded(void *arg, uint32_t proc, const struct activity_about *about)
{
	struct recorded_host *h = arg;
	struct recorded_rank *k = hmap_get_ptr(&h->ranks, proc);

	(void)about;
	if (k)
		return k;
	k = xcalloc(1, sizeof(*k));
	k->reading = h->reading;
	k->rank = collectives_begin_rank(h->reading->collectives, h->host);
	hmap_put_ptr(&h->ranks, proc, k);
	return k;
}

static int take_recorded(void *process, const struct activity *a)
{
	struct recorded_rank *k = process;

	collectives_go_on_with_rank(k->reading->collectives, k->rank);
	return take_activity(k->reading, a);
}

static void take_step(void *process, uint64_t number, uint64_t wall_ns)
{
	struct recorded_rank *k = process;

	collectives_go_on_with_rank(k->reading->collectives, k->rank);
	if (k->step)
		collectives_add_step(k->reading->collectives, k->step, k->step_ns, wall_ns);
	k->step = number;
	k->step_ns = wall_ns;
}

/* --- recordings of nothing but stacks and counters --- */

struct sampled_time {
	int64_t wall_minus_mono_ns;
	int64_t first_ns, last_ns;
};

static void take_session(void *arg, const char *json, size_t len)
{
	struct sampled_time *s = arg;
	json_t *root = json_loadb(json, len, 0, NULL);

	s->wall_minus_mono_ns = json_integer_value(json_object_get(root, "wallMinusMono"));
	json_decref(root);
}

static void take_sample(void *arg, uint32_t proc, uint32_t tid, const struct rec *r)
{
	struct sampled_time *s = arg;
	int64_t ns;

	(void)tid;
	if (proc != PROC_NONE || r->time_ns > INT64_MAX ||
	    __builtin_add_overflow((int64_t)r->time_ns, s->wall_minus_mono_ns, &ns))
		return;
	s->first_ns = ns < s->first_ns ? ns : s->first_ns;
	s->last_ns = ns > s->last_ns ? ns : s->last_ns;
}

/* Recordings, and dumps, which have no activities. */
static int read_rows(struct reading *r, const char *path, unsigned host, struct err *err)
{
	static const struct activity_recording_ops ops = {
		.process = begin_recorded, .activity = take_recorded, .step = take_step};
	static const struct stream_ops samples = {.session = take_session, .record = take_sample};
	struct recorded_host h = {.reading = r, .host = host};
	struct sampled_time sampled = {.first_ns = INT64_MAX};
	struct stream_listener activities, others = {&samples, &sampled, NULL};
	struct input_sink rows = {
		.row = take_row, .attrs = 1ull << ATTR_SIZE, .arg = r, .beside = &activities};
	struct activity_reading *reading =
		activity_recording_begin(ACTIVITY_ALL_PROCESSES, &ops, &h, &activities);
	activities.next = &others;
	int got = input_read(path, &rows, err), ended = activity_recording_end(reading);
	uint64_t key, value;

	for (size_t at = 0; hmap_next(&h.ranks, &at, &key, &value);)
		free((void *)(uintptr_t)value);
	hmap_release(&h.ranks);
	if (r->first_ns == INT64_MAX && sampled.last_ns)
		note_time(r, sampled.first_ns, sampled.last_ns);
	return got < 0 ? got : ended;
}

int clocks_read_source(struct timeline_clocks *c, const struct clock_source *s, const char *beside,
		       struct err *err)
{
	struct reading r = {.collectives = c->collectives, .first_ns = INT64_MAX};
	struct timeline_clock *host = &c->hosts[s->host];
	struct activity_about about = {.rank = -1};
	int got;

	if (s->kind != SOURCE_MEMORY)
		(void)collectives_begin_rank(c->collectives, s->host);
	if (s->kind == SOURCE_CHROME)
		got = read_trace(&r, s->path, beside, err);
	else if (s->kind == SOURCE_ACTIVITY)
		got = activity_read(s->path, take_activity, &r, &about, err);
	else
		got = read_rows(&r, s->path, s->host, err);
	activity_about_release(&about);
	if (r.first_ns > 0 && r.first_ns < host->first_ns)
		host->first_ns = r.first_ns;
	if (r.last_ns < CLOCK_FILE_TIME_MAX && r.last_ns > host->last_ns)
		host->last_ns = r.last_ns;
	return got;
}
