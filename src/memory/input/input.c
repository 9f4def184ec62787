/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/input/input.h"

#include "base/containers/hmap.h"
#include "base/fs.h"
#include "base/mem.h"
#include "base/progress.h"
#include "memory/dump/calls.h"
#include "memory/input/reader.h"
#include "memory/track/track.h"
#include "recorder/recording.h"
#include "recorder/session.h"
#include "wire/control_page.h"
#include "wire/record.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define DUMP_PREFIX "memscope_dump_"
#define THREADS_FROM (4 << 20) /* bytes of a file, for there to be something to win */
#define MAX_DEPTH 8 /* of directories below the one that was named */

__attribute__((format(printf, 2, 3))) static void add_note(const struct input_sink *sink,
							   const char *fmt, ...)
{
	char *text = NULL;
	va_list args;

	va_start(args, fmt);
	if (sink->note && vasprintf(&text, fmt, args) >= 0)
		sink->note(sink->arg, text);
	va_end(args);
	free(text);
}

/* --- dumps: several files are read side by side and merged by time --- */

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

		if (!several || !is_double(m, best))
			sink->row(sink->arg, best->row);
		progress_show(&progress, "reading rows", ++m->rows, UINT64_MAX);
		r = next_row(m, best, err);
	}
	progress_done(&progress);
	return r;
}

static int read_dumps(const struct input_paths *paths, const struct input_sink *sink,
		      unsigned flags, struct err *err)
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
		add_note(sink, "The rows are not in order of time, so they were sorted first.");
		return read_dumps(paths, sink, flags | DUMP_SORTED, err);
	}
	if (m.bad)
		add_note(sink,
			 m.bad == 1
				 ? "%llu row is malformed and was passed over: %s."
				 : "%llu rows are malformed and were passed over. The first: %s.",
			 (unsigned long long)m.bad, m.first_bad.text);
	if (m.doubles)
		add_note(sink, "%llu rows stand in more than one file and were counted once.",
			 (unsigned long long)m.doubles);
	if (m.torn)
		add_note(sink, "The file ends in the middle of a row.");
	return 0;
}

/* --- recordings --- */

/* Arguments of a process as one readable line. */
static void readable_command(const char *cmdline, size_t size, struct buf *out)
{
	size_t len = size;

	while (len && !cmdline[len - 1])
		len--;
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)cmdline[i];
		buf_add_char(out, c == 0 ? ' ' : c < 32 || c == 127 ? '?' : (char)c);
	}
}

struct pids {
	const struct input_sink *sink;
	uint32_t *pid; /* of each process number */
	size_t cap;
	uint64_t calls;
	struct hmap threads; /* that made some: process and thread */
	uint64_t newest; /* of them */
	bool cut; /* the processes whose end comes now have none in the recording */
	uint64_t lost; /* events */
};

static void on_session(void *arg, const struct mem_config *cfg)
{
	struct pids *s = arg;

	if (s->sink->asked)
		mem_asked_add(s->sink->asked, cfg, false);
}

static void on_proc(void *arg, const struct frame_proc *p)
{
	struct pids *s = arg;
	struct buf text = {0};

	s->pid = xgrow(s->pid, &s->cap, p->proc + 1u, sizeof(*s->pid));
	s->pid[p->proc] = p->pid;
	readable_command(p->cmdline, sizeof(p->cmdline), &text);
	if (s->sink->process)
		s->sink->process(s->sink->arg, p->pid, buf_str(&text));
	if (s->sink->processes)
		processes_add(s->sink->processes, p, buf_str(&text));
	buf_release(&text);
}

static void on_config(void *arg, uint32_t proc, const struct mem_config *cfg)
{
	struct pids *s = arg;

	(void)proc;
	if (s->sink->asked)
		mem_asked_add(s->sink->asked, cfg, true);
}

static void on_call(void *arg, uint32_t proc, const struct trace_row *row)
{
	struct pids *s = arg;

	if (!row)
		return;
	uint64_t thread = (uint64_t)proc << 32 | row->tid;
	if (!s->calls++ || thread != s->newest)
		hmap_put(&s->threads, thread, 1);
	s->newest = thread;
}

