/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Chrome traces: those of `sonde stack`, of nputrace, and of PyTorch's profiler (Kineto). Their events
 * are in any order, so a first reading notes where each event lies and when it was, and the second one
 * takes them in order of time: 40 bytes for each event are kept meanwhile.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>
#include <zlib.h>

#include "base/containers/hmap.h"
#include "base/containers/intern.h"
#include "base/fs.h"
#include "base/mem.h"
#include "formats/chrome_trace/scan.h"
#include "timeline/chrome_roles.h"
#include "timeline/timeline_impl.h"

#define COPY_BYTES (256u << 10)
#define TRACE_STEPS "steps" /* a thread of our traces */
#define FOREIGN_DEVICES 500 /* behind those that are numbered */

/* A pid of the trace: a process, or one of its devices. */
struct trace_process {
	int64_t pid;
	char *name, *labels;
	int32_t rank; /* -1 */
	bool is_device;
	uint64_t events;
	struct timeline_process *process;
	uint32_t number;
};

struct trace_thread {
	size_t process;
	int64_t tid;
	char *name;
	bool is_python, is_counter;
	struct timeline_track *track;
};

struct trace_event {
	int64_t ts_ns;
	int64_t dur_ns;
	uint64_t offset;
	uint32_t len;
	uint32_t thread;
	char ph;
};

struct chrome_source {
	struct timeline *t;
	const struct timeline_source *from;
	int fd;
	struct trace_process *processes;
	size_t nprocesses, cap_processes;
	struct trace_thread *threads;
	size_t nthreads, cap_threads;
	struct hmap process_of, thread_of;
	struct trace_event *events;
	size_t nevents, cap_events;
	int32_t rank; /* of the file; -1 */
	int64_t base_ns;
	bool has_base;
	bool incomplete; /* a trace of steps that says so itself */
	uint64_t bad;
};

static int32_t rank_in(const char *text)
{
	const char *at = text ? strstr(text, "rank ") : NULL;
	long rank = at && at[5] >= '0' && at[5] <= '9' ? strtol(at + 5, NULL, 10) : -1;

	return rank >= 0 && rank < 1 << 24 ? (int32_t)rank : -1;
}

/* --- the first reading --- */

static size_t find_process(struct chrome_source *s, int64_t pid)
{
	uint64_t at = hmap_get(&s->process_of, (uint64_t)pid);

	if (at != HMAP_NONE)
		return (size_t)at;
	s->processes =
		xgrow(s->processes, &s->cap_processes, s->nprocesses + 1, sizeof(*s->processes));
	s->processes[s->nprocesses] =
		(struct trace_process){.pid = pid, .rank = -1, .number = (uint32_t)s->nprocesses};
	hmap_put(&s->process_of, (uint64_t)pid, s->nprocesses);
	return s->nprocesses++;
}

static size_t find_thread(struct chrome_source *s, int64_t pid, int64_t tid, const char *counter)
{
	const uint64_t key[] = {(uint64_t)pid, (uint64_t)tid, (uintptr_t)counter};
	uint64_t hash = XXH3_64bits(key, sizeof(key)), at = hmap_get(&s->thread_of, hash);

	if (at != HMAP_NONE)
		return (size_t)at;
	size_t process = find_process(s, pid);
	s->threads = xgrow(s->threads, &s->cap_threads, s->nthreads + 1, sizeof(*s->threads));
	s->threads[s->nthreads] = (struct trace_thread){.process = process,
							.tid = tid,
							.is_counter = counter != NULL,
							.name = counter ? xstrdup(counter) : NULL};
	hmap_put(&s->thread_of, hash, s->nthreads);
	return s->nthreads++;
}

/* Ids are numbers, or texts such as "Spans". */
static int64_t read_id(const json_t *v)
{
	const char *text = json_string_value(v);
	char *end;

	if (json_is_integer(v))
		return json_integer_value(v);
	if (!text)
		return 0;
	long long n = strtoll(text, &end, 10);
	return *text && !*end ? n : (int64_t)(XXH3_64bits(text, strlen(text)) >> 24);
}

