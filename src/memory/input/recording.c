/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Rows of a recording. */
#include "memory/input/input_impl.h"

#include "base/containers/hmap.h"
#include "base/mem.h"
#include "memory/dump/calls.h"
#include "memory/outputs/replay.h"
#include "memory/track/track.h"
#include "recorder/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
	const struct input_sink *sink;
	uint32_t *pid; /* of each process number */
	size_t cap;
	uint64_t calls;
	struct hmap threads; /* that made some: process and thread */
	uint64_t newest; /* of them */
};

static void on_session(void *arg, const struct mem_config *cfg)
{
	struct pids *s = arg;

	if (s->sink->session)
		s->sink->session(s->sink->arg, cfg);
}

static void on_proc(void *arg, const struct frame_proc *p)
{
	struct pids *s = arg;
	struct buf text = {0};

	s->pid = xgrow(s->pid, &s->cap, p->proc + 1u, sizeof(*s->pid));
	s->pid[p->proc] = p->pid;
	readable(p->cmdline, sizeof(p->cmdline), &text);
	if (s->sink->process)
		s->sink->process(s->sink->arg, p->pid, buf_str(&text));
	buf_release(&text);
}

static void on_config(void *arg, uint32_t proc, const struct mem_config *cfg)
{
	struct pids *s = arg;

	(void)proc;
	if (s->sink->config)
		s->sink->config(s->sink->arg, cfg);
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

static void on_proc_end(void *arg, const struct frame_proc_end *e)
{
	struct pids *s = arg;

	if (e->proc < s->cap && s->sink->lost)
		s->sink->lost(s->sink->arg, s->pid[e->proc], e->lost_events, e->lost_stacks,
			      e->damaged);
}

/* What the control page beside the recording knows and its frames cannot say.
 */
static void note_session(const char *file, const struct input_sink *sink)
{
	const char *slash = strrchr(file, '/');
	char *dir = slash ? xstrndup(file, (size_t)(slash - file)) : xstrdup(".");
	struct control_page *page;
	char text[256];

	if (session_map(dir, false, &page, NULL) == 0) {
		unsigned long long n = atomic_load(&page->unrecorded);
		if (n) {
			snprintf(text, sizeof(text),
				 "%llu process%s could not be recorded at all: there was no room "
				 "for %s buffer%s, or no recorder.",
				 n, n == 1 ? "" : "es", n == 1 ? "its" : "their",
				 n == 1 ? "" : "s");
			input_note(sink, text);
		}
		n = atomic_load(&page->rows_lost);
		if (n) {
			snprintf(text, sizeof(text),
				 "The dump files lack %llu rows that could not be written, which "
				 "this "
				 "recording has: `sonde mem export` writes them anew.",
				 n);
			input_note(sink, text);
		}
		if (atomic_load(&page->state) == SESSION_LIVE && !session_is_live(dir, page))
			input_note(sink, "The recorder was killed before it was done. `sonde mem "
					 "recover` brings back what is left in the buffers.");
		else if (atomic_load(&page->state) == SESSION_LIVE)
			input_note(sink,
				   "The job is still running: this is what there is so far, and "
				   "the end of a process means now.");
		session_unmap(page);
	}
	free(dir);
}

int input_recording(const char *file, const struct input_sink *sink, struct err *err)
{
	struct pids pids = {.sink = sink};
	struct track_sink tracks = {.session = on_session,
				    .proc = on_proc,
				    .config = on_config,
				    .row = on_row,
				    .watch = on_watch,
				    .call = on_call,
				    .proc_end = on_proc_end,
				    .arg = &pids};
	struct track *t = track_new(&tracks);
	bool torn = false;

	int r = replay_recording(file, t, &torn, err);
	if (r == 0 && torn)
		input_note(sink,
			   "The recording is cut off at its end: the job and its recorder were "
			   "killed together, or it is still being written. `sonde mem recover` "
			   "brings back what is left in the buffers.");
	if (r == 0 && !torn)
		note_session(file, sink);
	if (r == 0 && sink->calls)
		sink->calls(sink->arg, pids.calls, pids.threads.count);
	track_free(t);
	hmap_release(&pids.threads);
	free(pids.pid);
	return r;
}
