/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Activities as a timeline: a process per device with its streams as threads, the threads of the
 * host, arrows from calls to what they have launched, marks on tracks of their own, since they need
 * not be nested. Names of C++ are shown as people write them. A file can have the activities of
 * several processes: each has devices of its own, and viewers show them in the order of ranks.
 *
 * Times count from the beginning of a day (UTC), so that readers who take them for floating point
 * lose nothing, and the traces of several ranks fit together; baseTimeNanoseconds says which day.
 */
#include "activity/files/activity.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/clock.h"
#include "base/containers/hmap.h"
#include "base/containers/intern.h"
#include "base/fs.h"
#include "base/mem.h"
#include "formats/chrome_trace/chrome_trace.h"
#include "unwind/symbols/demangle.h"
#include "wire/request.h"

#define TRACE_NAME "trace.json"
#define PID_DEVICE 1000001000 /* and the number of the device */
#define DEVICES 1000 /* of one process: so many numbers behind them are those of the next one */
#define TID_MARKS 1000000000 /* and a number for each track */
#define HOUR_NS 3600000000000ull
#define DAY_NS (24 * HOUR_NS)
#define LAUNCHES_MAX (1u << 18) /* of which twice as many are remembered */
#define FLOW "launch"

/* Where a call or what it launched is, for the arrow between them. */
struct end {
	int64_t ts_ns, pid, tid;
	uint64_t next; /* of the same correlation; HMAP_NONE */
};

/* By correlation, in two generations: what is in the older one is forgotten when the younger one is
 * full. */
struct ends {
	struct hmap young, old;
	struct end *young_list, *old_list;
	size_t n, cap;
};

struct activity_writer {
	struct chrome_trace *trace; /* NULL: not there yet */
	char *dir; /* is made if need be; NULL: it is there */
	char *path;
	bool begun; /* the path is that of a file */
	char *about; /* members of the object; NULL: none */
	struct activity_origin who; /* what comes next is of this process */
	struct hmap processes; /* pid and rank to a number: the first is 0 */
	uint64_t process; /* that of `who` */
	int64_t base_ns;
	struct hmap named; /* tracks that have a name */
	struct hmap tracks; /* of marks: hash of where and domain to tid */
	struct hmap names; /* text to what is shown */
	struct hmap held; /* track of a device to bytes that are allocated */
	struct ends calls, launched;
	uint64_t flows, lost;
	int failed;
};

static void chrome_set_process(struct activity_writer *w, const struct activity_origin *who)
{
	uint64_t key = (uint64_t)who->pid << 32 | (uint32_t)who->rank;

	w->who = *who;
	w->process = hmap_get(&w->processes, key);
	if (w->process == HMAP_NONE) {
		w->process = w->processes.count;
		hmap_put(&w->processes, key, w->process);
	}
}

static struct activity_writer *chrome_open_file(const char *path, const struct activity_origin *who,
						const struct activity_options *options)
{
	struct activity_writer *w = xcalloc(1, sizeof(*w));
	uint64_t day = who->start_ns > HOUR_NS ? who->start_ns - HOUR_NS : 0;

	(void)options;
	w->path = xstrdup(path);
	chrome_set_process(w, who);
	w->base_ns = (int64_t)(day - day % DAY_NS);
	return w;
}

static struct activity_writer *chrome_open(const char *dir, const struct activity_origin *who,
					   const struct activity_options *options)
{
	char *path = xasprintf("%s/" TRACE_NAME, dir);
	struct activity_writer *w = chrome_open_file(path, who, options);

	w->dir = xstrdup(dir);
	free(path);
	return w;
}

static int begin_trace(struct activity_writer *w, struct err *err)
{
	struct chrome_trace_options o = {.path = w->path, .mode = ACTIVITY_FILE_MODE};
	int r = w->dir ? fs_mkdirs(w->dir, err) : 0;

	if (r < 0)
		return r;
	char *other =
		xasprintf("\"baseTimeNanoseconds\":%lld,\"otherData\":{\"start_real_ns\":\"%llu\","
			  "\"rank\":\"%d\"}%s%s",
			  (long long)w->base_ns, (unsigned long long)w->who.start_ns, w->who.rank,
			  w->about ? "," : "", w->about ? w->about : "");
	o.other_json = other;
	r = chrome_trace_new(&o, &w->trace, err);
	free(other);
	w->begun = r == 0;
	return r;
}