static void on_row(void *arg, uint32_t proc, const struct row *row)
{
	struct pids *s = arg;

	(void)proc;
	if (s->sink->row)
		s->sink->row(s->sink->arg, row);
}

static void on_watch(void *arg, uint32_t proc, const struct watch_sample *sample)
{
	struct pids *s = arg;

	if (proc < s->cap && s->sink->watch)
		s->sink->watch(s->sink->arg, s->pid[proc], sample);
}

static void on_usage(void *arg, uint32_t proc, uint64_t time_ns, const struct rec_usage *u,
		     uint64_t fading_bytes)
{
	struct pids *s = arg;
	struct process_blocks held = {0};

	if (proc >= s->cap || !s->sink->processes || !s->sink->held)
		return;
	(void)s->sink->held(s->sink->arg, s->pid[proc], &held);
	held.bytes += fading_bytes;
	processes_sample(s->sink->processes, s->pid[proc], time_ns, u, &held);
}

static void on_process(void *arg, uint32_t proc, const struct rec_process *r)
{
	struct pids *s = arg;

	if (proc < s->cap && s->sink->processes)
		processes_note(s->sink->processes, s->pid[proc], r);
}

static void on_cut(void *arg)
{
	((struct pids *)arg)->cut = true;
}

static void on_proc_end(void *arg, const struct frame_proc_end *e)
{
	struct pids *s = arg;

	if (e->proc < s->cap && s->sink->processes)
		processes_end(s->sink->processes, s->pid[e->proc], !s->cut);
	s->lost += e->lost_events;
	if (e->proc < s->cap && s->sink->lost)
		s->sink->lost(s->sink->arg, s->pid[e->proc], e->lost_events, e->lost_stacks,
			      e->damaged);
}

/* Processes with filters of system calls (src/guest/runtime/sealed.c). */
static void note_sealed(struct control_page *page, const struct input_sink *sink)
{
	unsigned n = atomic_load(&page->sealed), out = atomic_load(&page->sealed_out);

	if (n)
		add_note(sink,
			 "%u process%s limited %s system calls (seccomp). From then on sonde made "
			 "none in %s: call stacks can be missing, and files were finished after "
			 "the end.",
			 n, n == 1 ? "" : "es", n == 1 ? "its" : "their", n == 1 ? "it" : "them");
	if (out)
		add_note(sink,
			 "%u process%s could not be recorded at all: %s began under a filter of "
			 "system calls (seccomp) that the job itself had set.",
			 out, out == 1 ? "" : "es", out == 1 ? "it" : "they");
}

/* Programs that bring their own malloc, and sanitizers; that take our memory away. */
static void note_unseen_memory(struct control_page *page, const struct input_sink *sink)
{
	unsigned n = atomic_load(&page->detached);

	if (n)
		add_note(sink,
			 "%u process%s mapped memory of %s own over sonde's buffers, and %s not "
			 "recorded from then on.",
			 n, n == 1 ? "" : "es", n == 1 ? "its" : "their", n == 1 ? "was" : "were");
	n = atomic_load(&page->unseen_heaps);
	if (n)
		add_note(sink,
			 "The host memory of %u process%s was not recorded: %s came with an "
			 "allocator of %s own, or with a sanitizer.",
			 n, n == 1 ? "" : "es", n == 1 ? "it" : "they", n == 1 ? "its" : "their");
}

/* What files could not take, and why. */
static void note_unwritten(struct control_page *page, const struct input_sink *sink, uint64_t lost)
{
	unsigned long long events = page->unwritten, rows = page->rows_lost;
	const char *why = page->write_errno ? strerror((int)page->write_errno) : "unknown";

	if (events)
		add_note(sink, "%llu events could not be written to the recording: %s.", events,
			 why);
	if (lost > events)
		add_note(sink,
			 "%llu events found no room in the buffers of their processes: --buffer-mb "
			 "makes them larger, unless the disk was full.",
			 (unsigned long long)lost - events);
	if (rows)
		add_note(
			sink, "The dump files lack %llu rows%s%s. %s", rows,
			page->dump_errno ? " that could not be written: " : "",
			page->dump_errno ? strerror((int)page->dump_errno) : "",
			events ? "This recording has more of them, but not all: `sonde mem export` "
				 "writes those it has."
			       : "This recording has them: `sonde mem export` writes them anew.");
}

