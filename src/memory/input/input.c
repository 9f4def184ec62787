/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What a path names, and reading it. */
#include "memory/input/input_impl.h"

#include "base/fs.h"
#include "base/mem.h"
#include "recorder/recording.h"
#include "wire/control_page.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DUMP_PREFIX "memscope_dump_"
#define OLD_DUMP_PREFIX "leaks_dump_" /* of msLeaks */
#define MAX_DEPTH 8 /* of directories below the one that was named */

void input_note(const struct input_sink *sink, const char *fmt, ...)
{
	char *text = NULL;
	va_list args;

	va_start(args, fmt);
	if (sink->note && vasprintf(&text, fmt, args) >= 0)
		sink->note(sink->arg, text);
	va_end(args);
	free(text);
}

static bool is_recording(const char *path)
{
	char magic[sizeof(((struct recording_head *)0)->magic)] = {0};
	int fd = fs_open(path, O_RDONLY, 0, NULL);

	if (fd < 0)
		return false;
	ssize_t n = pread(fd, magic, sizeof(magic), 0); /* a pipe keeps what is in it */
	close(fd);
	return n == (ssize_t)sizeof(magic) && !memcmp(magic, RECORDING_MAGIC, sizeof(magic));
}

static bool is_dump_name(const char *name)
{
	size_t len = strlen(name);

	return (!strncmp(name, DUMP_PREFIX, strlen(DUMP_PREFIX)) ||
		!strncmp(name, OLD_DUMP_PREFIX, strlen(OLD_DUMP_PREFIX))) &&
	       ((len > 4 && !strcmp(name + len - 4, ".csv")) ||
		(len > 3 && !strcmp(name + len - 3, ".db")));
}

static int not_dots(const struct dirent *e)
{
	return e->d_name[0] != '.';
}

void input_paths_add(struct input_paths *paths, const char *path)
{
	paths->list = xgrow(paths->list, &paths->cap, paths->n + 1, sizeof(char *));
	paths->list[paths->n++] = xstrdup(path);
}

void input_paths_release(struct input_paths *paths)
{
	for (size_t i = 0; i < paths->n; i++)
		free(paths->list[i]);
	free(paths->list);
}

/* unreadable: the first directory that cannot be read, if any. */
static void find_dumps(const char *dir, unsigned depth, struct input_paths *out,
		       struct err *unreadable)
{
	struct dirent **list;
	int n = scandir(dir, &list, not_dots, alphasort);

	if (n < 0 && !unreadable->code)
		err_sys(unreadable, -errno, "cannot read the directory '%s'", dir);
	for (int i = 0; i < n; i++) {
		char *path = xasprintf("%s/%s", dir, list[i]->d_name);
		struct stat st;

		if (lstat(path, &st) == 0 && S_ISDIR(st.st_mode) && depth < MAX_DEPTH)
			find_dumps(path, depth + 1, out, unreadable);
		else if (is_dump_name(list[i]->d_name))
			input_paths_add(out, path);
		free(path);
		free(list[i]);
	}
	if (n >= 0)
		free(list);
}

int input_dumps(const char *dir, struct input_paths *out, struct err *err)
{
	struct err unreadable = {0};

	find_dumps(dir, 0, out, &unreadable);
	if (!out->n && unreadable.code)
		return err_set(err, unreadable.code, "%s", unreadable.text);
	if (!out->n)
		return err_set(err, -ENOENT,
			       "'%s' holds neither a recording (%s) nor a dump (" DUMP_PREFIX
			       "*.csv or .db)",
			       dir, SESSION_RECORDING);
	return 0;
}

static int read_files(struct input_paths *paths, const struct input_sink *sink, struct err *err)
{
	int r;

	if (is_recording(paths->list[0]))
		r = input_read_recording(paths->list[0], sink, err);
	else
		r = input_read_dumps(paths, sink, err);
	for (size_t i = 0; r == 0 && sink->file && i < paths->n; i++)
		sink->file(sink->arg, paths->list[i], !is_recording(paths->list[i]));
	return r;
}

int input_read(const char *path, const struct input_sink *sink, struct err *err)
{
	struct input_paths paths = {0};
	struct buf file = {0};
	struct stat st;
	int r = 0;

	if (stat(path, &st) < 0)
		return err_sys(err, -errno, "cannot open '%s'", path);
	if (!S_ISDIR(st.st_mode))
		input_paths_add(&paths, path);
	else if (recording_find(path, &file, NULL) == 0)
		input_paths_add(&paths, buf_str(&file));
	else
		r = input_dumps(path, &paths, err);
	if (r == 0)
		r = read_files(&paths, sink, err);
	input_paths_release(&paths);
	buf_release(&file);
	return r;
}
