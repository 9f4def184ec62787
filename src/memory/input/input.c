/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/input/input_impl.h"

#include "base/containers/hmap.h"
#include "base/mem.h"
#include "base/progress.h"
#include "memory/input/reader.h"
#include "recorder/recording.h"
#include "wire/control_page.h"
#include "wire/record.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define DUMP_PREFIX "memscope_dump_"
#define THREADS_FROM (4 << 20) /* bytes of a file, for there to be something to win */
#define MAX_DEPTH 8 /* of directories below the one that was named */

/* --- dumps: several files are read side by side and merged by time --- */

struct paths {
	char **list;
	size_t n, cap;
};

struct reader {
	struct dump *dump;
	const struct row *row;
	size_t file; /* its number */
};

/* The newest row that was passed on of one device of a process, and where it
 * stood. */
struct newest {
	uint64_t time_ns, id;
	size_t file;
};

struct readers {
	struct reader *list;
	size_t n, cap;
	struct hmap by_device; /* process and device: number in newest[] */
	struct newest *newest;
	size_t nnewest, newest_cap;
	uint64_t bad, rows;
	uint64_t doubles; /* rows of a device that stood in another file, too */
	bool unordered; /* a row without a device went back in time */
	struct err first_bad;
	bool torn;
};

/* Moves on in one file; what is at its end leaves the list. */
static int next_row(struct readers *m, struct reader *r, struct err *err)
{
	int found = dump_take(r->dump, &r->row, err);

	if (found > 0)
		return 0;
	if (found == 0) {
		if (!m->bad && dump_bad_rows(r->dump))
			err_set(&m->first_bad, -EBADMSG, "%s", dump_first_bad(r->dump));
		m->bad += dump_bad_rows(r->dump);
		m->torn |= dump_torn(r->dump);
	}
	dump_close(r->dump);
	*r = m->list[--m->n];
	return found;
}

static void close_readers(struct readers *m)
{
	for (size_t i = 0; i < m->n; i++)
		dump_close(m->list[i].dump);
	free(m->list);
	free(m->newest);
	hmap_release(&m->by_device);
}

/* Threads that may help with each file: as many as there are processors, for
 * large ones. */
static unsigned threads_for(const char *path, size_t files)
{
	struct stat st;
	cpu_set_t cpus;

	if (stat(path, &st) < 0 || st.st_size < THREADS_FROM ||
	    sched_getaffinity(0, sizeof(cpus), &cpus) < 0)
		return 0;
	return (unsigned)((size_t)(CPU_COUNT(&cpus) - 1) / files);
}

/* A file each: the usual limit is 1024, and the system allows far more to who
 * asks. */
static void allow_files(size_t n)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || n + 64 <= limit.rlim_cur)
		return;
	limit.rlim_cur = n + 64 < limit.rlim_max ? n + 64 : limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
}

static int open_readers(struct readers *m, const struct paths *paths, const struct input_sink *sink,
			unsigned flags, struct err *err)
{
	allow_files(paths->n);
	for (size_t i = 0; i < paths->n; i++) {
		m->list = xgrow(m->list, &m->cap, m->n + 1, sizeof(*m->list));
		m->list[m->n].file = i;
		int r = dump_open(paths->list[i], DUMP_SKIP_BAD | flags, &m->list[m->n].dump, err);
		if (r < 0)
			return r;
		if (sink->attrs)
			dump_want(m->list[m->n].dump, sink->attrs);
		unsigned threads = threads_for(paths->list[i], paths->n);
		if (threads)
			dump_read_ahead(m->list[m->n].dump, threads, 0);
		m->n++;
		r = next_row(m, &m->list[m->n - 1], err);
		if (r < 0)
			return r;
	}
	return 0;
}

static struct reader *earliest(struct readers *m)
{
	struct reader *best = &m->list[0];

	for (size_t i = 1; i < m->n; i++)
		if (m->list[i].row->time_ns < best->row->time_ns)
			best = &m->list[i];
	return best;
}

static struct newest *newest_of(struct readers *m, const struct reader *r)
{
	uint64_t key = (uint64_t)r->row->pid << 32 | r->row->device;
	uint64_t number = hmap_get(&m->by_device, key);

	if (number != HMAP_NONE)
		return &m->newest[number];
	m->newest = xgrow(m->newest, &m->newest_cap, m->nnewest + 1, sizeof(*m->newest));
	hmap_put(&m->by_device, key, m->nnewest);
	m->newest[m->nnewest] = (struct newest){.file = r->file};
	return &m->newest[m->nnewest++];
}

/*
 * Was this row passed on from another file? Those without a device stand in the
 * file of each; all of them do where a run was written as csv and as db, or was
 * copied. The files are merged by time, so such a row is not newer than what
 * was passed on; IDs tell those of one moment apart.
 */
