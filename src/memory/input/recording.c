/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Rows out of a recording, and what its reader should know of it. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/containers/hmap.h"
#include "base/mem.h"
#include "base/text/number_words.h"
#include "memory/dump/calls.h"
#include "memory/input/input_impl.h"
#include "memory/track/track.h"
#include "recorder/session.h"
#include "wire/control_page.h"
#include "wire/record.h"

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
	bool trace; /* of a running job */
};

static void on_session(void *arg, const struct mem_config *cfg)
{
	struct pids *s = arg;

	if (s->sink->asked)
		mem_asked_add(s->sink->asked, cfg, false);
	s->trace |= cfg->tool == MEM_TOOL_TRACE;
}

static void on_proc(void *arg, const struct frame_proc *p)
{
	struct pids *s = arg;
	struct buf text = {0};

	s->pid = xgrow(s->pid, &s->cap, p->proc + 1u, sizeof(*s->pid));
	s->pid[p->proc] = p->pid;
	readable_command(p->cmdline, sizeof(p->cmdline), &text);
	if (s->sink->process && input_is_chosen(s->sink->choice, p->pid))
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

static void on_gpu(void *arg, uint32_t proc, const struct rec_gpu *r)
{
	struct pids *s = arg;

	(void)proc;
	if (s->sink->asked)
		mem_asked_gpu(s->sink->asked, r);
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
	if (s->sink->row && input_is_chosen(s->sink->choice, row->pid))
		s->sink->row(s->sink->arg, row);
}

static void on_watch(void *arg, uint32_t proc, const struct watch_sample *sample)
{
	struct pids *s = arg;

	if (proc < s->cap && s->sink->watch && input_is_chosen(s->sink->choice, s->pid[proc]))
		s->sink->watch(s->sink->arg, s->pid[proc], sample);
}

static void on_usage(void *arg, uint32_t proc, uint64_t time_ns, const struct rec_usage *u,
		     uint64_t fading_bytes)
{
	struct pids *s = arg;
	struct process_blocks held = {0};

	if (proc >= s->cap || !s->sink->processes || !s->sink->held ||
	    !input_is_chosen(s->sink->choice, s->pid[proc]))
		return;
	(void)s->sink->held(s->sink->arg, s->pid[proc], &held);
	held.bytes += fading_bytes;
	processes_sample(s->sink->processes, s->pid[proc], time_ns, u, &held);
}

static void on_process(void *arg, uint32_t proc, const struct rec_process *r)
{
	struct pids *s = arg;

	struct process_blocks held = {0};

	if (proc >= s->cap || !s->sink->processes)
		return;
	if (s->sink->held && input_is_chosen(s->sink->choice, s->pid[proc]))
		(void)s->sink->held(s->sink->arg, s->pid[proc], &held);
	processes_note(s->sink->processes, s->pid[proc], r, &held);
}

/* Whatever is asked, the answer is about the part that is left. */
static void report_dropped(const struct track *t, const char *file, struct pids *s)
{
	struct dropped alone = {0};
	struct dropped *d = s->sink->processes ? &s->sink->processes->dropped : &alone;
	struct track_cut c;
	struct buf text = {0};
	struct stat st;

	if (!track_cut(t, &c))
		return;
	d->yes = true;
	d->cut = c.cut;
	d->newest_ns = c.newest_ns;
	d->last_step = c.last_step;
	d->recording_bytes = stat(file, &st) == 0 ? (uint64_t)st.st_size : 0;
	if (d != &alone)
		return;
	dropped_text(d, &text);
	text.data[text.len - 1] = '\0';
	input_note(s->sink, "%s", text.data);
	buf_release(&text);
}

static void on_earlier_peak(void *arg, uint32_t proc, const struct track_peak *peak)
{
	struct pids *s = arg;

	if (proc >= s->cap || !s->sink->processes)
		return;
	struct dropped *d = &s->sink->processes->dropped;
	d->peaks = xgrow(d->peaks, &d->cap_peaks, d->npeaks + 1, sizeof(*d->peaks));
	d->peaks[d->npeaks++] = (struct dropped_peak){s->pid[proc], peak->device, peak->type,
						      peak->bytes, peak->time_ns};
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
	if (e->proc >= s->cap || !input_is_chosen(s->sink->choice, s->pid[e->proc]))
		return;
	if (s->sink->loss) {
		s->sink->loss->events += e->lost_events;
		s->sink->loss->stacks += e->lost_stacks;
		s->sink->loss->damaged_bytes += e->damaged;
	}
	if (s->sink->lost)
		s->sink->lost(s->sink->arg, s->pid[e->proc], e->lost_events, e->lost_stacks,
			      e->damaged);
}

/* Processes with filters of system calls (src/guest/runtime/sealed.c). */
static void note_sealed(struct control_page *page, const struct input_sink *sink)
{
	unsigned n = atomic_load(&page->sealed), out = atomic_load(&page->sealed_out);

	if (n)
		input_note(
			sink,
			"%u process%s limited %s system calls (seccomp). From then on sonde made "
			"none in %s: call stacks can be missing, and files were finished after "
			"the end.",
			n, n == 1 ? "" : "es", n == 1 ? "its" : "their", n == 1 ? "it" : "them");
	if (out)
		input_note(sink,
			   "%u process%s could not be recorded at all: %s began under a filter of "
			   "system calls (seccomp) that the job itself had set.",
			   out, out == 1 ? "" : "es", out == 1 ? "it" : "they");
}

/* Programs that bring their own malloc, and sanitizers; that take our memory away. */
static void note_unseen_memory(struct control_page *page, const struct input_sink *sink)
{
	unsigned n = atomic_load(&page->detached);

	if (n)
		input_note(sink,
			   "%u process%s mapped memory of %s own over sonde's buffers, and %s not "
			   "recorded from then on.",
			   n, n == 1 ? "" : "es", n == 1 ? "its" : "their",
			   n == 1 ? "was" : "were");
	n = atomic_load(&page->unseen_heaps);
	if (n)
		input_note(sink,
			   "The host memory of %u process%s was not recorded: %s came with an "
			   "allocator of %s own, or with a sanitizer.",
			   n, n == 1 ? "" : "es", n == 1 ? "it" : "they", n == 1 ? "its" : "their");
}

/* They were on a device that others of the job used, too. */
static void note_outsiders(struct control_page *page, const struct input_sink *sink)
{
	static const char why[] = "without our libraries (a static program, an environment of its "
				  "own), or had not begun to record";
	unsigned n = atomic_load(&page->outsiders), pid = atomic_load(&page->outsider_pid);
	unsigned device = atomic_load(&page->outsider_device);
	struct buf bytes = {0};

	words_bytes(&bytes, (uint64_t)atomic_load(&page->outsider_kib) << 10);
	if (n == 1)
		input_note(sink,
			   "Process %u of this job used %s of device %u and is not in this "
			   "recording: it ran %s.",
			   pid, buf_str(&bytes), device, why);
	else if (n)
		input_note(sink,
			   "%u processes of this job used devices and are not in this recording, "
			   "such as process %u (%s of device %u): they ran %s.",
			   n, pid, buf_str(&bytes), device, why);
	buf_release(&bytes);
}

/* What files could not take, and why. */
static void note_unwritten(struct control_page *page, const struct input_sink *sink, uint64_t lost)
{
	unsigned long long events = page->unwritten, rows = page->rows_lost;
	const char *why = page->write_errno ? strerror((int)page->write_errno) : "unknown";

	if (events)
		input_note(sink, "%llu events could not be written to the recording: %s.", events,
			   why);
	if (lost > events)
		input_note(
			sink,
			"%llu events found no room in the buffers of their processes: --buffer-mb "
			"makes them larger, unless the disk was full.",
			(unsigned long long)lost - events);
	if (rows)
		input_note(
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
		bool copied = page.state == SESSION_COPIED;
		if (n)
			input_note(sink,
				   "%llu process%s could not be recorded at all: there was no room "
				   "for %s buffer%s, %s damaged, or there was no recorder.",
				   n, n == 1 ? "" : "es", n == 1 ? "its" : "their",
				   n == 1 ? "" : "s", n == 1 ? "it is" : "they are");
		note_sealed(&page, sink);
		note_unseen_memory(&page, sink);
		note_outsiders(&page, sink);
		if (live && sink->processes)
			processes_running(sink->processes);
		note_unwritten(&page, sink, lost);
		if (live)
			input_note(sink,
				   "The job is still running: this is what there is so far, and "
				   "the end of a process means now.");
		else if (copied)
			input_note(sink,
				   "This copy was made while the job ran: the end of a process "
				   "means that moment.");
		else if (page.state == SESSION_LIVE)
			input_note(sink, "The recorder was killed before it was done. `sonde mem "
					 "recover` brings back what is left in the buffers.");
		else if (!whole)
			input_note(sink, "The recorder could not write the end of the recording. "
					 "`sonde mem recover` brings back what is left in the "
					 "buffers, and counts the rest.");
		known = !n && !page.sealed_out &&
			(live || copied || (whole && page.state != SESSION_LIVE));
	} else if (!whole) {
		input_note(sink, "The recording has no end, and the file `session` that belongs to "
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
		input_note(
			sink,
			"%llu records of the recording were left out and count as lost: what they "
			"say takes more than the %llu MiB of memory that a recording of this size "
			"may need. It is damaged, or was made to fill memory.",
			(unsigned long long)n, (unsigned long long)(bytes >> 20));
}

int input_read_recording(const char *file, const struct input_sink *sink, struct err *err)
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
				    .gpu = on_gpu,
				    .earlier_peak = on_earlier_peak,
				    .cut = on_cut,
				    .proc_end = on_proc_end,
				    .arg = &pids};
	struct track *t = track_new(&tracks);
	bool torn = false;

	int r = track_file_beside(t, file, sink->beside, &torn, err);
	if (r == 0)
		report_dropped(t, file, &pids);
	if (r == 0 && torn)
		input_note(sink,
			   "The recording is cut off at its end: the job and its recorder were "
			   "killed together, or it is still being written. `sonde mem recover` "
			   "brings back what is left in the buffers.");
	bool known = r == 0 && !torn &&
		     note_session(file, sink, track_is_whole(t), track_is_read(t) ? pids.lost : 0);
	if (r == 0 && pids.trace)
		input_note(sink, "This is a trace of a running job: blocks from before it are "
				 "unknown, and the end of the process means that of the trace.");
	bool more = r == 0 && (!known || !track_loss_is_known(t));
	if (more && sink->lost_more)
		sink->lost_more(sink->arg);
	if (sink->loss) {
		sink->loss->cut_off |= torn;
		sink->loss->more |= more;
		sink->loss->unread_bytes += track_unread(t);
	}
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
