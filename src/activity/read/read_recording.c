/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Activities out of a recording that `sonde record` has made (events.sonde): those of all processes,
 * or of one, as a file of its own would have them. A path "…/events.sonde:3" is process 3 of it.
 */
#include "activity/read/recording.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "activity/windows/window.h"
#include "activity/windows/windows.h"
#include "base/containers/hmap.h"
#include "base/containers/intern.h"
#include "base/mem.h"
#include "base/text/number_read.h"
#include "wire/control_page.h"

struct activity_reading {
	const struct activity_recording_ops *ops;
	void *arg;
	uint32_t only; /* number of the process; ACTIVITY_ALL_PROCESSES */
	int result; /* not 0: somebody wants no more */
	struct activities *activities;
};

/* A window that is read. */
struct read_window {
	struct activity_reading *reading;
	struct activity_about about;
	struct hmap texts; /* address of a text of the process to the same text, for ever */
	void *process; /* of the caller */
	uint64_t gap_ns; /* when the one that has not ended began; 0 */
	uint64_t newest_ns; /* when the process was last heard of */
	bool skipped;
};

static int open_window(struct window *w, struct err *err)
{
	struct activity_reading *rd = w->state;
	struct read_window *o = xcalloc(1, sizeof(*o));

	(void)err;
	o->reading = rd;
	o->about = (struct activity_about){.format = "recording",
					   .pid = w->pid,
					   .rank = w->rank,
					   .start_ns = w->start_ns,
					   .end = ACTIVITY_END_MISSING};
	o->skipped = rd->only != ACTIVITY_ALL_PROCESSES && rd->only != w->proc;
	w->state = o;
	if (!o->skipped && rd->result == 0)
		o->process = rd->ops->process(rd->arg, w->proc, &o->about);
	return 0;
}

static const char *keep_text(struct read_window *o, const char *text)
{
	uint64_t known = hmap_get(&o->texts, (uintptr_t)text);

	if (known != HMAP_NONE)
		return (const char *)(uintptr_t)known;
	const char *kept = intern(text, strlen(text));
	hmap_put(&o->texts, (uintptr_t)text, (uintptr_t)kept);
	return kept;
}

static void read_activity(struct window *w, const struct activity *a)
{
	struct read_window *o = w->state;
	struct activity mine = *a;

	if (o->skipped || o->reading->result)
		return;
	mine.name = keep_text(o, a->name);
	mine.detail = keep_text(o, a->detail);
	mine.more = *a->more ? keep_text(o, a->more) : "";
	mine.owner = NULL;
	mine.attributed = false;
	o->about.activities++;
	o->about.end_ns = a->end_ns > o->about.end_ns ? a->end_ns : o->about.end_ns;
	o->reading->result = o->reading->ops->activity(o->process, &mine);
}

static void read_step(struct window *w, uint64_t ended, uint64_t wall_ns)
{
	struct read_window *o = w->state;

	if (!o->skipped && o->reading->ops->step)
		o->reading->ops->step(o->process, ended + 1, wall_ns);
}

/* Its time; 0: the note is another one. */
static uint64_t note_time(const struct window *w, const char *key, const char *text, size_t len)
{
	size_t n = strlen(key);
	int64_t ns;

	if (len < n + 2 || memcmp(text, key, n) || text[n] != ' ' ||
	    !number_read(text + n + 1, len - n - 1, &ns) || ns <= 0)
		return 0;
	return (uint64_t)ns + (uint64_t)w->wall_minus_mono_ns;
}

static void end_gap(struct read_window *o, uint64_t ns)
{
	if (o->gap_ns && !o->skipped && o->reading->ops->gap)
		o->reading->ops->gap(o->process, o->gap_ns, ns > o->gap_ns ? ns : o->gap_ns + 1);
	o->gap_ns = 0;
}

static void read_note(struct window *w, const char *text, size_t len)
{
	uint64_t begins = note_time(w, WINDOW_GAP_BEGINS, text, len);
	uint64_t ends = note_time(w, WINDOW_GAP_ENDS, text, len);
	struct read_window *o = w->state;

	if (begins)
		o->gap_ns = begins;
	else if (ends)
		end_gap(o, ends);
}

static void read_record(struct window *w, uint32_t tid, const struct rec *r)
{
	struct read_window *o = w->state;

	(void)tid;
	o->about.has_marks |= r->type == REC_MARK;
	if (r->time_ns + (uint64_t)w->wall_minus_mono_ns > o->newest_ns)
		o->newest_ns = r->time_ns + (uint64_t)w->wall_minus_mono_ns;
}

static void forget_texts(struct window *w)
{
	struct read_window *o = w->state;

	hmap_release(&o->texts);
	o->texts = (struct hmap){0};
}

