/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Writes findings into the rows of dump files. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "memory/analysis/inefficient/inefficient.h"
#include "memory/dump/amend.h"
#include "memory/input/input.h"
#include "recorder/recording.h"

struct lookup {
	struct analysis *analysis;
	struct amendment found;
};

static const struct amendment *find_amendment(void *arg, uint32_t pid, uint64_t allocation_id)
{
	struct lookup *l = arg;
	const char *text = inefficient_of(l->analysis, pid, allocation_id);

	if (!text)
		return NULL;
	l->found =
		(struct amendment){.pid = pid, .allocation_id = allocation_id, .inefficient = text};
	return &l->found;
}

static bool ends_in(const char *path, const char *suffix)
{
	size_t len = strlen(path), n = strlen(suffix);

	return len > n && !strcmp(path + len - n, suffix);
}

/* The dump files behind the path; none for a recording. */
static int find_dumps(const char *path, struct input_paths *out, struct err *err)
{
	struct buf file = {0};
	struct stat st;
	int r = 0;

	if (stat(path, &st) < 0)
		return err_sys(err, -errno, "cannot open '%s'", path);
	if (S_ISDIR(st.st_mode)) {
		if (recording_find(path, &file, NULL) < 0)
			r = input_dumps(path, out, err);
	} else if (ends_in(path, ".csv") || ends_in(path, ".db")) {
		input_paths_add(out, path);
	}
	buf_release(&file);
	return r;
}

int inefficient_amend(struct analysis *a, const char *path, enum row_compat compat,
		      struct buf *notes, struct err *err)
{
	struct lookup lookup = {.analysis = a};
	struct input_paths dumps = {0};

	if (!inefficient_marked(a))
		return 0;
	int r = find_dumps(path, &dumps, err);
	if (r == 0 && !dumps.n)
		buf_add_str(notes, "A recording is not changed: `sonde mem export` writes "
				   "dump files of it.\n");
	for (size_t i = 0; i < dumps.n && r == 0; i++) {
		uint64_t rows = 0;

		r = dump_amend(dumps.list[i], compat, find_amendment, &lookup, &rows, err);
		if (r == 0 && rows)
			buf_addf(notes, "%llu MALLOC row%s of '%s' %s marked.\n",
				 (unsigned long long)rows, rows == 1 ? "" : "s", dumps.list[i],
				 rows == 1 ? "was" : "were");
	}
	input_paths_release(&dumps);
	return r;
}
