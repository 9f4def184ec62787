/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "activity/read/convert.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "activity/files/activity.h"
#include "activity/read/read.h"
#include "base/mem.h"

/* A file that is read, and whose it is. */
struct source {
	const char *path;
	struct activity_origin who;
	uint64_t end_ns; /* of its last activity */
	size_t process; /* number of its process, in the order in which they are met */
};

struct copying {
	const struct activity_writer_ops *ops;
	struct activity_writer *writer;
	struct err *err;
	struct activity_closing end;
	char *groups;
	uint64_t activities;
};

static int note_times(void *arg, const struct activity *a)
{
	struct source *s = arg;

	if (!s->who.start_ns || a->start_ns < s->who.start_ns)
		s->who.start_ns = a->start_ns;
	if (a->end_ns > s->end_ns)
		s->end_ns = a->end_ns;
	return 0;
}

/* Who it was, and when it began: files have their names and times from that. Jsonl says it at its
 * end, if at all. */
static int read_origin(struct source *s, struct err *err)
{
	struct activity_about about = {.rank = -1};
	int r = activity_read(s->path, note_times, s, &about, err);

	s->who.pid = about.pid;
	s->who.rank = about.rank;
	if (about.start_ns && about.start_ns < s->who.start_ns)
		s->who.start_ns = about.start_ns;
	activity_about_release(&about);
	return r;
}

/* Numbers the processes; the count of them. */
static size_t number_processes(struct source *sources, size_t n)
{
	size_t processes = 0;

	for (size_t i = 0; i < n; i++) {
		size_t k = 0;

		while (k < i && (sources[k].who.pid != sources[i].who.pid ||
				 sources[k].who.rank != sources[i].who.rank))
			k++;
		sources[i].process = k < i ? sources[k].process : processes++;
	}
	return processes;
}

/* One that began when another of its rank had ended is that rank, started again. */
static void find_seconds(struct source *sources, size_t n)
{
	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < n; k++) {
			const struct source *a = &sources[k], *b = &sources[i];

			if (a->who.rank >= 0 && a->who.rank == b->who.rank &&
			    a->who.pid != b->who.pid && a->who.start_ns < b->who.start_ns &&
			    a->end_ns > b->who.start_ns)
				sources[i].who.is_second = true;
		}
}

static int copy_activity(void *arg, const struct activity *a)
{
	struct copying *c = arg;
	int r = c->ops->put(c->writer, a, c->err);

	c->end.end_ns = a->end_ns > c->end.end_ns ? a->end_ns : c->end.end_ns;
	c->activities += r >= 0;
	return r == -ENOTSUP && c->ops != &activity_xlsx_file ? 0 : r;
}

static int copy_source(struct copying *c, const struct source *s)
{
	struct activity_about about = {.rank = -1};

	if (c->ops->whose)
		c->ops->whose(c->writer, &s->who);
	int r = activity_read(s->path, copy_activity, c, &about, c->err);
	c->end.lost += about.lost;
	if (about.groups && !c->groups)
		c->groups = xstrdup(about.groups);
	activity_about_release(&about);
	return r;
}

/* One file of the sources with this number. */
static int convert_some(const struct source *sources, size_t n, size_t process,
			const struct activity_writer_ops *ops, const char *output,
			struct converted *out, struct err *err)
{
	const struct activity_options all = {.lines_per_file = 500000, .files = -1};
	struct activity_origin who = {.rank = -1};
	int r = 0;

	for (size_t i = 0; i < n; i++) {
		const struct activity_origin *one = &sources[i].who;

		if (sources[i].process != process)
			continue;
		if (!who.pid) {
			who.pid = one->pid;
			who.rank = one->rank;
		}
		if (one->start_ns && (!who.start_ns || one->start_ns < who.start_ns))
			who.start_ns = one->start_ns;
	}
	struct copying c = {.ops = ops, .writer = ops->open(output, &who, &all), .err = err};
	for (size_t i = 0; r == 0 && i < n; i++)
		if (sources[i].process == process)
			r = copy_source(&c, &sources[i]);
	free(out->path);
	out->path = xstrdup(ops->path(c.writer));
	out->activities += c.activities;
	c.end.groups = c.groups;
	int closed = ops->close(c.writer, &c.end, r < 0 ? NULL : err);
	free(c.groups);
	return r < 0 ? r : closed;
}

int activity_convert(char *const *paths, size_t npaths, const struct activity_writer_ops *ops,
		     const char *output, struct converted *out, struct err *err)
{
	struct source *sources = xcalloc(npaths, sizeof(*sources));
	bool of_one = ops == &activity_db || ops == &activity_jsonl;
	size_t files = 1;
	int r = 0;

	for (size_t i = 0; r == 0 && i < npaths; i++) {
		sources[i].path = paths[i];
		r = read_origin(&sources[i], err);
	}
	if (r == 0) {
		out->processes = number_processes(sources, npaths);
		find_seconds(sources, npaths);
	}
	if (of_one)
		files = out->processes;
	for (size_t i = 0; !of_one && i < npaths; i++)
		sources[i].process = 0; /* all into one file */
	for (size_t i = 0; r == 0 && i < files; i++)
		r = convert_some(sources, npaths, i, ops, output, out, err);
	free(sources);
	return r;
}
