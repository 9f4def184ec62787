/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The rows of one side of a comparison: which files a path stands for, and reading them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "memory/analysis/compare/compare_impl.h"
#include "memory/input/input.h"
#include "memory/input/recording_path.h"
#include "recorder/recording.h"

#define PROJECT_PREFIX "msmemscope_"
#define PROJECT_SUFFIX "_ascend"

static const char *const side_names[] = {"base", "compare"};

/* --- which files a directory stands for --- */

struct found {
	char *path;
	size_t dir; /* length of its directory */
	size_t project; /* length up to the last part that is a msmemscope_…_ascend; 0: none */
	struct timespec time;
};

static size_t project_of(const char *path)
{
	size_t found = 0;

	for (const char *p = path; (p = strchr(p, '/'));) {
		const char *name = ++p;
		size_t len = strcspn(name, "/");

		if (len >= strlen(PROJECT_PREFIX) + strlen(PROJECT_SUFFIX) && name[len] == '/' &&
		    !strncmp(name, PROJECT_PREFIX, strlen(PROJECT_PREFIX)) &&
		    !strncmp(name + len - strlen(PROJECT_SUFFIX), PROJECT_SUFFIX,
			     strlen(PROJECT_SUFFIX)))
			found = (size_t)(name - path) + len;
	}
	return found;
}

static bool is_newer(const struct found *a, const struct found *b)
{
	if (a->time.tv_sec != b->time.tv_sec)
		return a->time.tv_sec > b->time.tv_sec;
	if (a->time.tv_nsec != b->time.tv_nsec)
		return a->time.tv_nsec > b->time.tv_nsec;
	return strcmp(a->path, b->path) > 0;
}

static bool same_start(const char *a, size_t na, const char *b, size_t nb)
{
	return na == nb && !strncmp(a, b, na);
}

/*
 * The newest dump; where it lies in the directory of a process, the newest of each of that
 * process's devices too.
 */
static void choose_newest(struct found *all, size_t n, struct input_paths *out)
{
	const struct found *newest = &all[0];

	for (size_t i = 1; i < n; i++)
		if (is_newer(&all[i], newest))
			newest = &all[i];
	for (size_t i = 0; i < n; i++) {
		bool take = &all[i] == newest;

		if (newest->project)
			take = same_start(all[i].path, all[i].project, newest->path,
					  newest->project);
		for (size_t k = 0; k < n && take; k++)
			take = k == i || !is_newer(&all[k], &all[i]) ||
			       !same_start(all[k].path, all[k].dir, all[i].path, all[i].dir);
		if (take)
			input_paths_add(out, all[i].path);
	}
}

static int find_dumps(const char *dir, struct input_paths *out, struct err *err)
{
	struct input_paths dumps = {0};
	int r = input_dumps(dir, &dumps, err);

	if (r == 0) {
		struct found *all = xcalloc(dumps.n, sizeof(*all));

		for (size_t i = 0; i < dumps.n; i++) {
			struct stat st = {0};

			(void)stat(dumps.list[i], &st);
			all[i].path = dumps.list[i];
			all[i].dir = (size_t)(strrchr(dumps.list[i], '/') - dumps.list[i]);
			all[i].project = project_of(dumps.list[i]);
			all[i].time = st.st_mtim;
		}
		choose_newest(all, dumps.n, out);
		free(all);
	}
	input_paths_release(&dumps);
	return r;
}

static bool is_directory(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* A file or a recording stands for itself; else its dumps, else the newest recording in it. */
static int find_files(const char *path, unsigned wait_s, bool recording_first,
		      struct compare_source *source, struct err *err)
{
	struct buf newest = {0}, file = {0};
	struct input_paths found = {0}, *out = &found;
	bool has_recording = false;
	int r = recording_resolve(path, &newest, err);

	if (r < 0)
		goto out;
	(void)recording_wait(buf_str(&newest), wait_s);
	has_recording = recording_find(buf_str(&newest), &file, NULL) == 0;
	buf_clear(&file);
	if (recording_find(path, &file, NULL) == 0) {
		input_paths_add(out, path);
		source->from_directory = false;
		source->recording = true;
		goto out;
	}
	source->from_directory = is_directory(path);
	source->recording = false;
	r = recording_first ? -ENOENT : find_dumps(path, out, err);
	if (r < 0 && has_recording) {
		input_paths_add(out, buf_str(&newest));
		source->recording = true;
		r = 0;
	} else if (recording_first) {
		r = find_dumps(path, out, err);
	}
out:
	if (r == 0)
		compare_source_set(source, out, has_recording ? buf_str(&newest) : NULL);
	input_paths_release(out);
	buf_release(&newest);
	buf_release(&file);
	return r;
}

/* --- reading --- */

struct reading {
	struct compare *compare;
	enum compare_side side;
	const struct input_choice *choice;
	struct buf notes;
};

static void on_row(void *arg, const struct row *row)
{
	struct reading *r = arg;

	compare_add(r->compare, r->side, row);
}

static void on_note(void *arg, const char *text)
{
	struct reading *r = arg;

	buf_addf(&r->notes, "Of %s: %s\n", side_names[r->side], text);
}

static void on_lost(void *arg, uint32_t pid, uint64_t events, uint64_t stacks, uint64_t damaged)
{
	struct reading *r = arg;

	(void)stacks;
	if (events || damaged)
		buf_addf(&r->notes,
			 "Of %s: %llu events and %llu bytes of process %u are missing.\n",
			 side_names[r->side], (unsigned long long)events,
			 (unsigned long long)damaged, pid);
}

static void on_lost_more(void *arg)
{
	struct reading *r = arg;

	buf_addf(&r->notes, "Of %s: how many more events are missing is unknown.\n",
		 side_names[r->side]);
}

static int read_files(struct reading *rd, const struct input_paths *files, struct err *err)
{
	struct input_sink sink = {.choice = rd->choice,
				  .loss = &rd->compare->input[rd->side].loss,
				  .asked = &rd->compare->input[rd->side].asked,
				  .row = on_row,
				  .note = on_note,
				  .lost = on_lost,
				  .lost_more = on_lost_more,
				  .arg = rd};
	int r = 0;

	for (size_t i = 0; i < files->n && r == 0; i++)
		r = input_read(files->list[i], &sink, err);
	return r;
}

static void add_notes(struct compare *c, const char *lines)
{
	while (*lines) {
		size_t len = strcspn(lines, "\n");
		char *line = xstrndup(lines, len);

		compare_note(c, line);
		free(line);
		lines += len + 1;
	}
}

static int choose_processes(const struct input_paths *files, struct input_choice *choice,
			    struct err *err)
{
	input_choice_reset(choice);
	return input_choose(files->list[0], choice, err);
}

int compare_read(struct compare *c, enum compare_side side, const char *path,
		 const struct compare_input_options *options, struct err *err)
{
	struct input_choice *choice = options->choice;
	struct reading rd = {.compare = c, .side = side, .choice = choice};
	const struct input_paths *files = &c->source[side].files;
	bool chosen = choice && (choice->pid || choice->by_rank);
	int r = find_files(path, options->wait_s, c->sites || chosen, &c->source[side], err);

	if (r == 0 && chosen)
		r = choose_processes(files, choice, err);
	if (r == 0)
		r = read_files(&rd, files, err);
	if (r == 0 && compare_unordered(c, side)) {
		compare_restart(c, side);
		c->input[side].loss = (struct loss){0};
		buf_clear(&rd.notes);
		r = read_files(&rd, files, err);
	}
	if (r == 0)
		add_notes(c, buf_str(&rd.notes));
	buf_release(&rd.notes);
	return r;
}
