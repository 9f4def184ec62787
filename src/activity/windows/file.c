/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Files: activities in the format and directory of the order. What goes wrong with the files is
 * reported once and counted; the window goes on, for a disk that is full may not stay so.
 */
#define LOG_AREA "activity"
#include "activity/windows/window.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FLUSH_NS 1000000000ull /* at least so often */

struct file_state {
	const struct activity_writer_ops *format;
	struct activity_writer *writer;
	char *dir;
	struct activity_options options;
	uint64_t flushed_ns;
	uint64_t written, unsupported;
	bool dirty; /* something was written since */
	bool reported, reported_unsupported;
};

static void report_error(struct window *w, const char *what, const struct err *err)
{
	struct file_state *s = w->state;

	if (!s->reported)
		log_err("process %u: %s: %s; what cannot be written is counted", w->pid, what,
			err->text);
	s->reported = true;
}

static void open_writer(struct window *w)
{
	struct file_state *s = w->state;
	struct activity_origin who = {.pid = w->pid, .rank = w->rank, .start_ns = w->start_ns};

	s->writer = s->format->open(s->dir, &who, &s->options);
}

static void close_writer(struct window *w)
{
	struct file_state *s = w->state;
	struct err err = {0};
	struct activity_closing c = {
		.end_ns = clock_mono_ns() + (uint64_t)w->wall_minus_mono_ns,
		.groups = w->groups,
		.lost = w->lost + w->unwritten,
	};

	if (s->format->close(s->writer, &c, &err) < 0)
		report_error(w, "cannot finish its files", &err);
	s->writer = NULL;
}

static void file_activity(struct window *w, const struct activity *a)
{
	struct file_state *s = w->state;
	struct err err = {0};

	int r = s->format->put(s->writer, a, &err);
	if (r == 0) {
		s->written++;
		s->dirty = true;
	} else if (r == -ENOTSUP) {
		s->unsupported++;
		if (!s->reported_unsupported)
			log_warn("process %u: %s has no place for activities of the kind %s; they "
				 "are counted",
				 w->pid, s->format->name, activity_kind_name(a->kind));
		s->reported_unsupported = true;
	} else {
		w->unwritten++;
		report_error(w, "cannot write activities", &err);
	}
}

static void flush_writer(struct window *w, uint64_t now_ns)
{
	struct file_state *s = w->state;
	struct err err = {0};

	s->flushed_ns = now_ns;
	if (s->dirty && s->format->flush(s->writer, &err) < 0)
		report_error(w, "cannot write activities", &err);
	s->dirty = false;
	w->written = *w->seen;
}

static void file_tick(struct window *w, uint64_t now_ns)
{
	struct file_state *s = w->state;

	/* an interval is a second or more */
	if (now_ns - s->flushed_ns >= FLUSH_NS)
		flush_writer(w, now_ns);
}

static void file_flush(struct window *w)
{
	flush_writer(w, clock_mono_ns());
}

/* Its tables point to texts: it ends, and another one begins, as when there are many lines. */
static void file_forget(struct window *w)
{
	close_writer(w);
	open_writer(w);
}

/* --- */

/* The directory as the process means it. The guest makes it absolute; others may not. */
static char *directory_of(const struct window *w)
{
	const struct request_text *t = &w->monitor.log_file;
	char link[64], cwd[PATH_MAX];

	if (t->at[0] == '/')
		return xstrndup(t->at, t->len);
	snprintf(link, sizeof(link), "/proc/%u/cwd", w->shown_pid);
	ssize_t n = readlink(link, cwd, sizeof(cwd));
	if (n <= 0 || (size_t)n == sizeof(cwd))
		return NULL;
	return xasprintf("%.*s/%.*s", (int)n, cwd, (int)t->len, t->at);
}

static int file_open(struct window *w, struct err *err)
{
	const struct monitor_request *o = &w->monitor;

	if (!o->log_file.len || memchr(o->log_file.at, 0, o->log_file.len))
		return err_set(err, -EINVAL, "the request names no directory for files");
	char *dir = directory_of(w);
	if (!dir)
		return err_set(err, -ENOENT,
			       "the directory '%.*s' is relative, and the process has gone: give "
			       "an absolute one",
			       (int)o->log_file.len, o->log_file.at);
	struct file_state *s = xcalloc(1, sizeof(*s));
	s->format = o->format == REQUEST_JSONL ? &activity_jsonl : &activity_db;
	s->dir = dir;
	s->options = (struct activity_options){o->jsonl_lines, o->jsonl_files};
	w->state = s;
	open_writer(w);
	return 0;
}

static void file_close(struct window *w)
{
	struct file_state *s = w->state;

	close_writer(w);
	log_info("process %u: %llu activities in files, %llu failed, %llu of kinds without a place",
		 w->pid, (unsigned long long)s->written, (unsigned long long)w->unwritten,
		 (unsigned long long)s->unsupported);
	free(s->dir);
	free(s);
}

const struct window_ops window_file = {
	.open = file_open,
	.activity = file_activity,
	.tick = file_tick,
	.flush = file_flush,
	.forget = file_forget,
	.close = file_close,
};
