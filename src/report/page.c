/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "report/page.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "activity/files/activity.h"
#include "base/fs.h"
#include "base/mem.h"
#include "base/text/text.h"
#include "formats/json_value.h"
#include "memory/input/recording_path.h"
#include "recorder/session.h"
#include "report/activities.h"
#include "report/html.h"
#include "report/memory/answers.h"
#include "report/memory/memory.h"
#include "report/profiles.h"
#include "report/tree.h"

#define MOST_MEMORIES 8u
#define MOST_TRACES 64 /* processes of a traced job of which stacks are shown */

struct page {
	struct page_options o;
	struct redact *redact;
	struct pack pack;
	struct tree tree;
	json_t *memory, *activities, *profiles;
	struct buf title;
	struct buf command; /* of the job that was read last, if it is known */
	struct page_written written;
};

struct page *page_new(const struct page_options *o)
{
	struct page *r = xcalloc(1, sizeof(*r));

	r->o = *o;
	if (o->redact)
		r->redact = redact_new(o->keep_own);
	pack_init(&r->pack, r->redact);
	tree_init(&r->tree, &r->pack);
	r->memory = json_array();
	r->activities = json_array();
	r->profiles = json_array();
	return r;
}

void page_free(struct page *r)
{
	if (!r)
		return;
	json_decref(r->memory);
	json_decref(r->activities);
	json_decref(r->profiles);
	tree_release(&r->tree);
	pack_release(&r->pack);
	redact_free(r->redact);
	buf_release(&r->title);
	buf_release(&r->command);
	free(r);
}

/* "python train.py (run1)": what was looked at, and where it is. */
static void add_title(struct page *r, const char *path)
{
	const char *end = path + strlen(path), *from;

	while (end > path + 1 && end[-1] == '/')
		end--;
	for (from = end; from > path && from[-1] != '/';)
		from--;
	if (r->title.len)
		buf_add_str(&r->title, ", ");
	if (r->command.len)
		buf_addf(&r->title, "%s (", buf_str(&r->command));
	buf_add(&r->title, from, (size_t)(end - from));
	if (r->command.len)
		buf_add_char(&r->title, ')');
	buf_clear(&r->command);
}

/* What `sonde record` has sampled beside the memory. Dumps have none. */
static void add_recorded_stacks(struct page *r, const char *recording, const char *path)
{
	r->written.profiles += profiles_add_recording(r->profiles, r->written.profiles, recording,
						      path, r->o.choice, &r->tree, NULL) == 0;
}

static int is_trace_dir(const struct dirent *e)
{
	return e->d_name[0] != '.' && text_ends_with(e->d_name, SESSION_TRACE_SUFFIX);
}

/* A trace of a running job has a recording for each process. */
static void add_stacks_of_traces(struct page *r, const char *path)
{
	struct dirent **found = NULL;
	int n = scandir(path, &found, is_trace_dir, alphasort);

	for (int i = 0; i < n; i++) {
		char *dir = xasprintf("%s/%s", path, found[i]->d_name);

		if (i < MOST_TRACES)
			add_recorded_stacks(r, dir, dir);
		free(dir);
		free(found[i]);
	}
	if (n >= 0)
		free(found);
}

/* Adds to `from` (may be NULL) what was read: of several recordings the newest. */
static int add_memory(struct page *r, const char *path, struct buf *from, struct err *err)
{
	struct answers a;
	char *prefix = xasprintf("m%u.", r->written.memories);
	struct answers_options o = {r->o.choice, r->o.wait_s, r->o.flame};
	int status = answers_read(path, &o, &a, err);

	if (status == 0 && r->written.memories >= MOST_MEMORIES)
		status = err_set(err, -E2BIG, "more than %u recordings in one report",
				 MOST_MEMORIES);
	if (status == 0) {
		struct memory_input in = {prefix, path};

		answers_learn(&a, r->redact);
		buf_add_str(&r->command, answers_command(&a));
		json_t *answers = answers_json(&a, &r->pack);
		json_t *one = memory_json(a.pictures, &r->tree, &in);

		json_object_set_new(one, "answers", answers);
		json_object_set_new(one, "notes", answers_notes(&a, &r->pack));
		json_array_append_new(r->memory, one);
		r->written.rows += a.pictures->base.blocks->rows;
		r->written.memories++;
		add_recorded_stacks(r, buf_str(&a.path), path);
		if (from)
			buf_add(from, a.path.data, a.path.len);
	}
	answers_release(&a);
	free(prefix);
	return status;
}

/* --- what a path is --- */

static const char *last_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static bool is_activity_file(const char *path)
{
	return text_ends_with(path, ".jsonl") ||
	       (text_ends_with(path, ".db") &&
		!strncmp(last_name(path), ACTIVITY_FILE_PREFIX, strlen(ACTIVITY_FILE_PREFIX)));
}

static bool is_dump_file(const char *path)
{
	return text_ends_with(path, ".csv") || text_ends_with(path, ".db") ||
	       text_ends_with(path, ".sonde");
}

static int add_activities(struct page *r, const char *path, struct err *err)
{
	int n = activities_add(r->activities, r->written.activities, path, &r->pack, err);

	if (n > 0)
		r->written.activities += (unsigned)n;
	return n < 0 ? n : 0;
}