static bool is_double(struct readers *m, const struct reader *r)
{
	const struct row *row = r->row;
	struct newest *newest = newest_of(m, r);

	if (row->time_ns > newest->time_ns ||
	    (row->time_ns == newest->time_ns && row->id > newest->id)) {
		*newest = (struct newest){row->time_ns, row->id, r->file};
		return false;
	}
	bool elsewhere = newest->file != r->file;
	/* Nothing is left out for good unless the order was right. */
	if (row->time_ns < newest->time_ns && (elsewhere || row->device == DEV_NONE))
		m->unordered = true;
	if (!elsewhere)
		return false;
	m->doubles += row->device != DEV_NONE;
	return true;
}

static int merge(struct readers *m, const struct input_sink *sink, struct err *err)
{
	bool several = m->n > 1;
	struct progress progress = {0};
	int r = 0;

	while (m->n && r == 0) {
		struct reader *best = several ? earliest(m) : &m->list[0];

		if (!several || !is_double(m, best))
			sink->row(sink->arg, best->row);
		progress_show(&progress, "reading rows", ++m->rows, UINT64_MAX);
		r = next_row(m, best, err);
	}
	progress_done(&progress);
	return r;
}

static int read_dumps(const struct paths *paths, const struct input_sink *sink, unsigned flags,
		      struct err *err)
{
	struct readers m = {0};
	int r = open_readers(&m, paths, sink, flags, err);

	if (r == 0)
		r = merge(&m, sink, err);
	close_readers(&m);
	if (r < 0)
		return r;
	if (!(flags & DUMP_SORTED) && sink->unordered &&
	    (m.unordered || sink->unordered(sink->arg))) {
		sink->restart(sink->arg);
		input_note(sink, "The rows are not in order of time, so they were sorted first.");
		return read_dumps(paths, sink, flags | DUMP_SORTED, err);
	}
	if (m.bad) {
		char text[sizeof(m.first_bad.text) + 128];
		snprintf(text, sizeof(text),
			 m.bad == 1
				 ? "%llu row is malformed and was passed over: %s."
				 : "%llu rows are malformed and were passed over. The first: %s.",
			 (unsigned long long)m.bad, m.first_bad.text);
		input_note(sink, text);
	}
	if (m.doubles) {
		char text[96];
		snprintf(text, sizeof(text),
			 "%llu rows stand in more than one file and were counted once.",
			 (unsigned long long)m.doubles);
		input_note(sink, text);
	}
	if (m.torn)
		input_note(sink, "The file ends in the middle of a row.");
	return 0;
}

/* --- what a path names --- */

static bool is_recording(const char *path)
{
	char magic[sizeof(((struct recording_head *)0)->magic)] = {0};
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	if (fd < 0)
		return false;
	ssize_t n = read(fd, magic, sizeof(magic));
	close(fd);
	return n == (ssize_t)sizeof(magic) && !memcmp(magic, RECORDING_MAGIC, sizeof(magic));
}

static bool is_dump_name(const char *name)
{
	size_t len = strlen(name);

	return !strncmp(name, DUMP_PREFIX, strlen(DUMP_PREFIX)) &&
	       ((len > 4 && !strcmp(name + len - 4, ".csv")) ||
		(len > 3 && !strcmp(name + len - 3, ".db")));
}

static int not_dots(const struct dirent *e)
{
	return e->d_name[0] != '.';
}

static void add_path(struct paths *paths, char *path)
{
	paths->list = xgrow(paths->list, &paths->cap, paths->n + 1, sizeof(char *));
	paths->list[paths->n++] = path;
}

static void release_paths(struct paths *paths)
{
	for (size_t i = 0; i < paths->n; i++)
		free(paths->list[i]);
	free(paths->list);
}

static void find_dumps(const char *dir, unsigned depth, struct paths *out)
{
	struct dirent **list;
	int n = scandir(dir, &list, not_dots, alphasort);

	for (int i = 0; i < n; i++) {
		char *path = xasprintf("%s/%s", dir, list[i]->d_name);
		struct stat st;

		if (lstat(path, &st) == 0 && S_ISDIR(st.st_mode) && depth < MAX_DEPTH)
			find_dumps(path, depth + 1, out);
		else if (is_dump_name(list[i]->d_name))
			add_path(out, xstrdup(path));
		free(path);
		free(list[i]);
	}
	if (n >= 0)
		free(list);
}

int input_dumps(const char *dir, char ***out, size_t *out_n, struct err *err)
{
	struct paths paths = {0};

	find_dumps(dir, 0, &paths);
	*out = paths.list;
	*out_n = paths.n;
	if (!paths.n)
		return err_set(err, -ENOENT,
			       "'%s' holds neither a recording (%s) nor a dump (" DUMP_PREFIX
			       "*.csv or .db)",
			       dir, SESSION_RECORDING);
	return 0;
}