static bool read_us(const json_t *v, int64_t *out_ns)
{
	double us = json_number_value(v);

	if (!json_is_number(v) || !isfinite(us) || fabs(us) > 4e15)
		return false;
	*out_ns = (int64_t)llround(us * 1000.0);
	return true;
}

static void take_name(char **to, const char *text)
{
	if (!text)
		return;
	free(*to);
	*to = xstrdup(text);
}

static void read_meta(struct chrome_source *s, const json_t *event, int64_t pid, int64_t tid)
{
	const char *what = json_string_value(json_object_get(event, "name"));
	const json_t *args = json_object_get(event, "args");
	const char *name = json_string_value(json_object_get(args, "name"));

	if (!what)
		return;
	size_t process = find_process(s, pid);
	if (!strcmp(what, "process_name")) {
		take_name(&s->processes[process].name, name);
	} else if (!strcmp(what, "process_labels")) {
		take_name(&s->processes[process].labels,
			  json_string_value(json_object_get(args, "labels")));
	} else if (!strcmp(what, "thread_name")) {
		size_t thread = find_thread(s, pid, tid, NULL);

		take_name(&s->threads[thread].name, name);
	}
}

static int note_event(void *arg, uint64_t offset, const char *text, size_t len)
{
	struct chrome_source *s = arg;
	json_t *event = json_loadb(text, len, 0, NULL);
	const char *ph = json_string_value(json_object_get(event, "ph"));
	const char *cat = json_string_value(json_object_get(event, "cat"));
	const char *name = json_string_value(json_object_get(event, "name"));
	int64_t pid = read_id(json_object_get(event, "pid"));
	int64_t tid = read_id(json_object_get(event, "tid"));
	struct trace_event e = {.offset = offset, .len = (uint32_t)len, .ph = ph ? ph[0] : 0};

	if (!ph) {
		s->bad++;
	} else if (*ph == 'M') {
		read_meta(s, event, pid, tid);
	} else if (strchr("XBEiIC", *ph) && read_us(json_object_get(event, "ts"), &e.ts_ns)) {
		bool counter = *ph == 'C' && name;

		(void)read_us(json_object_get(event, "dur"), &e.dur_ns);
		e.thread = (uint32_t)find_thread(s, pid, counter ? 0 : tid,
						 counter ? intern(name, strlen(name)) : NULL);
		struct trace_thread *k = &s->threads[e.thread];
		k->is_python |= *ph == 'B' || (cat && !strcmp(cat, "python_function"));
		s->processes[k->process].events++;
		s->processes[k->process].is_device |=
			cat && (!strcmp(cat, "kernel") || !strncmp(cat, "gpu_mem", 7));
		s->events = xgrow(s->events, &s->cap_events, s->nevents + 1, sizeof(*s->events));
		s->events[s->nevents++] = e;
	}
	json_decref(event);
	return 0;
}

/* Times are taken for those of the wall clock: what is farther off is no time. */
static bool is_base(const json_t *v)
{
	json_int_t ns = json_integer_value(v);

	return json_is_integer(v) && ns >= -(INT64_MAX / 4) && ns <= INT64_MAX / 4;
}

bool chrome_source_base(const char *key, size_t key_len, const char *text, size_t len,
			int64_t *out_ns)
{
	bool named = key_len == 19 && !memcmp(key, "baseTimeNanoseconds", 19), found;
	bool other = key_len == 9 && !memcmp(key, "otherData", 9) && !*out_ns;

	if (!named && !other)
		return false;
	json_t *v = json_loadb(text, len, JSON_DECODE_ANY, NULL);
	const json_t *start = named ? v : json_object_get(v, "start_realtime_ns");
	found = is_base(start);
	if (found)
		*out_ns = json_integer_value(start);
	json_decref(v);
	return found;
}

