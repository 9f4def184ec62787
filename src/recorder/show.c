/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "recorder/show.h"

#include "analyze/summary.h"
#include "base/mem.h"
#include "base/progress.h"
#include "export/dump_reader.h"
#include "recorder/replay.h"
#include "recorder/session.h"
#include "wire/recording.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Arguments of a process as one readable line. */
static void readable(const char *cmdline, size_t size, struct buf *out)
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
	struct summary *summary;
	uint32_t *pid; /* of each process number */
	size_t cap;
};

static void on_proc(void *arg, const struct frame_proc *p)
{
	struct pids *s = arg;
	struct buf text = {0};

	s->pid = xgrow(s->pid, &s->cap, p->proc + 1u, sizeof(*s->pid));
	s->pid[p->proc] = p->pid;
	readable(p->cmdline, sizeof(p->cmdline), &text);
	summary_process(s->summary, p->pid, buf_str(&text));
	buf_release(&text);
}

static void on_row(void *arg, uint32_t proc, const struct row *row)
{
	struct pids *s = arg;

	(void)proc;
	summary_add(s->summary, row);
}

static void on_proc_end(void *arg, const struct frame_proc_end *e)
{
	struct pids *s = arg;

	if (e->proc < s->cap)
		summary_lost(s->summary, s->pid[e->proc], e->lost_events, e->lost_stacks,
			     e->damaged);
}

/* What the control page beside the recording knows and its frames cannot say. */
static void note_session(const char *file, struct summary *s)
{
	const char *slash = strrchr(file, '/');
	char *dir = slash ? xstrndup(file, (size_t)(slash - file)) : xstrdup(".");
	struct session_page *page;
	char text[256];

	if (session_map(dir, false, &page, NULL) == 0) {
		unsigned long long n = atomic_load(&page->unrecorded);
		if (n) {
			snprintf(text, sizeof(text),
				 "%llu process%s could not be recorded at all: there was no room "
				 "for %s buffer%s, or no recorder.",
				 n, n == 1 ? "" : "es", n == 1 ? "its" : "their",
				 n == 1 ? "" : "s");
			summary_note(s, text);
		}
		n = atomic_load(&page->rows_lost);
		if (n) {
			snprintf(text, sizeof(text),
				 "The dump files lack %llu rows that could not be written, which "
				 "this "
				 "recording has: `sonde mem export` writes them anew.",
				 n);
			summary_note(s, text);
		}
		if (atomic_load(&page->state) == SESSION_LIVE && !session_is_live(dir, page))
			summary_note(s, "The recorder was killed before it was done. `sonde mem "
					"recover` brings back what is left in the buffers.");
		else if (atomic_load(&page->state) == SESSION_LIVE)
			summary_note(s,
				     "The job is still running: this is what there is so far, and "
				     "the end of a process means now.");
		session_unmap(page);
	}
	free(dir);
}

static int from_recording(const char *file, struct summary *s, struct err *err)
{
	struct pids pids = {.summary = s};
	struct track_sink sink = {
		.proc = on_proc, .row = on_row, .proc_end = on_proc_end, .arg = &pids};
	struct track *t = track_new(&sink);
	bool torn = false;

	int r = replay_recording(file, t, &torn, err);
	if (r == 0 && torn)
		summary_note(s,
			     "The recording is cut off at its end: the job and its recorder were "
			     "killed together, or it is still being written. `sonde mem recover` "
			     "brings back what is left in the buffers.");
	if (r == 0 && !torn)
		note_session(file, s);
	track_free(t);
	free(pids.pid);
	return r;
}

static int from_dump(const char *path, struct summary *s, struct err *err)
{
	struct progress progress = {0};
	struct dump *d;
	struct row row;
	uint64_t rows = 0;

	int r = dump_open(path, DUMP_SKIP_BAD, &d, err);
	if (r < 0)
		return r;
	while ((r = dump_next(d, &row, err)) > 0) {
		summary_add(s, &row);
		progress_show(&progress, "reading rows", ++rows, UINT64_MAX);
	}
	progress_done(&progress);
	if (dump_bad_rows(d)) {
		char text[128];
		snprintf(text, sizeof(text), "%llu rows are malformed and were passed over.",
			 (unsigned long long)dump_bad_rows(d));
		summary_note(s, text);
	}
	if (dump_torn(d))
		summary_note(s, "The file ends in the middle of a row.");
	dump_close(d);
	return r;
}

static bool is_recording(const char *path)
{
	char magic[sizeof(((struct recording_head *)0)->magic)] = {0};
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return false;
	ssize_t n = read(fd, magic, sizeof(magic));
	close(fd);
	return n == (ssize_t)sizeof(magic) && !memcmp(magic, RECORDING_MAGIC, sizeof(magic));
}

int show_recording(const char *path, bool json, unsigned top, bool colour, struct buf *out,
		   struct err *err)
{
	struct summary *s = summary_new();
	struct buf file = {0};

	int r = replay_find(path, &file, err);
	if (r == 0 && is_recording(buf_str(&file)))
		r = from_recording(buf_str(&file), s, err);
	else if (r == 0)
		r = from_dump(buf_str(&file), s, err);
	if (r == 0 && json)
		r = summary_json(s, top, out);
	else if (r == 0)
		summary_text(s, top, colour, out);
	buf_release(&file);
	summary_free(s);
	return r;
}
