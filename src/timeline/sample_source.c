/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Python stacks and counters that a recorder has sampled (wire/record.h, REC_SAMPLE, REC_COUNTER). */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/containers/hmap.h"
#include "base/containers/intern.h"
#include "base/mem.h"
#include "recorder/stream.h"
#include "timeline/sources.h"
#include "wire/record.h"

#define MAX_DEPTH 200 /* of stacks: deeper calls are not shown */
#define MOST_CALLS                                                                                 \
	4096 /* that are walked for one sample, from the innermost: files may say anything */
#define GC_NAME "<garbage collection>"

struct sampled_frame {
	const char *name, *file; /* interned */
	int32_t line;
	uint32_t caller;
};

struct sampled_thread {
	struct timeline_process *process;
	struct timeline_track *track;
	const char *name; /* of the track, interned; NULL: not known */
	uint64_t last_ns;
	uint32_t open[MAX_DEPTH]; /* frames, the outermost first */
	unsigned n;
	bool gc;
};

struct sample_source {
	struct timeline *t;
	const char *host;
	int64_t wall_minus_mono_ns;
	struct sampled_frame *frames; /* by their ids */
	size_t nframes, cap;
	struct hmap threads; /* process and thread to struct sampled_thread */
	struct processes *known; /* of memory's first reading */
	struct said_process { /* by the sampler */
		uint32_t pid;
		int32_t rank;
		const char *command; /* interned */
	} * announced;
	size_t nannounced, cap_announced;
	struct hmap announced_at; /* pid to its place there */
	struct hmap processes; /* pid to struct timeline_process, or to 1: it is not wanted */
};

static uint64_t wall_of(const struct sample_source *s, uint64_t ns)
{
	return ns + (uint64_t)s->wall_minus_mono_ns;
}

/* --- who --- */

static struct timeline_process *process_of(struct sample_source *s, uint32_t pid)
{
	uint64_t known = hmap_get(&s->processes, pid), at = hmap_get(&s->announced_at, pid);

	if (known != HMAP_NONE)
		return known == 1 ? NULL : (struct timeline_process *)(uintptr_t)known;
	struct timeline_process *p = timeline_process_of(
		s->t, s->host, s->known, pid, at == HMAP_NONE ? -1 : s->announced[at].rank,
		at == HMAP_NONE ? NULL : s->announced[at].command);
	hmap_put(&s->processes, pid, p ? (uintptr_t)p : 1);
	return p;
}

static struct sampled_thread *thread_of(struct sample_source *s, uint32_t pid, uint32_t tid)
{
	uint64_t key = (uint64_t)pid << 32 | tid;
	struct sampled_thread *th = hmap_get_ptr(&s->threads, key);

	if (!th) {
		th = xcalloc(1, sizeof(*th));
		hmap_put_ptr(&s->threads, key, th);
	}
	return th;
}

static void on_sampled(struct sample_source *s, const struct rec_sampled *r)
{
	size_t len;
	const char *text = rec_text(&r->head, &len);

	if (r->tid) {
		thread_of(s, r->pid, r->tid)->name = intern(text, len);
		return;
	}
	timeline_note_role(s->t, s->host, r->pid, r->role, r->rank < -1 ? -1 : r->rank);
	uint64_t at = hmap_get(&s->announced_at, r->pid);
	if (at == HMAP_NONE) {
		at = s->nannounced;
		hmap_put(&s->announced_at, r->pid, at);
		*XPUSH(s->announced, s->nannounced, s->cap_announced) =
			(struct said_process){r->pid, -1, ""};
	}
	if (r->rank >= 0)
		s->announced[at].rank = r->rank;
	if (len)
		s->announced[at].command = intern(text, len);
}

static struct timeline_track *track_of(struct sampled_thread *th, const struct rec_sample *r)
{
	struct timeline_place where = {
		.group = GROUP_PYTHON, .order = r->tid == r->pid ? 0 : 1, .id = r->tid};
	char name[128];

	if (th->track)
		return th->track;
	if (th->name)
		snprintf(name, sizeof(name), "%.100s", th->name);
	else
		snprintf(name, sizeof(name), "thread %u", r->tid);
	th->track = timeline_track(th->process, &where, name);
	return th->track;
}

/* --- stacks --- */

static void on_frame(struct sample_source *s, const struct rec_frame *r)
{
	size_t len;
	const char *text = rec_text(&r->head, &len), *zero = memchr(text, '\0', len);
	size_t name = zero ? (size_t)(zero - text) : len;

	/* In the order of their numbers; a recorder that was called back begins anew. */
	if (r->id > s->nframes + 1 || !r->id || r->caller >= r->id)
		return;
	if (r->id == s->nframes + 1)
		(void)XPUSH(s->frames, s->nframes, s->cap);
	s->frames[r->id - 1] = (struct sampled_frame){
		.name = intern(text, name),
		.file = zero ? intern(zero + 1, len - name - 1) : "",
		.line = r->line,
		.caller = r->caller,
	};
}

