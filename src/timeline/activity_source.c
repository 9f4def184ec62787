/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Activities of devices: kernels, communication, copies, the calls that launched them, marks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "activity/files/activity.h"
#include "activity/read/read.h"
#include "activity/read/recording.h"
#include "activity/steps/step_split.h"
#include "base/containers/hmap.h"
#include "base/containers/intern.h"
#include "base/mem.h"
#include "timeline/sources.h"
#include "timeline/timeline_impl.h"
#include "unwind/symbols/demangle.h"

#define STREAMS 256 /* tracks of a device are in the order of its streams */
#define CALLS_MAX (1u << 16) /* correlation ids of calls that are remembered, twice */

struct activity_source {
	struct timeline *t;
	struct timeline_process *process;
	struct hmap names; /* as recorded to as shown */
	struct hmap calls,
		older_calls; /* correlation ids: of several calls the first has the arrow */
	struct hmap held; /* bytes of each device */
};

/* As PyTorch's profiler calls it, which programs that read Chrome traces look for. */
static const char *kineto_copy_name(const struct activity *a)
{
	char name[40] = "Memset";
	int n = (int)strlen(name);

	if (a->kind == ACTIVITY_MEMCPY)
		n = snprintf(name, sizeof(name), "Memcpy %s", activity_copy_kind(a->flag));

	return intern(name, (size_t)n);
}

static const char *shown_name(struct activity_source *s, const struct activity *a)
{
	const char *name = activity_label(a);
	uint64_t known;

	if (s->t->o.json && (a->kind == ACTIVITY_MEMCPY || a->kind == ACTIVITY_MEMSET))
		return kineto_copy_name(a);
	if (name[0] != '_' || name[1] != 'Z')
		return name;
	known = hmap_get(&s->names, (uintptr_t)name);
	if (known != HMAP_NONE)
		return (const char *)(uintptr_t)known;
	char *plain = demangle(name);
	const char *shown = plain ? intern(plain, strlen(plain)) : name;
	free(plain);
	hmap_put(&s->names, (uintptr_t)name, (uintptr_t)shown);
	return shown;
}

/* --- tracks --- */

static struct timeline_track *device_track(struct activity_source *s, const struct activity *a)
{
	static const char *const parts[] = {[SPLIT_COMPUTE] = "compute",
					    [SPLIT_COMM] = "communication",
					    [SPLIT_COPY] = "copies",
					    [SPLIT_IDLE] = "marks"};
	enum split_part part = split_part_of(a);
	struct timeline_place where = {
		.group = GROUP_DEVICE,
		.number = a->device,
		.group_name = a->device == ACTIVITY_NOWHERE ? "device" : NULL,
		.order = (int32_t)part * STREAMS + (int32_t)(a->stream % STREAMS),
		.id = a->stream};
	char name[160];

	if (part == SPLIT_IDLE) {
		where.id = (uintptr_t)a->detail;
		snprintf(name, sizeof(name), "marks, %.100s", a->detail);
	} else if (a->kind == ACTIVITY_HCCL) {
		where.order = (SPLIT_PARTS + 1) * STREAMS;
		snprintf(name, sizeof(name), "communication tasks, %.100s", a->detail);
		where.id = (uintptr_t)a->detail;
	} else if (a->stream == ACTIVITY_NOWHERE) {
		snprintf(name, sizeof(name), "%s", parts[part]);
	} else {
		snprintf(name, sizeof(name), "%s, stream %u", parts[part], a->stream);
	}
	return timeline_track(s->process, &where, name);
}

static struct timeline_track *host_track(struct activity_source *s, const struct activity *a)
{
	bool mark = a->kind == ACTIVITY_MARKER;
	struct timeline_place where = {.group = mark ? GROUP_MARKS : GROUP_HOST,
				       .order = 0,
				       .id = (uint64_t)a->tid ^
					     (mark ? (uintptr_t)a->detail << 16 : 0)};
	char name[160];

	if (mark)
		snprintf(name, sizeof(name), "%.100s, thread %u", a->detail, a->tid);
	else
		snprintf(name, sizeof(name), "calls of thread %u", a->tid);
	return timeline_track(s->process, &where, name);
}

/* --- events --- */