static void close_window(struct window *w)
{
	struct read_window *o = w->state;

	end_gap(o, o->newest_ns);
	o->about.lost = w->lost;
	o->about.groups = w->groups ? xstrdup(w->groups) : NULL;
	o->about.end = w->killed ? ACTIVITY_END_MISSING : ACTIVITY_END_THERE;
	if (!o->skipped && o->reading->ops->end)
		o->reading->ops->end(o->process, &o->about);
	activity_about_release(&o->about);
	hmap_release(&o->texts);
	free(o);
}

static const struct window_ops reading_ops = {
	.open = open_window,
	.activity = read_activity,
	.step = read_step,
	.record = read_record,
	.note = read_note,
	.forget = forget_texts,
	.close = close_window,
};

struct activity_reading *activity_recording_begin(uint32_t only,
						  const struct activity_recording_ops *ops,
						  void *arg, struct stream_listener *out)
{
	struct activity_reading *rd = xcalloc(1, sizeof(*rd));

	*rd = (struct activity_reading){.ops = ops, .arg = arg, .only = only};
	rd->activities = activities_new_reader(&reading_ops, rd);
	*out = (struct stream_listener){&activities_stream, rd->activities, NULL};
	return rd;
}

int activity_recording_end(struct activity_reading *rd)
{
	activities_free(rd->activities);
	int result = rd->result;
	free(rd);
	return result;
}

int activity_recording_read(const char *path, uint32_t only,
			    const struct activity_recording_ops *ops, void *arg, struct err *err)
{
	struct stream_listener to;
	struct activity_reading *rd = activity_recording_begin(only, ops, arg, &to);
	int r = stream_file_to(path, &to, NULL, err);
	int result = activity_recording_end(rd);

	return r < 0 ? r : result;
}

/* --- one process, as if it had a file of its own --- */

struct one_process {
	activity_read_fn fn;
	void *arg;
	struct activity_about *about;
	bool seen;
};

static void *begin_process(void *arg, uint32_t proc, const struct activity_about *about)
{
	struct one_process *one = arg;

	(void)proc;
	if (!one->seen) {
		one->about->pid = about->pid;
		one->about->rank = about->rank;
		one->about->start_ns = about->start_ns;
	}
	one->seen = true;
	return one;
}

static int pass_activity(void *process, const struct activity *a)
{
	struct one_process *one = process;

	return one->fn(one->arg, a);
}

static void end_process(void *process, const struct activity_about *about)
{
	struct one_process *one = process;

	one->about->activities += about->activities;
	one->about->lost += about->lost;
	one->about->end = about->end;
	if (about->end_ns > one->about->end_ns)
		one->about->end_ns = about->end_ns;
	if (about->groups && !one->about->groups)
		one->about->groups = xstrdup(about->groups);
}

/* Where the number begins; NULL: the path is of another kind. */
static const char *find_number(const char *path)
{
	const char *colon = strrchr(path, ':');
	size_t n = strlen(SESSION_RECORDING);

	if (!colon || colon - path < (ptrdiff_t)n || !colon[1] ||
	    strspn(colon + 1, "0123456789") != strlen(colon + 1) || strlen(colon + 1) > 9)
		return NULL;
	return strncmp(colon - n, SESSION_RECORDING, n) ? NULL : colon + 1;
}

bool activity_recording_is_path(const char *path)
{
	return find_number(path) != NULL;
}

int activity_read_process(const char *path, activity_read_fn fn, void *arg,
			  struct activity_about *about, struct err *err)
{
	static const struct activity_recording_ops ops = {
		.process = begin_process, .activity = pass_activity, .end = end_process};
	struct one_process one = {.fn = fn, .arg = arg, .about = about};
	const char *number = find_number(path);
	char *file = xstrndup(path, (size_t)(number - 1 - path));

	about->format = "recording";
	int r = activity_recording_read(file, (uint32_t)strtoul(number, NULL, 10), &ops, &one, err);
	free(file);
	return r;
}

/* --- which processes there are --- */

struct proc_list {
	uint32_t *list;
	size_t n, cap;
	struct hmap known;
};

static void note_process(void *arg, uint32_t proc, uint32_t tid, const struct rec *r)
{
	struct proc_list *l = arg;

	(void)tid;
	if (r->type != REC_ACTIVITY || hmap_put(&l->known, (uint64_t)proc + 1, 1) != HMAP_NONE)
		return;
	*XPUSH(l->list, l->n, l->cap) = proc;
}

int activity_recording_list(const char *file, void (*fn)(void *arg, const char *path), void *arg,
			    struct err *err)
{
	static const struct stream_ops ops = {.record = note_process};
	struct proc_list l = {0};
	int r = stream_file(file, &ops, &l, NULL, err);

	for (size_t i = 0; r == 0 && i < l.n; i++) {
		char *path = xasprintf("%s:%u", file, l.list[i]);

		fn(arg, path);
		free(path);
	}
	free(l.list);
	hmap_release(&l.known);
	return r;
}