/* The calls of a stack, the outermost first. */
static unsigned find_path(const struct sample_source *s, uint32_t id, uint32_t *path)
{
	unsigned depth = 0, at;

	for (uint32_t i = id; i && i <= s->nframes && depth < MOST_CALLS;
	     i = s->frames[i - 1].caller)
		depth++;
	at = depth;
	for (uint32_t i = id; at; i = s->frames[i - 1].caller)
		if (--at < MAX_DEPTH)
			path[at] = i;
	return depth < MAX_DEPTH ? depth : MAX_DEPTH;
}

/* Python's own steps between a module and the one that it imports, some five for each: they would make the
 * track of a thread so high that nothing else is seen. *kept: how many of the calls go on. */
static unsigned leave_out_imports(const struct sample_source *s, uint32_t *path, unsigned n,
				  unsigned *kept)
{
	static const char file[] = "<frozen importlib";
	unsigned left = 0, left_kept = 0;

	for (unsigned i = 0; i < n; i++) {
		if (!strncmp(s->frames[path[i] - 1].file, file, sizeof(file) - 1))
			continue;
		path[left++] = path[i];
		left_kept += i < *kept;
	}
	*kept = left_kept;
	return left;
}

static void begin_call(struct sample_source *s, struct timeline_track *k, uint32_t id, uint64_t ns)
{
	const struct sampled_frame *f = &s->frames[id - 1];
	const struct chrome_arg args[] = {
		{.key = "file", .type = CHROME_TEXT, .text = f->file},
		{.key = "line", .type = CHROME_INT, .i = f->line},
	};

	timeline_begin(k, ns,
		       &(struct timeline_event){.name = f->name,
						.category = "python_function",
						.args = args,
						.nargs = *f->file ? 2 : 0});
}

static void end_gc(struct sampled_thread *th, uint64_t ns)
{
	if (th->gc)
		timeline_end(th->track, ns);
	th->gc = false;
}

static void on_sample(struct sample_source *s, const struct rec_sample *r)
{
	struct sampled_thread *th = thread_of(s, r->pid, r->tid);
	uint64_t ns = wall_of(s, r->head.time_ns);
	uint32_t path[MAX_DEPTH];
	unsigned kept = r->flags >> SAMPLE_KEPT_SHIFT, same = 0;
	unsigned n = leave_out_imports(s, path, find_path(s, r->frame, path), &kept);

	if (!th->process)
		th->process = process_of(s, r->pid);
	if (!th->process)
		return;
	struct timeline_track *k = track_of(th, r);
	ns = ns < th->last_ns ? th->last_ns : ns;
	th->last_ns = ns;
	while (same < n && same < th->n && same < kept && path[same] == th->open[same])
		same++;
	if (th->gc && (!(r->flags & SAMPLE_GC) || same < n || same < th->n))
		end_gc(th, ns);
	for (; th->n > same; th->n--)
		timeline_end(k, ns);
	for (; th->n < n; th->n++) {
		th->open[th->n] = path[th->n];
		begin_call(s, k, path[th->n], ns);
	}
	if (r->flags & SAMPLE_GC && !th->gc && n) {
		timeline_begin(
			k, ns,
			&(struct timeline_event){.name = GC_NAME, .category = "python_function"});
		th->gc = true;
	}
}

/* What is open ends with the last sample: nobody knows of later. */
static void end_threads(struct sample_source *s)
{
	uint64_t key, value;

	for (size_t at = 0; hmap_next(&s->threads, &at, &key, &value);) {
		struct sampled_thread *th = (void *)(uintptr_t)value;

		end_gc(th, th->last_ns);
		for (; th->n; th->n--)
			timeline_end(th->track, th->last_ns);
		free(th);
	}
	hmap_release(&s->threads);
}

/* --- counters --- */

#define MIB 1048576.0

