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
#include "base/text/text.h"
#include "formats/clock_file.h"
#include "memory/analysis/processes/processes.h"
#include "memory/input/recording_path.h"
#include "timeline/clocks.h"
#include "timeline/sources.h"
#include "timeline/timeline_impl.h"
#include "wire/control_page.h"

#define DEPTH_MAX 8
#define RECORDER_WAIT_S 2 /* of a job that has ended: it finishes its files */

static bool is_trace_name(const char *name)
{
	return text_ends_with(name, "trace.json") || text_ends_with(name, "trace.json.gz");
}

static void add_found(struct source_files *f, char *path, enum source_kind kind)
{
	*XPUSH(f->list, f->n, f->cap) = (struct source_file){path, kind};
}

/* Recordings first: dumps beside them were made from them. A trace has all that the files beside it
 * have, and its recording. */
static enum source_kind kind_in_directory(const char *name, bool has_trace)
{
	if (!strcmp(name, SESSION_RECORDING))
		return has_trace ? SOURCE_NONE : SOURCE_MEMORY;
	if (is_trace_name(name))
		return SOURCE_CHROME;
	if (activity_read_is_name(name) && !strncmp(name, ACTIVITY_FILE_PREFIX, 10) && !has_trace)
		return SOURCE_ACTIVITY;
	return text_ends_with(name, CLOCK_FILE_NAME) ? SOURCE_CLOCKS : SOURCE_NONE;
}

static int search_directory(struct source_files *f, const char *dir, unsigned depth,
			    struct err *err)
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
		enum source_kind kind = kind_in_directory(names[i]->d_name, has_trace);
		struct stat st;

		/* Copies of a part of what is in the recording beside them. */
		bool copy = !strncmp(names[i]->d_name, SESSION_FROZEN, strlen(SESSION_FROZEN));

		if (names[i]->d_name[0] == '.' || copy || r < 0 || lstat(path, &st) < 0) {
			free(path);
		} else if (S_ISREG(st.st_mode) && kind) {
			add_found(f, path, kind);
		} else {
			if (S_ISDIR(st.st_mode) && depth < DEPTH_MAX)
				r = search_directory(f, path, depth + 1, err);
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
	char head[32] = {0};
	int fd = fs_open(path, O_RDONLY, 0, NULL);
	ssize_t n = fd < 0 ? 0 : fs_read_at(fd, head, sizeof(head), 0);
	size_t i = 0;

	if (fd >= 0)
		close(fd);
	if (n > 0 && clock_file_begins(head, (size_t)n))
		return SOURCE_CLOCKS;
	if (text_ends_with(path, ".jsonl"))
		return SOURCE_ACTIVITY;
	if (text_ends_with(path, ".db") && strstr(path, ACTIVITY_FILE_PREFIX))
		return SOURCE_ACTIVITY;
	if (n >= 2 && head[0] == 0x1f && (unsigned char)head[1] == 0x8b)
		return SOURCE_CHROME;
	while (i < (size_t)n && strchr(" \t\r\n", head[i]))
		i++;
	if (text_ends_with(path, ".json") || (i < (size_t)n && (head[i] == '{' || head[i] == '[')))
		return SOURCE_CHROME;
	return SOURCE_MEMORY;
}

/* What `sonde ctl` has left beside a directory of traces. */
static void find_beside(struct source_files *f, const char *dir)
{
	size_t n = strlen(dir);
	struct stat st;

	while (n > 1 && dir[n - 1] == '/')
		n--;
	char *path = xasprintf("%.*s." CLOCK_FILE_NAME, (int)n, dir);
	if (lstat(path, &st) == 0 && S_ISREG(st.st_mode))
		add_found(f, path, SOURCE_CLOCKS);
	else
		free(path);
}