static int note_member(void *arg, const char *key, size_t key_len, const char *text, size_t len)
{
	struct chrome_source *s = arg;

	if (chrome_source_base(key, key_len, text, len, &s->base_ns)) {
		s->has_base = true;
		return 0;
	}
	json_t *v = json_loadb(text, len, JSON_DECODE_ANY, NULL);
	if (key_len == 15 && !memcmp(key, "distributedInfo", 15)) {
		const json_t *rank = json_object_get(v, "rank");

		if (json_is_integer(rank) && json_integer_value(rank) >= 0 &&
		    json_integer_value(rank) < 1 << 24)
			s->rank = (int32_t)json_integer_value(rank);
	} else if (key_len == 5 && !memcmp(key, "sonde", 5)) {
		s->incomplete = json_is_false(json_object_get(v, "complete"));
	}
	json_decref(v);
	return 0;
}

/* --- whose tracks these are --- */

/* Of each rank the process with the most events that is no device: by rank + 1. */
static void find_hosts(const struct chrome_source *s, struct hmap *out)
{
	for (size_t i = 0; i < s->nprocesses; i++) {
		const struct trace_process *p = &s->processes[i];
		uint64_t at = hmap_get(out, (uint64_t)(p->rank + 1));

		if (!p->is_device && p->events &&
		    (at == HMAP_NONE || p->events > s->processes[at].events))
			hmap_put(out, (uint64_t)(p->rank + 1), i);
	}
}

/* A trace with its own rank is of one process, whatever pids its events have. */
static void find_owners(struct chrome_source *s)
{
	struct hmap hosts = {0};

	for (size_t i = 0; i < s->nprocesses; i++) {
		struct trace_process *p = &s->processes[i];
		int32_t named = rank_in(p->name);

		p->rank = named >= 0 ? named : s->rank;
		p->is_device |= p->name && !strncmp(p->name, "device ", 7);
		p->is_device |= p->labels && !strncmp(p->labels, "GPU ", 4);
	}
	find_hosts(s, &hosts);
	for (size_t i = 0; i < s->nprocesses; i++) {
		struct trace_process *p = &s->processes[i];
		uint64_t at = p->is_device || s->rank >= 0
				      ? hmap_get(&hosts, (uint64_t)(p->rank + 1))
				      : i;
		const struct trace_process *host = at == HMAP_NONE ? p : &s->processes[at];

		if (!p->events)
			continue;
		p->process = timeline_process(s->t, s->from->host, (uint32_t)host->pid, p->rank,
					      host->name);
	}
	hmap_release(&hosts);
}

static struct timeline_track *track_of(struct chrome_source *s, struct trace_thread *k)
{
	struct trace_process *p = &s->processes[k->process];
	struct timeline_place where = {.id = (uint64_t)k->tid};
	char name[160];

	if (k->track || !p->process)
		return k->track;
	if (k->is_counter) {
		where.group = GROUP_COUNTERS;
		where.kind = TRACK_COUNTER;
		where.id = XXH3_64bits(k->name, strlen(k->name)) + (uint64_t)p->pid;
	} else if (p->is_device) {
		where.group = GROUP_DEVICE;
		where.number = FOREIGN_DEVICES + p->number;
		const char *label = p->labels && !strncmp(p->labels, "GPU ", 4) ? p->labels
				    : p->name					? p->name
										: "device";
		where.group_name = intern(label, strlen(label));
	} else if (k->name && !strcmp(k->name, TRACE_STEPS)) {
		where.group = GROUP_NONE;
		return k->track = timeline_track(p->process, &where, "traced steps");
	} else {
		where.group = k->is_python ? GROUP_PYTHON : GROUP_HOST;
		where.order = 1;
		where.id ^= (uint64_t)p->pid << 32;
	}
	if (k->name)
		snprintf(name, sizeof(name), "%.150s", k->name);
	else
		snprintf(name, sizeof(name), "thread %lld", (long long)k->tid);
	return k->track = timeline_track(p->process, &where, name);
}

/* --- the second reading --- */

static int by_time(const void *pa, const void *pb)
{
	const struct trace_event *a = pa, *b = pb;

	if (a->ts_ns != b->ts_ns)
		return a->ts_ns < b->ts_ns ? -1 : 1;
	if (a->dur_ns != b->dur_ns)
		return a->dur_ns > b->dur_ns ? -1 : 1;
	return a->offset < b->offset ? -1 : 1;
}

