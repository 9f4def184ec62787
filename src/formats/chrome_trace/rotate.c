/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Rotation: stack_trace.json is the file that is being written, stack_trace.1.json and so on are
 * complete. A number is given once: someone who loads or moves a file away is not surprised by
 * another under its name.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/mem.h"
#include "base/text/number_read.h"
#include "formats/chrome_trace/chrome_trace_impl.h"

/* Bytes of a path before the place of the number: before .json, .json.gz, or at its end. */
static size_t stem_len(const char *path)
{
	const char *slash = strrchr(path, '/');
	const char *name = slash ? slash + 1 : path;
	size_t n = strlen(path);

	if (n > 3 && !strcmp(path + n - 3, ".gz"))
		n -= 3;
	for (size_t i = n; path + i > name + 1; i--)
		if (path[i - 1] == '.')
			return i - 1;
	return n;
}

static char *numbered(const char *path, uint64_t number)
{
	size_t n = stem_len(path);

	return xasprintf("%.*s.%llu%s", (int)n, path, (unsigned long long)number, path + n);
}

/* The number in a file's name that is one of ours, or 0. */
static uint64_t number_in(const char *entry, const char *name)
{
	size_t stem = stem_len(name), len = strlen(entry), rest = strlen(name + stem);
	int64_t number;

	if (len < stem + 2 + rest || strncmp(entry, name, stem) || entry[stem] != '.' ||
	    strcmp(entry + len - rest, name + stem))
		return 0;
	if (!number_read(entry + stem + 1, len - stem - 1 - rest, &number) || number < 0)
		return 0;
	return (uint64_t)number;
}

uint64_t chrome_rotate_next_number(const char *path)
{
	const char *slash = strrchr(path, '/');
	char *folder = slash ? xstrndup(path, (size_t)(slash - path) + 1) : xstrdup(".");
	DIR *d = opendir(folder);
	uint64_t last = 0;

	for (struct dirent *e; d && (e = readdir(d));) {
		uint64_t number = number_in(e->d_name, slash ? slash + 1 : path);

		if (number > last)
			last = number;
	}
	if (d)
		closedir(d);
	free(folder);
	return last + 1;
}

bool chrome_rotate_due(const struct chrome_trace *t)
{
	if (t->o.rotate_bytes && t->file.end >= t->o.rotate_bytes)
		return true;
	return t->o.rotate_ns && clock_mono_ns() - t->begun_ns >= t->o.rotate_ns;
}

/* The file gets its number while it is still written. A link, so that there is always a file under
 * `path`; where there are no links the path is gone until the next file takes it. */
static int give_number(struct chrome_trace *t, struct err *err)
{
	char *name = numbered(t->file.path, t->number);

	int r = fs_link(t->file.path, name, NULL);

	if (r < 0)
		r = fs_rename(t->file.path, name, err);
	if (r < 0) {
		free(name);
		return r;
	}
	if (t->o.keep && t->number > t->o.keep) {
		char *old = numbered(t->file.path, t->number - t->o.keep);

		(void)fs_unlink(old, NULL);
		free(old);
	}
	free(t->file.path);
	t->file.path = name;
	t->number++;
	return 0;
}

/* Ends the file. What cannot be written any more is lost: it does not belong into the next one. */
static int finish_old(struct chrome_trace *t, struct err *err)
{
	int r, more;

	if (t->o.before_rotate)
		t->o.before_rotate(t->o.arg, t);
	r = chrome_trace_write(t, err);
	more = chrome_trace_complete(t, r < 0 ? NULL : err);
	buf_clear(&t->pending);
	t->failing = false;
	return r < 0 ? r : more;
}

/* `next` takes the place of a file that has been ended. */
static int begin_next(struct chrome_trace *t, struct chrome_file *next, struct err *err)
{
	int r;

	chrome_file_release(&t->file);
	t->file = *next;
	t->cut = false;
	t->begun_ns = t->written_ns = clock_mono_ns();
	if (t->o.on_rotate)
		t->o.on_rotate(t->o.arg, t);
	r = chrome_trace_write(t, err);
	return r < 0 ? r : chrome_file_publish(&t->file, err);
}

/* The next file and the name of the old one are there before anything is ended: without room for
 * them things go on as they are. */
int chrome_rotate(struct chrome_trace *t, struct err *err)
{
	struct chrome_file next;
	int r = chrome_file_open(&next, t->file.path, &t->o, 0, err), more;

	if (r < 0)
		return r;
	r = give_number(t, err);
	if (r < 0) {
		chrome_file_release(&next);
		return r;
	}
	r = finish_old(t, err);
	more = begin_next(t, &next, r < 0 ? NULL : err);
	return r < 0 ? r : more;
}

int chrome_begin_anew(struct chrome_trace *t, struct err *err)
{
	enum chrome_taken taken = t->cut ? CHROME_CUT : chrome_file_taken(&t->file);
	struct chrome_file next;

	if (taken == CHROME_NOT_TAKEN)
		return 0;
	int r = chrome_file_open(&next, t->file.path, &t->o, 0, err);
	if (r < 0)
		return r;
	if (taken == CHROME_MOVED)
		(void)finish_old(t, NULL); /* for the one who has it now */
	buf_clear(&t->pending);
	return begin_next(t, &next, err);
}