static int read_files(struct paths *paths, const struct input_sink *sink, struct err *err)
{
	int r;

	if (is_recording(paths->list[0]))
		r = input_recording(paths->list[0], sink, err);
	else
		r = read_dumps(paths, sink, 0, err);
	for (size_t i = 0; r == 0 && sink->file && i < paths->n; i++)
		sink->file(sink->arg, paths->list[i], !is_recording(paths->list[i]));
	return r;
}

int input_read(const char *path, const struct input_sink *sink, struct err *err)
{
	struct paths paths = {0};
	struct buf file = {0};
	struct stat st;
	int r = 0;

	if (stat(path, &st) < 0)
		return err_sys(err, -errno, "cannot open '%s'", path);
	if (!S_ISDIR(st.st_mode))
		add_path(&paths, xstrdup(path));
	else if (recording_find(path, &file, NULL) == 0)
		add_path(&paths, xstrdup(buf_str(&file)));
	else
		r = input_dumps(path, &paths.list, &paths.n, err);
	if (r == 0)
		r = read_files(&paths, sink, err);
	release_paths(&paths);
	buf_release(&file);
	return r;
}

/* --- feeding an analysis --- */

struct feeding {
	const struct input_analysis *what;
	struct analysis *analysis;
	struct buf *notes;
	struct input_asked asked;
	bool shown, hidden; /* rows of blocks, that were asked for and that were not */
};

static void feed_row(void *arg, const struct row *row)
{
	struct feeding *f = arg;

	if (row->event == ROW_MALLOC || row->event == ROW_FREE)
		*(row->hidden ? &f->hidden : &f->shown) = true;
	f->analysis->ops->row(f->analysis, row);
}

void input_asked_add(struct input_asked *a, const struct mem_config *cfg, bool own)
{
	if (own && !a->own)
		*a = (struct input_asked){.own = true, .db = a->db};
	a->known = true;
	a->memory |= (cfg->dump_events & MEM_ALLOC) != 0;
	a->host |= cfg->cpu;
	a->db |= cfg->format == MEM_DB;
}

static void feed_session(void *arg, const struct mem_config *cfg)
{
	input_asked_add(&((struct feeding *)arg)->asked, cfg, false);
}

static void feed_config(void *arg, const struct mem_config *cfg)
{
	input_asked_add(&((struct feeding *)arg)->asked, cfg, true);
}

/* Why there may be less than the reader expects. */
static void note_missing(struct feeding *f)
{
	if (f->hidden && !f->shown)
		buf_add_str(f->notes,
			    "Allocations and frees were not asked for (--events), so they are in "
			    "no dump; they were recorded for the analyses alone.\n");
	else if (f->asked.known && !f->asked.memory && !f->hidden && !f->shown)
		buf_add_str(f->notes, "Allocations and frees were not asked for (--events).\n");
	else if (f->asked.known && !f->hidden && !f->shown && !f->asked.host)
		buf_add_str(f->notes,
			    "Tensors on the CPU are recorded with --device=cpu, in Python "
			    "msmemscope.config(device=\"cpu\"): see docs/python.md.\n");
}

static void feed_process(void *arg, uint32_t pid, const char *command)
{
	struct feeding *f = arg;

	if (f->analysis->ops->process)
		f->analysis->ops->process(f->analysis, pid, command);
}

static void feed_lost(void *arg, uint32_t pid, uint64_t events, uint64_t stacks, uint64_t damaged)
{
	struct feeding *f = arg;

	if (events)
		buf_addf(f->notes,
			 "%llu events of process %u are missing: its buffers were full.\n",
			 (unsigned long long)events, pid);
	if (stacks)
		buf_addf(f->notes, "%llu call stacks of process %u are missing.\n",
			 (unsigned long long)stacks, pid);
	if (damaged)
		buf_addf(f->notes, "%llu bytes of process %u are damaged and were passed over.\n",
			 (unsigned long long)damaged, pid);
}

static void feed_note(void *arg, const char *text)
{
	struct feeding *f = arg;

	buf_addf(f->notes, "%s\n", text);
}

static bool feed_unordered(void *arg)
{
	struct feeding *f = arg;

	return f->analysis->ops->unordered && f->analysis->ops->unordered(f->analysis);
}

static void feed_restart(void *arg)
{
	struct feeding *f = arg;

	analysis_free(f->analysis);
	f->analysis = f->what->make(f->what->options);
}

int input_analyse(const char *path, const struct input_analysis *what, struct analysis **out,
		  struct buf *notes, struct err *err)
{
	struct feeding f = {.what = what, .analysis = what->make(what->options), .notes = notes};
	struct input_sink sink = {
		.session = feed_session,
		.config = feed_config,
		.process = feed_process,
		.row = feed_row,
		.lost = feed_lost,
		.note = feed_note,
		.unordered = feed_unordered,
		.restart = feed_restart,
		.arg = &f,
	};
	sink.attrs = f.analysis->ops->attrs;
	int r = input_read(path, &sink, err);

	if (r < 0) {
		analysis_free(f.analysis);
		return r;
	}
	note_missing(&f);
	*out = f.analysis;
	return 0;
}