/* What is special comes first, what is the same for a whole track comes last. */
static unsigned add_args(const struct activity *a, bool repeated, struct chrome_arg *args,
			 unsigned *of_track)
{
	unsigned n = 0;

	/* HTA counts a kernel once for each call that has its number. */
	if (a->correlation && a->kind != ACTIVITY_MARKER)
		args[n++] =
			chrome_int(repeated ? "same_correlation" : "correlation", a->correlation);
	if (a->kind == ACTIVITY_KERNEL && *a->detail)
		args[n++] = chrome_text("type", a->detail);
	if (a->kind == ACTIVITY_MEMCPY || a->kind == ACTIVITY_MEMSET)
		args[n++] = chrome_int("bytes", a->amount);
	if (a->kind == ACTIVITY_COMMUNICATION) {
		args[n++] = chrome_text("group", a->detail);
		args[n++] = chrome_text("algorithm", a->more);
		args[n++] = chrome_int("count", a->amount);
		args[n++] = chrome_text("data type", activity_data_type(a->data_type));
	}
	if (a->owner && *a->owner->module)
		args[n++] = chrome_text("module", a->owner->module);
	if (a->owner && *a->owner->line)
		args[n++] = chrome_text("line", a->owner->line);
	*of_track = n;
	if (a->place == ACTIVITY_ON_DEVICE && a->device != ACTIVITY_NOWHERE)
		args[n++] = chrome_int("device", a->device);
	if (a->place == ACTIVITY_ON_DEVICE && a->stream != ACTIVITY_NOWHERE &&
	    a->kind != ACTIVITY_MARKER)
		args[n++] = chrome_int("stream", a->stream);
	*of_track = n - *of_track;
	return n;
}

/* Has another call had this id already, around or inside this one? */
static bool is_repeated_call(struct activity_source *s, uint64_t correlation)
{
	if (hmap_get(&s->older_calls, correlation) != HMAP_NONE ||
	    hmap_put(&s->calls, correlation, 1) != HMAP_NONE)
		return true;
	if (s->calls.count >= CALLS_MAX) {
		hmap_release(&s->older_calls);
		s->older_calls = s->calls;
		s->calls = (struct hmap){0};
	}
	return false;
}

static void put_memory(struct activity_source *s, const struct activity *a)
{
	uint64_t before = hmap_get(&s->held, a->device), held = before == HMAP_NONE ? 0 : before;
	struct timeline_place where = {
		.group = GROUP_MEMORY, .order = 32767, .id = a->device, .kind = TRACK_BYTES};
	char name[64];

	if (!a->flag)
		held += a->amount;
	else
		held = held > a->amount ? held - a->amount : 0;
	hmap_put(&s->held, a->device, held);
	snprintf(name, sizeof(name), "device %u allocated while observed", a->device);
	timeline_counter(timeline_track(s->process, &where, name), a->start_ns, (double)held);
}

static void add_role(const struct activity *a, struct timeline_event *e)
{
	static const enum timeline_role roles[SPLIT_PARTS] = {
		[SPLIT_COMPUTE] = ROLE_COMPUTE, [SPLIT_COMM] = ROLE_COMM, [SPLIT_COPY] = ROLE_COPY};

	if (a->place == ACTIVITY_ON_DEVICE) {
		e->role = roles[split_part_of(a)];
		e->device = a->device;
		return;
	}
	e->role = activity_is_api(a->kind)     ? ROLE_CALL
		  : a->kind == ACTIVITY_MARKER ? ROLE_RANGE
					       : ROLE_NONE;
	e->thread = a->tid;
}

static int take_activity(void *arg, const struct activity *a)
{
	struct activity_source *s = arg;
	bool device = a->place == ACTIVITY_ON_DEVICE, call = activity_is_api(a->kind);
	struct chrome_arg args[TIMELINE_MAX_ARGS];
	struct timeline_event e = {.name = shown_name(s, a), .category = activity_category(a)};

	if (a->kind == ACTIVITY_MEMORY) {
		put_memory(s, a);
		return 0;
	}
	bool related = a->correlation && a->kind != ACTIVITY_MARKER;
	bool repeated = related && call && is_repeated_call(s, a->correlation);
	e.args = args;
	/* HTA counts a kernel once for each call that has its number. */
	e.nargs = add_args(a, repeated && s->t->o.json, args, &e.track_args);
	if (related && a->kind != ACTIVITY_HCCL && (device || (call && !repeated))) {
		e.flow = timeline_flow(s->process, a->correlation);
		e.flow_end = device;
	}
	add_role(a, &e);
	if (a->kind == ACTIVITY_MARKER && timeline_step_number(e.name)) {
		e.role = ROLE_NONE;
		timeline_note_step(s->process, timeline_step_number(e.name), a->start_ns,
				   a->end_ns);
	}
	struct timeline_track *k = device ? device_track(s, a) : host_track(s, a);
	if (activity_is_instant(a))
		timeline_instant(k, a->start_ns, &e);
	else
		timeline_slice(k, a->start_ns, a->end_ns, &e);
	return 0;
}

struct identity {
	struct activity_about about;
	uint32_t pid; /* of the first call that has one */
};

/* Reads no farther than it needs to: names of files have both, and a DB has its rank before all else;
 * of Jsonl it is in the last line. */