void activity_chrome_about(struct activity_writer *w, const char *members)
{
	free(w->about);
	w->about = xstrdup(members);
}

struct chrome_trace *activity_chrome_trace(struct activity_writer *w, int64_t *out_base_ns,
					   struct err *err)
{
	if (!w->trace && !w->failed)
		w->failed = begin_trace(w, err);
	*out_base_ns = w->base_ns;
	return w->trace;
}

/* --- tracks --- */

static void name_track(struct activity_writer *w, int64_t pid, int64_t tid, const char *what,
		       const char *text)
{
	const struct chrome_arg arg = {.key = "name", .type = CHROME_TEXT, .text = text};

	chrome_meta(w->trace, pid, tid, what, &arg, 1);
}

static bool is_new(struct activity_writer *w, uint64_t a, uint64_t b)
{
	const uint64_t key[2] = {a, b};

	return hmap_put(&w->named, XXH3_64bits(key, sizeof(key)), 1) == HMAP_NONE;
}

static int64_t device_pid(const struct activity_writer *w, uint32_t device)
{
	return PID_DEVICE + (int64_t)(w->process * DEVICES) +
	       (device < DEVICES ? device : DEVICES - 1);
}

/* A process of the job and its devices, one below the other; then those of the next rank. A worker
 * process has the variables of its rank, but is not the rank: the rank is who started the file. */
static void name_process(struct activity_writer *w, int64_t pid, const struct activity *a)
{
	bool device = a->place == ACTIVITY_ON_DEVICE, unknown = device && a->device >= DEVICES;
	struct chrome_arg order = {.key = "sort_index", .type = CHROME_INT};
	int32_t rank = w->who.rank;
	char text[96], whose[48] = "";

	if (!is_new(w, (uint64_t)pid, UINT64_MAX))
		return;
	if (rank >= 0 && w->who.is_second)
		snprintf(whose, sizeof(whose), ", process %u beside rank %d", w->who.pid, rank);
	else if (rank >= 0 && (device || !w->who.pid || a->pid == w->who.pid))
		snprintf(whose, sizeof(whose), ", rank %d", rank);
	else if (rank >= 0)
		snprintf(whose, sizeof(whose), ", started by rank %d", rank);
	else if (device && w->process)
		snprintf(whose, sizeof(whose), ", process %u", w->who.pid);
	if (unknown)
		snprintf(text, sizeof(text), "device unknown%s", whose);
	else if (device)
		snprintf(text, sizeof(text), "device %u%s", a->device, whose);
	else if (w->who.is_second)
		snprintf(text, sizeof(text), "process %u, beside rank %d", a->pid, rank);
	else
		snprintf(text, sizeof(text), "process %u%s", a->pid, whose);
	name_track(w, pid, 0, "process_name", text);
	order.i = (rank >= 0 ? rank : (int64_t)w->process) * 4 + 2 * w->who.is_second + device;
	chrome_meta(w->trace, pid, 0, "process_sort_index", &order, 1);
}

/* One beside a track, for each `what`, which is compared by its address. */
static int64_t extra_track(struct activity_writer *w, int64_t pid, int64_t tid, const char *what)
{
	const uint64_t key[3] = {(uint64_t)pid, (uint64_t)tid, (uintptr_t)what};
	uint64_t hash = XXH3_64bits(key, sizeof(key)), track = hmap_get(&w->tracks, hash);

	if (track == HMAP_NONE) {
		track = TID_MARKS + w->tracks.count;
		hmap_put(&w->tracks, hash, track);
	}
	return (int64_t)track;
}

