/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What is below a path: recordings and dumps of memory, files of activities, Chrome traces. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "activity/files/activity.h"
#include "activity/read/read.h"
#include "base/fs.h"
#include "base/mem.h"
#include "timeline/timeline.h"
#include "wire/control_page.h"

#define DEPTH_MAX 8

enum source_kind { SOURCE_NONE, SOURCE_MEMORY, SOURCE_ACTIVITY, SOURCE_CHROME };

struct found {
	char *path;
	enum source_kind kind;
};

struct search {
	struct found *list;
	size_t n, cap;
};

static bool ends_with(const char *text, const char *end)
{
	size_t n = strlen(text), k = strlen(end);

	return n >= k && !strcmp(text + n - k, end);
}

static bool is_trace_name(const char *name)
{
	return ends_with(name, "trace.json") || ends_with(name, "trace.json.gz");
}

static void add_found(struct search *s, char *path, enum source_kind kind)
{
	s->list = xgrow(s->list, &s->cap, s->n + 1, sizeof(*s->list));
	s->list[s->n++] = (struct found){path, kind};
}

/* Recordings first: dumps beside them were made from them. A trace has all activities of its files. */
static enum source_kind kind_in_directory(const char *dir, const char *name, bool has_trace)
{
	if (!strcmp(name, SESSION_RECORDING))
		return SOURCE_MEMORY;
	if (is_trace_name(name))
		return SOURCE_CHROME;
	if (activity_read_is_name(name) && !strncmp(name, ACTIVITY_FILE_PREFIX, 10) && !has_trace)
		return SOURCE_ACTIVITY;
	(void)dir;
	return SOURCE_NONE;
}

static int search_directory(struct search *s, const char *dir, unsigned depth, struct err *err)
{
	struct dirent **names;
	int n = scandir(dir, &names, NULL, alphasort), r = 0;
	bool has_trace = false;

	if (n < 0)
		return err_sys(err, -errno, "cannot read '%s'", dir);
	for (int i = 0; i < n; i++)
		has_trace |= is_trace_name(names[i]->d_name);
	for (int i = 0; i < n; i++) {
		char *path = xasprintf("%s/%s", dir, names[i]->d_name);
		enum source_kind kind = kind_in_directory(dir, names[i]->d_name, has_trace);
		struct stat st;

		/* Copies of a part of what is in the recording beside them. */
		bool copy = !strncmp(names[i]->d_name, SESSION_FROZEN, strlen(SESSION_FROZEN));

		if (names[i]->d_name[0] == '.' || copy || r < 0 || lstat(path, &st) < 0) {
			free(path);
		} else if (S_ISREG(st.st_mode) && kind) {
			add_found(s, path, kind);
		} else {
			if (S_ISDIR(st.st_mode) && depth < DEPTH_MAX)
				r = search_directory(s, path, depth + 1, err);
			free(path);
		}
		free(names[i]);
	}
	free(names);
	return r;
}

/* A file that was named: by its first bytes and its suffix. */
static enum source_kind kind_of_file(const char *path)
{
	unsigned char head[16] = {0};
	int fd = fs_open(path, O_RDONLY, 0, NULL);
	ssize_t n = fd < 0 ? 0 : fs_read_at(fd, head, sizeof(head), 0);
	size_t i = 0;

	if (fd >= 0)
		close(fd);
	if (ends_with(path, ".jsonl"))
		return SOURCE_ACTIVITY;
	if (ends_with(path, ".db") && strstr(path, ACTIVITY_FILE_PREFIX))
		return SOURCE_ACTIVITY;
	if (n >= 2 && head[0] == 0x1f && head[1] == 0x8b)
		return SOURCE_CHROME;
	while (i < (size_t)n && strchr(" \t\r\n", head[i]))
		i++;
	if (ends_with(path, ".json") || (i < (size_t)n && (head[i] == '{' || head[i] == '[')))
		return SOURCE_CHROME;
	return SOURCE_MEMORY;
}

static int read_found(struct timeline *t, const char *host, const struct found *f,
		      struct buf *notes, struct err *err)
{
	struct timeline_source s = {host, f->path};
	int r;

	switch (f->kind) {
	case SOURCE_ACTIVITY:
		return timeline_read_activities(t, &s, notes, err);
	case SOURCE_CHROME:
		return timeline_read_chrome(t, &s, notes, err);
	default:
		r = timeline_read_memory(t, &s, notes, err);
		if (r == 0 && ends_with(f->path, "/" SESSION_RECORDING))
			r = timeline_read_recorded(t, &s, notes, err);
		if (r == 0 && ends_with(f->path, "/" SESSION_RECORDING))
			r = timeline_read_samples(t, &s, err);
		return r;
	}
}

int timeline_read(struct timeline *t, const struct timeline_source *s, struct buf *notes,
		  struct err *err)
{
	struct search found = {0};
	struct stat st;
	int r = 0;

	if (stat(s->path, &st) < 0)
		return err_sys(err, -errno, "cannot open '%s'", s->path);
	if (!S_ISDIR(st.st_mode))
		add_found(&found, xstrdup(s->path), kind_of_file(s->path));
	else
		r = search_directory(&found, s->path, 0, err);
	if (r == 0 && !found.n && S_ISDIR(st.st_mode)) /* dumps, if there is nothing else */
		r = timeline_read_memory(t, s, notes, err);
	for (size_t i = 0; i < found.n && r == 0; i++)
		r = read_found(t, s->host, &found.list[i], notes, err);
	for (size_t i = 0; i < found.n; i++)
		free(found.list[i].path);
	free(found.list);
	return r;
}
