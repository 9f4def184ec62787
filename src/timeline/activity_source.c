/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Activities of devices: kernels, communication, copies, the calls that launched them, marks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "activity/files/activity.h"
#include "activity/read/read.h"
#include "activity/steps/step_split.h"
#include "base/containers/hmap.h"
#include "base/containers/intern.h"
#include "timeline/timeline.h"
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

static const char *shown_name(struct activity_source *s, const struct activity *a)
{
	const char *name = activity_label(a);
	uint64_t known;

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

static struct chrome_arg text_arg(const char *key, const char *text)
{
	return (struct chrome_arg){.key = key, .type = CHROME_TEXT, .text = text};
}

static struct chrome_arg int_arg(const char *key, uint64_t v)
{
	return (struct chrome_arg){.key = key, .type = CHROME_INT, .i = (int64_t)v};
}

/* What is special comes first, what is the same for a whole track comes last. */
static unsigned add_args(const struct activity *a, struct chrome_arg *args, unsigned *of_track)
{
	unsigned n = 0;

	if (a->correlation && a->kind != ACTIVITY_MARKER)
		args[n++] = int_arg("correlation", a->correlation);
	if (a->kind == ACTIVITY_KERNEL && *a->detail)
		args[n++] = text_arg("type", a->detail);
	if (a->kind == ACTIVITY_MEMCPY || a->kind == ACTIVITY_MEMSET)
		args[n++] = int_arg("bytes", a->amount);
	if (a->kind == ACTIVITY_COMMUNICATION) {
		args[n++] = text_arg("group", a->detail);
		args[n++] = text_arg("algorithm", a->more);
		args[n++] = int_arg("count", a->amount);
		args[n++] = text_arg("data type", activity_data_type(a->data_type));
	}
	if (a->owner && *a->owner->module)
		args[n++] = text_arg("module", a->owner->module);
	if (a->owner && *a->owner->line)
		args[n++] = text_arg("line", a->owner->line);
	*of_track = n;
	if (a->place == ACTIVITY_ON_DEVICE && a->device != ACTIVITY_NOWHERE)
		args[n++] = int_arg("device", a->device);
	if (a->place == ACTIVITY_ON_DEVICE && a->stream != ACTIVITY_NOWHERE &&
	    a->kind != ACTIVITY_MARKER)
		args[n++] = int_arg("stream", a->stream);
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
	e.args = args;
	e.nargs = add_args(a, args, &e.track_args);
	if (a->kind != ACTIVITY_MARKER && a->kind != ACTIVITY_HCCL && a->correlation &&
	    (device || (call && !is_repeated_call(s, a->correlation)))) {
		e.flow = timeline_flow(s->process, a->correlation);
		e.flow_end = device;
	}
	if (a->kind == ACTIVITY_MARKER && timeline_step_number(e.name))
		timeline_note_step(s->process, timeline_step_number(e.name), a->start_ns,
				   a->end_ns);
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
	hmap_release(&s.names);
	hmap_release(&s.calls);
	hmap_release(&s.older_calls);
	hmap_release(&s.held);
	return r < 0 ? r : 0;
}