/* The track of an activity; of a mark one beside it. */
static void find_track(struct activity_writer *w, const struct activity *a, int64_t *pid,
		       int64_t *tid)
{
	bool device = a->place == ACTIVITY_ON_DEVICE;
	char text[160];

	*pid = device ? device_pid(w, a->device) : a->pid;
	*tid = device ? (int64_t)a->stream : (int64_t)a->tid;
	name_process(w, *pid, a);
	int n = device && a->stream == ACTIVITY_NOWHERE
			? snprintf(text, sizeof(text), "no stream")
			: snprintf(text, sizeof(text), device ? "stream %lld" : "thread %lld",
				   (long long)*tid);
	if (a->kind == ACTIVITY_MARKER) {
		*tid = extra_track(w, *pid, *tid, a->detail);
		snprintf(text + n, sizeof(text) - (size_t)n, ", marks: %.100s", a->detail);
	}
	if (is_new(w, (uint64_t)*pid, (uint64_t)*tid))
		name_track(w, *pid, *tid, "thread_name", text);
}

void activity_chrome_thread(struct activity_writer *w, int64_t pid, int64_t tid, const char *name)
{
	char text[160];

	snprintf(text, sizeof(text), "thread %lld, %.100s", (long long)tid, name);
	if (is_new(w, (uint64_t)pid, (uint64_t)tid))
		name_track(w, pid, tid, "thread_name", text);
}

/* --- arrows --- */

static void ends_release(struct ends *e)
{
	hmap_release(&e->young);
	hmap_release(&e->old);
	free(e->young_list);
	free(e->old_list);
}

static void ends_add(struct ends *e, uint64_t correlation, struct end end)
{
	if (e->n == LAUNCHES_MAX) {
		hmap_release(&e->old);
		free(e->old_list);
		e->old = e->young;
		e->old_list = e->young_list;
		e->young = (struct hmap){0};
		e->young_list = NULL;
		e->n = e->cap = 0;
	}
	end.next = hmap_put(&e->young, correlation, e->n);
	e->young_list = xgrow(e->young_list, &e->cap, e->n + 1, sizeof(end));
	e->young_list[e->n++] = end;
}

static void add_arrow(struct activity_writer *w, const struct end *from, const struct end *to)
{
	w->flows++;
	chrome_flow(w->trace, false, from->ts_ns, from->pid, from->tid, FLOW, w->flows);
	chrome_flow(w->trace, true, to->ts_ns, to->pid, to->tid, FLOW, w->flows);
}

static const struct end *ends_find(const struct ends *e, uint64_t correlation)
{
	uint64_t i = hmap_get(&e->young, correlation);

	if (i != HMAP_NONE)
		return &e->young_list[i];
	i = hmap_get(&e->old, correlation);
	return i != HMAP_NONE ? &e->old_list[i] : NULL;
}

/* Everything that waited for this call. */
static void add_arrows(struct activity_writer *w, struct hmap *m, const struct end *list,
		       uint64_t correlation, const struct end *from)
{
	uint64_t i = hmap_remove(m, correlation);

	for (; i != HMAP_NONE; i = list[i].next)
		add_arrow(w, from, &list[i]);
}

/* Two processes may use the same ids. */
static uint64_t correlation_key(const struct activity_writer *w, const struct activity *a)
{
	return a->correlation ^ w->process << 48;
}

/* Calls and what they launch come in any order. Of several calls with one id the first counts. */
static void connect_launch(struct activity_writer *w, const struct activity *a, struct end end)
{
	uint64_t id = correlation_key(w, a);

	if (!a->correlation || a->kind == ACTIVITY_MARKER || a->kind == ACTIVITY_MEMORY)
		return;
	if (activity_is_api(a->kind)) {
		if (ends_find(&w->calls, id))
			return;
		ends_add(&w->calls, id, end);
		add_arrows(w, &w->launched.young, w->launched.young_list, id, &end);
		add_arrows(w, &w->launched.old, w->launched.old_list, id, &end);
	} else if (a->place == ACTIVITY_ON_DEVICE) {
		const struct end *from = ends_find(&w->calls, id);

		if (from)
			add_arrow(w, from, &end);
		else
			ends_add(&w->launched, id, end);
	}
}

/* --- events --- */