/* Those that are shown, in the order in which they are shown; what follows from others is left out. */
static const struct shown_counter {
	const char *name, *key; /* as recorded */
	const char *of, *what; /* as shown; of "NPU" or "GPU": with the number of the card */
	double bytes; /* that one of it is; 0: it counts no bytes */
} shown_counters[] = {
	{"host_cpu_percent", "cpu", "host", "processors busy, %", 0},
	{"cpu_mem", "used_bytes", "host", "memory used", 1},
	{"npu_aicore_usage_rate", "aicore", "NPU", "AI cores busy, %", 0},
	{"npu_hbm_used_mb", "hbm_used_mb", "NPU", "memory used", MIB},
	{"npu_power_w", "power_w", "NPU", "power, W", 0},
	{"gpu_utilization_rate", "gpu", "GPU", "busy, %", 0},
	{"gpu_memory_used_mb", "memory_used_mb", "GPU", "memory used", MIB},
	{"gpu_power_w", "power_w", "GPU", "power, W", 0},
	{"host_disk_read", "bytes_per_s", "host", "read from disks, bytes per s", 0},
	{"host_disk_written", "bytes_per_s", "host", "written to disks, bytes per s", 0},
	{"host_network_in", "bytes_per_s", "host", "network in, bytes per s", 0},
	{"host_network_out", "bytes_per_s", "host", "network out, bytes per s", 0},
	{"process_cpu_percent", "cpu", "process", "processor time, % of one processor", 0},
	{"process_rss_mb", "rss_mb", "process", "memory (RSS)", MIB},
	{"process_disk_read", "bytes_per_s", "process", "read from disks, bytes per s", 0},
	{"process_disk_written", "bytes_per_s", "process", "written to disks, bytes per s", 0},
};
#define SHOWN_COUNTERS (sizeof(shown_counters) / sizeof(shown_counters[0]))

static bool is_text(const char *text, size_t len, const char *want)
{
	return strlen(want) == len && !memcmp(text, want, len);
}

static void on_counter(struct sample_source *s, const struct rec_counter *r)
{
	size_t len, i = 0;
	const char *text = rec_text(&r->head, &len), *key = memchr(text, '\0', len);
	size_t name_len = key ? (size_t)(key++ - text) : 0;
	struct timeline_process *p = key ? process_of(s, r->pid) : NULL;
	char name[64];

	while (p && i < SHOWN_COUNTERS &&
	       !(is_text(text, name_len, shown_counters[i].name) &&
		 is_text(key, len - name_len - 1, shown_counters[i].key)))
		i++;
	if (!p || i == SHOWN_COUNTERS)
		return;
	const struct shown_counter *c = &shown_counters[i];
	if (r->card >= 0)
		snprintf(name, sizeof(name), "%s %d: %s", c->of, r->card, c->what);
	else
		snprintf(name, sizeof(name), "%s: %s", c->of, c->what);
	struct timeline_place where = {.group = GROUP_COUNTERS,
				       .order = (r->card < 0 ? 0 : r->card % 1000 + 1) * 16 +
						(int32_t)i,
				       .id = (uint64_t)(uint32_t)r->card << 8 | i,
				       .kind = c->bytes > 0 ? TRACK_BYTES : TRACK_COUNTER};
	timeline_counter(timeline_track(p, &where, name), wall_of(s, r->head.time_ns),
			 c->bytes > 0 ? r->value * c->bytes : r->value);
}

/* --- reading --- */

static void on_session(void *arg, const char *json, size_t len)
{
	struct sample_source *s = arg;
	json_error_t why;
	json_t *root = json_loadb(json, len, 0, &why);
	const json_t *offset = json_object_get(root, "wallMinusMono");

	if (json_is_integer(offset))
		s->wall_minus_mono_ns = json_integer_value(offset);
	json_decref(root);
}

static void on_record(void *arg, uint32_t proc, uint32_t tid, const struct rec *r)
{
	struct sample_source *s = arg;

	(void)tid;
	if (proc != PROC_NONE)
		return;
	if (r->type == REC_SAMPLE)
		on_sample(s, (const struct rec_sample *)r);
	else if (r->type == REC_FRAME)
		on_frame(s, (const struct rec_frame *)r);
	else if (r->type == REC_COUNTER)
		on_counter(s, (const struct rec_counter *)r);
}

/* Names first: those of threads are often known only after their first samples. */
static void on_name(void *arg, uint32_t proc, uint32_t tid, const struct rec *r)
{
	(void)tid;
	if (proc == PROC_NONE && r->type == REC_SAMPLED)
		on_sampled(arg, (const struct rec_sampled *)r);
}

struct sample_source *timeline_hear_samples(struct timeline *t, const char *host,
					    struct processes *processes,
					    struct stream_listener *out_names,
					    struct stream_listener *out_all)
{
	static const struct stream_ops names = {.record = on_name};
	static const struct stream_ops ops = {.session = on_session, .record = on_record};
	struct sample_source *s = xcalloc(1, sizeof(*s));

	*s = (struct sample_source){.t = t, .host = host, .known = processes};
	*out_names = (struct stream_listener){&names, s, NULL};
	*out_all = (struct stream_listener){&ops, s, NULL};
	return s;
}

void timeline_end_samples(struct sample_source *s)
{
	end_threads(s);
	for (size_t i = 0; i < s->nannounced; i++)
		(void)process_of(s, s->announced[i].pid); /* of which there is nothing else, too */
	free(s->frames);
	free(s->announced);
	hmap_release(&s->announced_at);
	hmap_release(&s->processes);
	free(s);
}