static unsigned read_args(json_t *args, struct chrome_arg *out, uint64_t *out_correlation)
{
	const char *key;
	json_t *v;
	unsigned n = 0;

	json_object_foreach(args, key, v)
	{
		struct chrome_arg a = {.key = intern(key, strlen(key))};

		if (!strcmp(key, "correlation") && json_is_integer(v))
			*out_correlation = (uint64_t)json_integer_value(v);
		if (n == TIMELINE_MAX_ARGS)
			continue;
		if (json_is_integer(v)) {
			a.type = CHROME_INT;
			a.i = json_integer_value(v);
		} else if (json_is_real(v)) {
			a.type = CHROME_FLOAT;
			a.f = json_real_value(v);
		} else if (json_is_string(v) && json_string_length(v) < 200) {
			a.type = CHROME_TEXT;
			a.text = intern(json_string_value(v), json_string_length(v));
		} else {
			continue;
		}
		out[n++] = a;
	}
	return n;
}

static void put_counters(struct timeline_track *k, uint64_t ns, json_t *args)
{
	const char *key;
	json_t *v;

	json_object_foreach(args, key, v) if (json_is_number(v))
	{
		timeline_counter(k, ns, json_number_value(v));
		return; /* a track has one value */
	}
}

static void add_role(const struct chrome_source *s, const struct trace_event *e, const char *cat,
		     const json_t *args, struct timeline_event *out)
{
	const struct trace_thread *k = &s->threads[e->thread];
	const struct trace_process *p = &s->processes[k->process];

	if (p->is_device)
		chrome_role_of_device(cat, args, p->number, out);
	else
		chrome_role_of_host(cat, e->ph == 'B', args, (uint64_t)k->tid, out);
}

static void put_event(struct chrome_source *s, const struct trace_event *e, json_t *event)
{
	struct trace_thread *thread = &s->threads[e->thread];
	struct timeline_track *k = track_of(s, thread);
	const char *name = json_string_value(json_object_get(event, "name"));
	const char *cat = json_string_value(json_object_get(event, "cat"));
	json_t *args = json_object_get(event, "args");
	struct chrome_arg list[TIMELINE_MAX_ARGS];
	uint64_t correlation = 0, ns = (uint64_t)(s->base_ns + e->ts_ns);
	struct timeline_event out = {.args = list};

	if (!k)
		return;
	out.name = name ? intern(name, strlen(name)) : "";
	out.category = cat ? intern(cat, strlen(cat)) : NULL;
	out.nargs = read_args(args, list, &correlation);
	if (s->t->o.explain)
		add_role(s, e, cat, args, &out);
	if (e->ph == 'C') {
		put_counters(k, ns, args);
	} else if (e->ph == 'B') {
		timeline_begin(k, ns, &out);
	} else if (e->ph == 'E') {
		timeline_end(k, ns);
	} else if (e->ph == 'X') {
		uint64_t step = timeline_step_number(out.name);

		if (step)
			out.role = ROLE_NONE;
		if (step && !s->processes[thread->process].is_device)
			timeline_note_step(s->processes[thread->process].process, step, ns,
					   ns + (uint64_t)(e->dur_ns > 0 ? e->dur_ns : 0));
		out.flow_end = s->processes[thread->process].is_device;
		if (correlation && cat && (out.flow_end || !strncmp(cat, "cuda_", 5)))
			out.flow =
				timeline_flow(s->processes[thread->process].process, correlation);
		timeline_slice(k, ns, ns + (uint64_t)(e->dur_ns > 0 ? e->dur_ns : 0), &out);
	} else {
		timeline_instant(k, ns, &out);
	}
}

static int put_events(struct chrome_source *s, struct err *err)
{
	struct buf text = {0};
	int r = 0;

	if (s->nevents)
		qsort(s->events, s->nevents, sizeof(*s->events), by_time);
	for (size_t i = 0; i < s->nevents && r == 0; i++) {
		const struct trace_event *e = &s->events[i];

		buf_clear(&text);
		if (fs_read_at(s->fd, buf_room(&text, e->len), e->len, e->offset) !=
		    (ssize_t)e->len) {
			r = err_set(err, -EIO, "it has changed while it was read");
			break;
		}
		json_t *event = json_loadb(text.data, e->len, 0, NULL);
		if (event)
			put_event(s, e, event);
		json_decref(event);
	}
	buf_release(&text);
	return r;
}

