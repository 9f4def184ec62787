/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Dumps: several files are read side by side and merged by time. */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/containers/hmap.h"
#include "base/mem.h"
#include "base/progress.h"
#include "memory/input/input_impl.h"
#include "memory/input/reader.h"
#include "wire/record.h"

#define THREADS_FROM (4 << 20) /* bytes of a file, for there to be something to win */

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

static int open_readers(struct readers *m, const struct input_paths *paths,
			const struct input_sink *sink, unsigned flags, struct err *err)
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

static struct reader *earliest_reader(struct readers *m)
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

static int merge_rows(struct readers *m, const struct input_sink *sink, struct err *err)
{
	bool several = m->n > 1;
	struct progress progress = {0};
	int r = 0;

	while (m->n && r == 0) {
		struct reader *best = several ? earliest_reader(m) : &m->list[0];

		if (sink->row && (!several || !is_double(m, best)) &&
		    input_is_chosen(sink->choice, best->row->pid))
			sink->row(sink->arg, best->row);
		progress_show(&progress, "reading rows", ++m->rows, UINT64_MAX);
		r = next_row(m, best, err);
	}
	progress_done(&progress);
	return r;
}

static int read_rows(const struct input_paths *paths, const struct input_sink *sink, unsigned flags,
		     struct err *err)
{
	struct readers m = {0};
	int r = open_readers(&m, paths, sink, flags, err);

	if (r == 0)
		r = merge_rows(&m, sink, err);
	close_readers(&m);
	if (r < 0)
		return r;
	if (!(flags & DUMP_SORTED) && sink->unordered &&
	    (m.unordered || sink->unordered(sink->arg))) {
		sink->restart(sink->arg);
		input_note(sink, "The rows are not in order of time, so they were sorted first.");
		return read_rows(paths, sink, flags | DUMP_SORTED, err);
	}
	if (m.bad)
		input_note(sink,
			   m.bad == 1
				   ? "%llu row is malformed and was passed over: %s."
				   : "%llu rows are malformed and were passed over. The first: %s.",
			   (unsigned long long)m.bad, m.first_bad.text);
	if (m.doubles)
		input_note(sink, "%llu rows stand in more than one file and were counted once.",
			   (unsigned long long)m.doubles);
	if (m.torn)
		input_note(sink, "The file ends in the middle of a row.");
	if (sink->loss) {
		sink->loss->bad_rows += m.bad;
		sink->loss->cut_off |= m.torn;
	}
	return 0;
}

int input_read_dumps(const struct input_paths *paths, const struct input_sink *sink,
		     struct err *err)
{
	return read_rows(paths, sink, 0, err);
}