static const char *shown_name(struct activity_writer *w, const char *name)
{
	if (name[0] != '_' || name[1] != 'Z')
		return name;
	uint64_t known = hmap_get(&w->names, (uintptr_t)name);
	if (known != HMAP_NONE)
		return (const char *)(uintptr_t)known;
	char *plain = demangle(name);
	const char *shown = plain ? intern(plain, strlen(plain)) : name;
	free(plain);
	hmap_put(&w->names, (uintptr_t)name, (uintptr_t)shown);
	return shown;
}

/* Whether an earlier call, around or inside this one, has the same id. */
static bool is_repeated_call(const struct activity_writer *w, const struct activity *a)
{
	return activity_is_api(a->kind) && ends_find(&w->calls, correlation_key(w, a));
}

/* Whose work it is, as far as is known. */
static unsigned add_owner_args(const struct activity *a, struct chrome_arg *args)
{
	unsigned n = 0;

	if (!a->owner)
		return 0;
	if (*a->owner->module)
		args[n++] = chrome_text("module", a->owner->module);
	if (*a->owner->module_class)
		args[n++] = chrome_text("module class", a->owner->module_class);
	if (*a->owner->line)
		args[n++] = chrome_text("line", a->owner->line);
	args[n++] = chrome_text("pass", a->owner->backward ? "backward" : "forward");
	return n;
}

/* Readers of PyTorch's traces join calls and kernels by "correlation": one call for each. */
static unsigned add_args(const struct activity_writer *w, const struct activity *a,
			 struct chrome_arg *args)
{
	unsigned n = 0;

	args[n++] = chrome_text("kind", activity_kind_name(a->kind));
	if (a->place == ACTIVITY_ON_DEVICE && a->device != ACTIVITY_NOWHERE)
		args[n++] = chrome_int("device", a->device);
	/* What has a stream counts as work of the device, which a mark around work is not. */
	if (a->place == ACTIVITY_ON_DEVICE && a->stream != ACTIVITY_NOWHERE &&
	    a->kind != ACTIVITY_MARKER)
		args[n++] = chrome_int("stream", a->stream);
	switch (a->kind) {
	case ACTIVITY_MARKER:
		args[n++] = chrome_text("domain", a->detail);
		args[n++] = chrome_int("id", a->correlation);
		return n;
	case ACTIVITY_KERNEL:
		args[n++] = chrome_text("type", a->detail);
		break;
	case ACTIVITY_COMMUNICATION:
		args[n++] = chrome_text("group", a->detail);
		args[n++] = chrome_text("algorithm", a->more);
		args[n++] = chrome_int("count", a->amount);
		args[n++] = chrome_text("data type", activity_data_type(a->data_type));
		break;
	case ACTIVITY_HCCL:
		args[n++] = chrome_text("group", a->detail);
		args[n++] = chrome_int("bytes per second", a->amount);
		return n;
	case ACTIVITY_MEMCPY:
	case ACTIVITY_MEMSET:
		args[n++] = chrome_int("bytes", a->amount);
		if (activity_ns(a))
			args[n++] = (struct chrome_arg){.key = "memory bandwidth (GB/s)",
							.type = CHROME_FLOAT,
							.f = (double)a->amount /
							     (double)activity_ns(a)};
		break;
	default:
		break;
	}
	args[n++] = chrome_int(is_repeated_call(w, a) ? "same_correlation" : "correlation",
			       a->correlation);
	return n + add_owner_args(a, args + n);
}

/* HTA tells copies from kernels by these names. */
static const char *event_name(struct activity_writer *w, const struct activity *a, char *room,
			      size_t size)
{
	if (a->kind == ACTIVITY_MEMCPY)
		snprintf(room, size, "Memcpy %s", activity_copy_kind(a->flag));
	else if (a->kind == ACTIVITY_MEMSET)
		snprintf(room, size, "Memset");
	else
		return shown_name(w, a->name);
	return room;
}