static int find_identity(void *arg, const struct activity *a)
{
	struct identity *who = arg;

	if (a->pid && !who->pid)
		who->pid = a->pid;
	return (who->about.pid || who->pid) &&
	       (who->about.rank >= 0 || !strcmp(who->about.format, "DB"));
}

static void release_source(struct activity_source *s)
{
	hmap_release(&s->names);
	hmap_release(&s->calls);
	hmap_release(&s->older_calls);
	hmap_release(&s->held);
}

/* --- a recording of all processes --- */

struct recorded_activities {
	struct timeline *t;
	const char *host;
	struct processes *processes;
	struct buf *notes;
	struct activity_reading *reading;
};

/* What a process of a recording has reported in one window. */
struct window_source {
	struct activity_source s;
	const struct activity_about *about;
	struct recorded_activities *from;
	uint64_t step, step_ns; /* that has begun; 0: none */
};

static void *begin_window(void *arg, uint32_t proc, const struct activity_about *about)
{
	struct recorded_activities *from = arg;
	struct window_source *w = xcalloc(1, sizeof(*w));

	(void)proc;
	w->s.t = from->t;
	w->s.process = timeline_process_of(from->t, from->host, from->processes, about->pid,
					   about->rank, NULL);
	w->about = about;
	w->from = from;
	return w;
}

/* Marks that memory's hooks have seen are in the timeline already. */
static int take_recorded(void *process, const struct activity *a)
{
	struct window_source *w = process;

	if (!w->s.process ||
	    (a->kind == ACTIVITY_MARKER && a->place == ACTIVITY_ON_HOST && w->about->has_marks))
		return 0;
	return take_activity(&w->s, a);
}

static void put_gap(void *process, uint64_t from_ns, uint64_t to_ns)
{
	static const struct timeline_place where = {.group = GROUP_NONE, .order = 2};
	struct window_source *w = process;

	if (w->s.process)
		timeline_slice(timeline_track(w->s.process, &where, "not recorded"), from_ns, to_ns,
			       &(struct timeline_event){
				       .name = "kernels: another profiler has the device"});
}

/*
 * HTA wants steps as PyTorch's profiler calls them; without them it says that its numbers may be wrong.
 * Elsewhere the job's own steps are enough.
 */
static void put_traced_step(void *process, uint64_t number, uint64_t wall_ns)
{
	static const struct timeline_place where = {.group = GROUP_NONE, .order = 3};
	struct window_source *w = process;
	char name[40];
	int n = snprintf(name, sizeof(name), "ProfilerStep#%llu", (unsigned long long)w->step);

	if (w->step && w->s.process && w->s.t->o.json)
		timeline_slice(timeline_track(w->s.process, &where, "traced steps"), w->step_ns,
			       wall_ns,
			       &(struct timeline_event){.name = intern(name, (size_t)n),
							.category = "user_annotation"});
	w->step = number;
	w->step_ns = wall_ns;
}

static void end_window(void *process, const struct activity_about *about)
{
	struct window_source *w = process;

	if (about->lost)
		buf_addf(w->from->notes, "%llu activities of process %u are missing.\n",
			 (unsigned long long)about->lost, about->pid);
	release_source(&w->s);
	free(w);
}

struct recorded_activities *timeline_hear_activities(struct timeline *t, const char *host,
						     struct processes *processes, struct buf *notes,
						     struct stream_listener *out_all)
{
	static const struct activity_recording_ops ops = {.process = begin_window,
							  .activity = take_recorded,
							  .step = put_traced_step,
							  .end = end_window,
							  .gap = put_gap};
	struct recorded_activities *r = xcalloc(1, sizeof(*r));

	*r = (struct recorded_activities){t, host, processes, notes, NULL};
	r->reading = activity_recording_begin(ACTIVITY_ALL_PROCESSES, &ops, r, out_all);
	return r;
}

int timeline_end_activities(struct recorded_activities *r)
{
	int result = activity_recording_end(r->reading);

	free(r);
	return result;
}

int timeline_read_activities(struct timeline *t, const struct timeline_source *from,
			     struct buf *notes, struct err *err)
{
	struct identity who = {.about = {.rank = -1}};
	struct activity_about about = {.rank = -1};
	struct activity_source s = {.t = t};
	int r = activity_read(from->path, find_identity, &who, &who.about, err);

	if (r >= 0)
		s.process = timeline_process(t, from->host, who.about.pid ? who.about.pid : who.pid,
					     who.about.rank, NULL);
	if (r >= 0 && s.process)
		r = activity_read(from->path, take_activity, &s, &about, err);
	if (about.lost)
		buf_addf(notes, "%llu activities of process %u are missing.\n",
			 (unsigned long long)about.lost, who.about.pid ? who.about.pid : who.pid);
	activity_about_release(&who.about);
	activity_about_release(&about);
	release_source(&s);
	return r < 0 ? r : 0;
}