static int add_profile(struct page *r, const char *path, struct err *err)
{
	int status = profiles_add(r->profiles, r->written.profiles, path, &r->tree, err);

	r->written.profiles += status == 0;
	return status;
}

static int is_profile_name(const struct dirent *e)
{
	static const char *const ends[] = {".collapsed.txt", ".collapsed", ".speedscope.json",
					   ".folded"};

	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
		if (e->d_name[0] != '.' && text_ends_with(e->d_name, ends[i]))
			return 1;
	return 0;
}

static unsigned count_all(const struct page *r)
{
	return r->written.memories + r->written.activities + r->written.profiles;
}

/* Kernels of `sonde record` are those of the run whose memory is shown, not of all runs beside it. */
static bool is_of_record(const char *recording)
{
	struct control_page page;

	return session_read(recording, &page, NULL) == 0 && page.record.on;
}

/* Everything of a directory; what it has none of is no error. */
static int add_directory(struct page *r, const char *path, struct err *err)
{
	unsigned before = count_all(r);
	struct dirent **found = NULL;
	struct err memory = {0}, activity = {0};
	struct buf from = {0};
	int status = add_memory(r, path, &from, &memory);

	if (status < 0 && status != -ENOENT && status != -ENOTUNIQ)
		return err_set(err, memory.code, "%s", memory.text);
	r->written.several_traces |= status == -ENOTUNIQ;
	if (status == -ENOTUNIQ)
		add_stacks_of_traces(r, path);
	bool one = from.len && is_of_record(buf_str(&from));
	(void)add_activities(r, one ? buf_str(&from) : path, &activity);
	buf_release(&from);
	int n = scandir(path, &found, is_profile_name, alphasort);
	for (int i = 0; i < n; i++) {
		char *file = xasprintf("%s/%s", path, found[i]->d_name);

		(void)add_profile(r, file, NULL);
		free(file);
		free(found[i]);
	}
	if (n >= 0)
		free(found);
	if (count_all(r) > before)
		return 0;
	if (activity.code && activity.code != -ENOENT)
		return err_set(err, activity.code, "%s", activity.text);
	return err_set(err, -ENOENT,
		       "'%s' contains nothing that a report can show: no recording or dump of "
		       "memory, no files of activities, no trace of steps, no profile",
		       path);
}

static int add_path(struct page *r, const char *path, struct err *err)
{
	struct stat st;

	if (stat(path, &st) < 0)
		return recording_not_found(path, errno, err);
	if (S_ISDIR(st.st_mode))
		return add_directory(r, path, err);
	if (is_activity_file(path))
		return add_activities(r, path, err);
	if (!is_dump_file(path) && profile_input_of(path))
		return add_profile(r, path, err);
	int status = add_memory(r, path, NULL, err);
	if (status == -EINVAL && !is_dump_file(path))
		err_set(err, status,
			"'%s' is no file that a report can show: no recording or dump of memory, "
			"no "
			"file of activities, no profile (collapsed text, speedscope, a Chrome "
			"trace)",
			path);
	return status;
}

int page_add(struct page *r, const char *path, struct err *err)
{
	int status = add_path(r, path, err);

	add_title(r, path);
	return status;
}

/* --- writing --- */

static int write_out(const char *path, struct buf *page, struct err *err)
{
	if (!strcmp(path, "-")) {
		int status = fs_write_all(STDOUT_FILENO, page->data, page->len, FS_HERE, NULL);

		return status < 0 ? err_sys(err, status, "cannot write the page") : 0;
	}
	if (!fs_is_stream(path))
		return fs_write_atomic(path, page, 0640, err);
	int fd = fs_open_output(path, 0, 0, err);
	if (fd < 0)
		return fd;
	int r = fs_write_all(fd, page->data, page->len, FS_HERE, NULL);
	close(fd);
	return r < 0 ? err_sys(err, r, "cannot write '%s'", path) : 0;
}

int page_write(struct page *r, const char *path, struct page_written *out, struct err *err)
{
	struct buf page = {0}, title = {0};

	if (r->o.title)
		buf_add_str(&title, r->o.title);
	else if (r->redact)
		buf_add_str(&title, "A job");
	else
		buf_add(&title, r->title.data, r->title.len);
	json_object_set_new(r->pack.model, "title",
			    text_value(title.data ? title.data : "", title.len));
	json_object_set_new(r->pack.model, "version", json_string(SONDE_VERSION));
	put_bool(r->pack.model, "flame", r->o.flame);
	put_bool(r->pack.model, "redacted", r->redact != NULL);
	json_object_set(r->pack.model, "memory", r->memory);
	json_object_set(r->pack.model, "activities", r->activities);
	json_object_set(r->pack.model, "profiles", r->profiles);
	tree_put(&r->tree);
	buf_add_str(&title, " · sonde report");
	int status = html_write(&r->pack, buf_str(&title), &page, err);
	if (status == 0)
		status = write_out(path, &page, err);
	r->written.bytes = page.len;
	*out = r->written;
	buf_release(&page);
	buf_release(&title);
	return status;
}