int source_files_find(struct source_files *f, const char *path, struct err *err)
{
	size_t before = f->n;
	struct stat st;
	int r;

	if (stat(path, &st) < 0)
		return err_sys(err, -errno, "cannot open '%s'", path);
	if (!S_ISDIR(st.st_mode)) {
		add_found(f, xstrdup(path), kind_of_file(path));
		return 0;
	}
	r = search_directory(f, path, 0, err);
	if (r == 0 && f->n == before)
		add_found(f, xstrdup(path), SOURCE_MEMORY);
	find_beside(f, path);
	return r;
}

void source_files_release(struct source_files *f)
{
	for (size_t i = 0; i < f->n; i++)
		free(f->list[i].path);
	free(f->list);
	*f = (struct source_files){0};
}

static void wait_for_recorder(const char *file)
{
	const char *slash = strrchr(file, '/');
	char *dir = slash ? xstrndup(file, (size_t)(slash - file)) : xstrdup(".");

	(void)recording_wait(dir, RECORDER_WAIT_S);
	free(dir);
}

struct timeline_process *timeline_process_of(struct timeline *t, const char *host,
					     struct processes *processes, uint32_t pid,
					     int32_t rank, const char *command)
{
	const struct process_facts *f = processes_find(processes, pid);

	if (f && f->rank >= 0)
		rank = f->rank;
	return timeline_process(t, host, pid, rank, f ? f->command : command);
}

static int read_recording(struct timeline *t, const struct timeline_source *s, struct buf *notes,
			  struct err *err)
{
	struct processes processes = {0};
	struct stream_listener names, samples, activities;
	struct sample_source *stacks =
		timeline_hear_samples(t, s->host, &processes, &names, &samples);
	struct recorded_activities *devices =
		timeline_hear_activities(t, s->host, &processes, notes, &activities);

	activities.next = &samples;
	const struct recording_hearers others = {&processes, &names, &activities};
	int r = timeline_read_memory(t, s, &others, notes, err);
	int ended = timeline_end_activities(devices);

	timeline_end_samples(stacks);
	processes_release(&processes);
	return r < 0 ? r : ended;
}

/* A recording of memory alone, or dumps. */
static int read_memory(struct timeline *t, const struct timeline_source *s, struct buf *notes,
		       struct err *err)
{
	struct processes processes = {0};
	const struct recording_hearers alone = {.processes = &processes};
	int r = timeline_read_memory(t, s, &alone, notes, err);

	processes_release(&processes);
	return r;
}

static int read_found(struct timeline *t, const char *given, const struct source_file *f,
		      struct buf *notes, struct err *err)
{
	const char *host = t->o.clocks ? timeline_clocks_host(t->o.clocks, f->path, given) : given;
	struct timeline_source s = {host, f->path};

	switch (f->kind) {
	case SOURCE_ACTIVITY:
		return timeline_read_activities(t, &s, notes, err);
	case SOURCE_CHROME:
		return timeline_read_chrome(t, &s, notes, err);
	case SOURCE_CLOCKS:
		return 0; /* it was read before all others */
	default:
		wait_for_recorder(f->path);
		return text_ends_with(f->path, "/" SESSION_RECORDING)
			       ? read_recording(t, &s, notes, err)
			       : read_memory(t, &s, notes, err);
	}
}

/* Hosts of one job, or runs one after the other: only the reader knows. */
static void note_several(const char *path, const struct source_files *f, struct buf *notes)
{
	size_t n = 0;

	for (size_t i = 0; i < f->n; i++)
		n += text_ends_with(f->list[i].path, "/" SESSION_RECORDING);
	if (n > 1)
		buf_addf(notes,
			 "'%s' has %zu recordings, and all of them are shown: name one to see it "
			 "alone.\n",
			 path, n);
}

int timeline_read(struct timeline *t, const struct timeline_source *s, struct buf *notes,
		  struct err *err)
{
	struct source_files found = {0};
	int r = source_files_find(&found, s->path, err);

	note_several(s->path, &found, notes);
	for (size_t i = 0; i < found.n && r == 0; i++)
		r = read_found(t, s->host, &found.list[i], notes, err);
	source_files_release(&found);
	return r;
}