/* How much memory of a device the job has, of what was allocated since the beginning. */
static void put_memory(struct activity_writer *w, const struct activity *a)
{
	int64_t pid = device_pid(w, a->device);
	uint64_t before = hmap_get(&w->held, (uint64_t)pid);
	uint64_t held = before == HMAP_NONE ? 0 : before;

	if (!a->flag)
		held += a->amount;
	else
		held = held > a->amount ? held - a->amount : 0;
	hmap_put(&w->held, (uint64_t)pid, held);
	name_process(w, pid, &(struct activity){.place = ACTIVITY_ON_DEVICE, .device = a->device});
	struct chrome_arg arg = chrome_int("bytes", held);
	chrome_counter(w->trace, (int64_t)a->start_ns - w->base_ns, pid, "allocated", NULL, &arg,
		       1);
}

/* The same on a track of modules below that of the stream. */
static void put_module(struct activity_writer *w, const struct activity *a, int64_t ts, int64_t pid,
		       int64_t tid)
{
	struct chrome_arg args[4];
	unsigned n = add_owner_args(a, args);
	int64_t track = extra_track(w, pid, tid, "modules");
	const char *name = *a->owner->module ? a->owner->module : "(no module)";
	char text[64];

	snprintf(text, sizeof(text), "stream %lld, modules", (long long)tid);
	if (is_new(w, (uint64_t)pid, (uint64_t)track))
		name_track(w, pid, track, "thread_name", text);
	chrome_complete(w->trace, ts, (int64_t)activity_ns(a), pid, track, "module", name, args, n);
}

static void put_event(struct activity_writer *w, const struct activity *a)
{
	int64_t ts = (int64_t)a->start_ns - w->base_ns, pid, tid;
	struct chrome_arg args[16];
	char room[64];

	if (a->kind == ACTIVITY_MEMORY) {
		put_memory(w, a);
		return;
	}
	find_track(w, a, &pid, &tid);
	const char *name = event_name(w, a, room, sizeof(room));
	unsigned n = add_args(w, a, args);
	if (activity_is_instant(a))
		chrome_instant(w->trace, ts, pid, tid, name, args, n);
	else
		chrome_complete(w->trace, ts, (int64_t)activity_ns(a), pid, tid,
				activity_category(a), name, args, n);
	if (a->owner && !activity_is_instant(a))
		put_module(w, a, ts, pid, tid);
	connect_launch(w, a, (struct end){.ts_ns = ts, .pid = pid, .tid = tid});
}

static int chrome_put(struct activity_writer *w, const struct activity *a, struct err *err)
{
	if (!activity_kind_name(a->kind))
		return -ENOTSUP;
	if (!w->trace && !w->failed)
		w->failed = begin_trace(w, err);
	if (!w->trace) {
		int r = w->lost ? 0 : w->failed; /* reported once */

		w->lost++;
		return r;
	}
	put_event(w, a);
	return 0;
}

static int chrome_flush(struct activity_writer *w, struct err *err)
{
	return w->trace ? chrome_trace_flush(w->trace, err) : 0;
}

static int chrome_close(struct activity_writer *w, const struct activity_closing *c,
			struct err *err)
{
	int r = 0;

	if (!w)
		return 0;
	if (!w->trace && !w->failed && !w->dir) /* who names a file wants one, if an empty one */
		w->failed = r = begin_trace(w, err);
	if (w->trace && c && c->lost) {
		struct chrome_arg arg = chrome_int("count", c->lost);

		chrome_meta(w->trace, w->who.pid, 0, "lost activities", &arg, 1);
	}
	if (w->trace)
		r = chrome_trace_close(w->trace, err);
	hmap_release(&w->processes);
	hmap_release(&w->named);
	hmap_release(&w->tracks);
	hmap_release(&w->names);
	hmap_release(&w->held);
	ends_release(&w->calls);
	ends_release(&w->launched);
	free(w->about);
	free(w->dir);
	free(w->path);
	free(w);
	return r;
}

static const char *chrome_path(const struct activity_writer *w)
{
	return w->begun ? w->path : "";
}

#define CHROME_OPS(open_fn)                                                                        \
	{                                                                                          \
		.name = "Chrome trace", .open = open_fn, .put = chrome_put, .flush = chrome_flush, \
		.close = chrome_close, .path = chrome_path, .whose = chrome_set_process,           \
	}

const struct activity_writer_ops activity_chrome_file = CHROME_OPS(chrome_open_file);
const struct activity_writer_ops activity_chrome = CHROME_OPS(chrome_open);