/* --- files --- */

/* The text of a compressed file, in one without a name beside the output; if that is no file, where
 * temporary files are. */
static int expand_file(const char *output, int fd, struct err *err)
{
	const char *tmp = getenv("TMPDIR");
	char *path = fs_is_stream(output) ? xasprintf("%s/sonde-timeline.%d.tmp",
						      tmp && *tmp ? tmp : "/tmp", (int)getpid())
					  : xasprintf("%s.%d.tmp", output, (int)getpid());
	int to = fs_open(path, O_CREAT | O_EXCL | O_RDWR, 0600, err), n = 0;
	gzFile gz = gzdopen(fd, "rb");
	struct buf b = {0};

	if (to >= 0)
		(void)fs_unlink(path, NULL);
	while (to >= 0 && gz && (n = gzread(gz, buf_room(&b, COPY_BYTES), COPY_BYTES)) > 0) {
		int r = fs_write_all(to, b.data, (size_t)n, FS_HERE, NULL);

		if (r < 0) {
			close(to);
			to = err_sys(err, r, "cannot write a temporary file");
		}
	}
	if (gz)
		gzclose(gz);
	buf_release(&b);
	free(path);
	if (to >= 0)
		lseek(to, 0, SEEK_SET);
	return to;
}

int chrome_source_open(const char *path, const char *beside, struct err *err)
{
	unsigned char magic[2] = {0};
	int fd = fs_open(path, O_RDONLY, 0, err);

	if (fd >= 0 && fs_read_at(fd, magic, 2, 0) == 2 && magic[0] == 0x1f && magic[1] == 0x8b)
		fd = expand_file(beside, fd, err);
	return fd;
}

static void release_source(struct chrome_source *s)
{
	for (size_t i = 0; i < s->nprocesses; i++) {
		free(s->processes[i].name);
		free(s->processes[i].labels);
	}
	for (size_t i = 0; i < s->nthreads; i++)
		free(s->threads[i].name);
	free(s->processes);
	free(s->threads);
	free(s->events);
	hmap_release(&s->process_of);
	hmap_release(&s->thread_of);
	if (s->fd >= 0)
		close(s->fd);
}

int timeline_read_chrome(struct timeline *t, const struct timeline_source *from, struct buf *notes,
			 struct err *err)
{
	struct chrome_source s = {.t = t, .from = from, .rank = -1};
	struct chrome_scan_sink sink = {note_event, note_member, &s};
	struct chrome_scan_result found = {0};
	struct err why = {0};
	int r;

	s.fd = chrome_source_open(from->path, t->o.path, err);
	r = s.fd < 0 ? s.fd : 0;
	if (r == 0 && (r = chrome_scan(s.fd, &sink, &found, &why)) < 0)
		err_set(err, r, "'%s': %s", from->path, why.text);
	if (r == 0 && !s.nevents)
		r = err_set(err, -ENODATA, "'%s' has no events", from->path);
	if (r == 0) {
		find_owners(&s);
		if (!s.has_base)
			buf_addf(notes,
				 "'%s' has no start time: its times are taken as wall-clock "
				 "times.\n",
				 from->path);
		if (s.bad)
			buf_addf(notes, "'%s': %llu events could not be read and are left out.\n",
				 from->path, (unsigned long long)s.bad);
		if (found.cut)
			buf_addf(notes, "'%s' has no end: its writer was killed or still writes.\n",
				 from->path);
		if ((r = put_events(&s, &why)) < 0)
			err_set(err, r, "'%s': %s", from->path, why.text);
		for (size_t i = 0; s.incomplete && i < s.nprocesses; i++)
			if (s.processes[i].process)
				timeline_note_cut(s.processes[i].process);
	}
	release_source(&s);
	return r;
}