/* What the control page beside the recording knows and its frames cannot say. False: how much is
 * missing is unknown. */
static bool note_session(const char *file, const struct input_sink *sink, bool whole, uint64_t lost)
{
	const char *slash = strrchr(file, '/');
	char *dir = slash ? xstrndup(file, (size_t)(slash - file)) : xstrdup(".");
	struct control_page page;
	bool known = whole;

	if (session_read(dir, &page, NULL) == 0) {
		unsigned long long n = page.unrecorded;
		bool live = page.state == SESSION_LIVE && session_is_live(dir, &page);
		if (n)
			add_note(sink,
				 "%llu process%s could not be recorded at all: there was no room "
				 "for %s buffer%s, %s damaged, or there was no recorder.",
				 n, n == 1 ? "" : "es", n == 1 ? "its" : "their", n == 1 ? "" : "s",
				 n == 1 ? "it is" : "they are");
		note_sealed(&page, sink);
		note_unseen_memory(&page, sink);
		if (live && sink->processes)
			processes_running(sink->processes);
		note_unwritten(&page, sink, lost);
		if (live)
			add_note(sink,
				 "The job is still running: this is what there is so far, and "
				 "the end of a process means now.");
		else if (page.state == SESSION_LIVE)
			add_note(sink, "The recorder was killed before it was done. `sonde mem "
				       "recover` brings back what is left in the buffers.");
		else if (!whole)
			add_note(sink, "The recorder could not write the end of the recording. "
				       "`sonde mem recover` brings back what is left in the "
				       "buffers, and counts the rest.");
		known = !n && !page.sealed_out && (live || (whole && page.state != SESSION_LIVE));
	} else if (!whole) {
		add_note(sink, "The recording has no end, and the file `session` that belongs to "
			       "it cannot be read: it was copied while it was written, or its "
			       "recorder was killed.");
	}
	free(dir);
	return known;
}

static void note_refused(const struct track *t, const struct input_sink *sink)
{
	uint64_t bytes, n = track_refused(t, &bytes);

	if (n)
		add_note(sink,
			 "%llu records of the recording were left out and count as lost: what they "
			 "say takes more than the %llu MiB of memory that a recording of this size "
			 "may need. It is damaged, or was made to fill memory.",
			 (unsigned long long)n, (unsigned long long)(bytes >> 20));
}

static int read_recording(const char *file, const struct input_sink *sink, struct err *err)
{
	struct pids pids = {.sink = sink};
	struct track_sink tracks = {.session = on_session,
				    .proc = on_proc,
				    .config = on_config,
				    .row = on_row,
				    .watch = on_watch,
				    .call = on_call,
				    .usage = on_usage,
				    .process = on_process,
				    .cut = on_cut,
				    .proc_end = on_proc_end,
				    .arg = &pids};
	struct track *t = track_new(&tracks);
	bool torn = false;

	int r = track_file(t, file, &torn, err);
	if (r == 0 && torn)
		add_note(sink, "The recording is cut off at its end: the job and its recorder were "
			       "killed together, or it is still being written. `sonde mem recover` "
			       "brings back what is left in the buffers.");
	bool known = r == 0 && !torn &&
		     note_session(file, sink, track_is_whole(t), track_is_read(t) ? pids.lost : 0);
	if (r == 0 && (!known || !track_loss_is_known(t)) && sink->lost_more)
		sink->lost_more(sink->arg);
	if (r == 0 && sink->note)
		track_damage_words(t, sink->note, sink->arg);
	if (r == 0)
		note_refused(t, sink);
	if (r == 0 && sink->calls)
		sink->calls(sink->arg, pids.calls, pids.threads.count);
	track_free(t);
	hmap_release(&pids.threads);
	free(pids.pid);
	return r;
}

/* --- what a path names --- */

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

	return !strncmp(name, DUMP_PREFIX, strlen(DUMP_PREFIX)) &&
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
		r = read_recording(paths->list[0], sink, err);
	else
		r = read_dumps(paths, sink, 0, err);
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
