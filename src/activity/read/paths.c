/* SPDX-License-Identifier: MulanPSL-2.0 */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "activity/read/read.h"
#include "activity/read/recording.h"
#include "activity/steps/files.h"
#include "base/mem.h"
#include "wire/control_page.h"

void activity_paths_release(struct activity_paths *p)
{
	for (size_t i = 0; i < p->n; i++)
		free(p->list[i]);
	free(p->list);
}

static void add_path(struct activity_paths *p, char *path)
{
	*XPUSH(p->list, p->n, p->cap) = path;
}

static bool is_recording(const char *name)
{
	return !strcmp(name, SESSION_RECORDING);
}

static int is_activities(const struct dirent *e)
{
	return e->d_name[0] != '.' && (activity_read_is_name(e->d_name) || is_recording(e->d_name));
}

static int is_trace(const struct dirent *e)
{
	return split_is_rank_dir(e->d_name) ||
	       !strncmp(e->d_name, SESSION_PREFIX, strlen(SESSION_PREFIX));
}

static void add_process(void *arg, const char *path)
{
	add_path(arg, xstrdup(path));
}

/* A recording of memory alone has nothing to add. */
static int add_file(struct activity_paths *p, char *path, struct err *err)
{
	const char *slash = strrchr(path, '/');
	int r = 0;

	if (!is_recording(slash ? slash + 1 : path)) {
		add_path(p, path);
		return 0;
	}
	r = activity_recording_list(path, add_process, p, err);
	free(path);
	return r;
}

/* A trace's own recording has what the file beside it has. */
static bool is_repeated(struct dirent **found, int n, const char *name)
{
	for (int i = 0; i < n; i++)
		if (!is_recording(found[i]->d_name))
			return is_recording(name);
	return false;
}

/*
 * The files of a directory, or of those below it. Names have their times in them: in this order
 * those of one process follow each other.
 */
static int add_files(struct activity_paths *p, const char *dir, bool below, struct err *err)
{
	struct dirent **found = NULL;
	int n = scandir(dir, &found, below ? is_trace : is_activities, alphasort), r = 0;

	if (n < 0)
		return err_sys(err, -errno, "cannot read '%s'", dir);
	for (int i = 0; i < n; i++) {
		char *path = xasprintf("%s/%s", dir, found[i]->d_name);

		if (!below && r == 0 && !is_repeated(found, n, found[i]->d_name)) {
			r = add_file(p, path, err);
		} else if (!below) {
			free(path);
		} else {
			r = r < 0 ? r : add_files(p, path, false, err);
			free(path);
		}
		free(found[i]);
	}
	free(found);
	return r;
}

static int add_dir(struct activity_paths *p, const char *dir, struct err *err)
{
	size_t before = p->n;
	int r = add_files(p, dir, false, err);

	if (r == 0 && p->n == before)
		r = add_files(p, dir, true,
			      err); /* one for each process, as nputrace leaves them */
	if (r < 0 || p->n > before)
		return r;
	return err_set(err, -ENOENT,
		       "there is no .db or .jsonl file in '%s', nor a trace; npu-monitor and "
		       "nputrace write them with --log-file, and 'sonde activity summary' says if "
		       "a trace could not be written",
		       dir);
}

int activity_paths_find(struct activity_paths *p, char **words, int n, struct err *err)
{
	struct stat st;
	int r = 0;

	for (int i = 0; r == 0 && i < n; i++) {
		if (stat(words[i], &st) < 0)
			r = err_sys(err, -errno, "cannot open '%s'", words[i]);
		else if (S_ISDIR(st.st_mode))
			r = add_dir(p, words[i], err);
		else
			r = add_file(p, xstrdup(words[i]), err);
	}
	return r;
}
