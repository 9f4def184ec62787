/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "activity/steps/from_recordings.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "activity/read/recording.h"
#include "base/mem.h"
#include "base/text/printable.h"
#include "recorder/stream.h"

#define MAX_ACTIVITIES 20000000u /* of a rank: some 60 bytes each */

/* A process, whose steps and work come in the order in which they were reported. */
struct recorded_rank {
	struct recorded_rank *next;
	uint32_t proc;
	struct split_rank *rank;
	struct step_split *split;
	struct split_step *bounds; /* beginnings of steps */
	size_t nbounds, cap;
	uint64_t activities;
	uint64_t gap_ns; /* in which another profiler had the device's library */
};

struct recorded {
	struct recorded_rank *first;
	struct split_job *job;
	struct buf host; /* "": not known */
};

static void take_host(void *arg, const char *json, size_t len)
{
	struct recorded *all = arg;
	json_t *root = json_loadb(json, len, 0, NULL);
	const json_t *host = json_object_get(root, "host");

	buf_clear(&all->host);
	text_add_printable(&all->host, json_string_value(host), json_string_length(host));
	json_decref(root);
}

static void *find_process(void *arg, uint32_t proc, const struct activity_about *about)
{
	struct recorded *all = arg;
	struct recorded_rank *r = all->first;

	while (r && r->proc != proc)
		r = r->next;
	if (r)
		return r;
	r = xcalloc(1, sizeof(*r));
	r->proc = proc;
	r->rank = split_rank_new();
	r->rank->rank = about->rank;
	r->rank->pid = about->pid;
	r->split = step_split_new();
	r->next = all->first;
	all->first = r;
	return r;
}

static int add_activity(void *process, const struct activity *a)
{
	struct recorded_rank *r = process;

	if (r->activities++ < MAX_ACTIVITIES)
		step_split_add(r->split, a, true);
	else
		r->rank->left_out++;
	return 0;
}

static void add_step(void *process, uint64_t number, uint64_t wall_ns)
{
	struct recorded_rank *r = process;

	if (r->nbounds == SPLIT_MAX_STEPS ||
	    (r->nbounds && r->bounds[r->nbounds - 1].start_ns >= wall_ns))
		return;
	*XPUSH(r->bounds, r->nbounds, r->cap) =
		(struct split_step){.number = number, .start_ns = wall_ns};
}

/* What was not recorded between two windows is in no step. */
static void end_window(void *process, const struct activity_about *about)
{
	struct recorded_rank *r = process;

	r->rank->lost += about->lost;
	for (size_t i = 0; i + 1 < r->nbounds; i++) {
		struct split_step s = r->bounds[i];

		s.end_ns = r->bounds[i + 1].start_ns;
		s.whole = true;
		step_split_step(r->split, &s);
	}
	r->nbounds = 0;
}

static void add_gap(void *process, uint64_t from_ns, uint64_t to_ns)
{
	struct recorded_rank *r = process;

	r->gap_ns += to_ns - from_ns;
}

static void finish_rank(struct recorded *all, struct recorded_rank *r)
{
	step_split_finish(r->split, r->rank);
	split_rank_set(&r->rank->request, xstrdup("recording"));
	split_rank_set(&r->rank->host, xstrdup(buf_str(&all->host)));
	if (r->gap_ns)
		split_rank_set(
			&r->rank->note,
			xasprintf("another profiler had the device's library for %.1f s: work is "
				  "missing there",
				  (double)r->gap_ns / 1e9));
	split_job_add(all->job, r->rank);
	free(r->bounds);
	free(r);
}

static int read_file(struct split_job *j, const char *path, struct err *err)
{
	static const struct activity_recording_ops ops = {.process = find_process,
							  .activity = add_activity,
							  .step = add_step,
							  .end = end_window,
							  .gap = add_gap};
	static const struct stream_ops session = {.session = take_host};
	struct recorded all = {.job = j};
	struct stream_listener host = {&session, &all, NULL}, activities;
	struct activity_reading *reading =
		activity_recording_begin(ACTIVITY_ALL_PROCESSES, &ops, &all, &activities);

	activities.next = &host;
	int r = stream_file_to(path, &activities, NULL, err);
	int ended = activity_recording_end(reading);
	r = r < 0 ? r : ended;
	while (all.first) {
		struct recorded_rank *next = all.first->next;

		finish_rank(&all, all.first);
		all.first = next;
	}
	buf_release(&all.host);
	return r;
}

int split_job_read_recorded(struct split_job *j, const char *dir, struct err *err)
{
	struct activity_paths paths = {0};
	char *words[] = {(char *)(uintptr_t)dir, NULL}, *before = NULL;
	int r = activity_paths_find(&paths, words, 1, err);

	for (size_t i = 0; r == 0 && i < paths.n; i++) {
		char *path = paths.list[i], *colon = strrchr(path, ':');

		if (!activity_recording_is_path(path))
			continue;
		*colon = '\0';
		if (!before || strcmp(before, path) != 0)
			r = read_file(j, path, err);
		before = path;
	}
	activity_paths_release(&paths);
	if (r == 0 && !before)
		r = err_set(err, -ENOENT, "there is no recording of `sonde record` in '%s'", dir);
	return r;
}
