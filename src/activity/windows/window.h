/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A window of a monitor or a trace, and the ops by which it writes: metrics, files, a trace. All of
 * one recorder are used by its thread alone.
 */
#ifndef SONDE_ACTIVITY_WINDOWS_WINDOW_H
#define SONDE_ACTIVITY_WINDOWS_WINDOW_H

#include "activity/files/activity.h"
#include "activity/windows/windows.h"
#include "wire/request.h"

struct window_ops;

/* From MONITOR_START to MONITOR_STOP, or to the end of the process. */
struct window {
	uint32_t proc; /* number in the recording */
	uint32_t pid;
	uint32_t shown_pid; /* in /proc, as we see it; 0: not there */
	const struct frame_proc *process; /* NULL: not known */
	int32_t rank;
	uint64_t id;
	uint64_t start_ns; /* wall clock */
	uint64_t since_ns; /* what ended before is of no window: start_ns, or the beginning of the
			    * one in another session that goes on here */
	int64_t wall_minus_mono_ns;
	char *text; /* of the request, which points into it */
	size_t text_len;
	enum request_kind kind;
	struct monitor_request monitor; /* of REQUEST_MONITOR */
	struct trace_request trace; /* of REQUEST_TRACE */
	char *groups; /* parallel_group_info, NULL */
	uint64_t lost; /* activities that did not come */
	uint64_t incomplete; /* marks that did not become a range or an instant */
	uint64_t crowded; /* activities that are in no sum: there are too many devices */
	uint64_t unwritten; /* activities that did not get into their file */
	const uint64_t *seen; /* activities that have come so far, of all processes, */
	uint64_t written; /* and how many of them nobody can take from this window any more */
	bool killed; /* the process has ended without closing it */
	const struct window_ops *ops;
	void *state; /* of the ops; where a recording is read the reader's, before open() */
	struct texts *names; /* of the process; see window_name() */
	struct sender *to; /* activity/live/daemon_queue.h: the daemon of a monitor; NULL: none */
};

/* Any but open and close may be NULL. */
struct window_ops {
	/* Fails: the window is followed but writes nothing. */
	int (*open)(struct window *w, struct err *err);
	void (*change)(struct window *w); /* w->monitor is another one */
	/* Filtered; markers are ranges or instants by now. */
	void (*activity)(struct window *w, const struct activity *a);
	void (*step)(struct window *w, uint64_t step, uint64_t wall_ns); /* begins now */
	/* Nothing from now on is of it: somebody did not want to wait for its last step. */
	void (*end)(struct window *w, uint64_t wall_ns);
	/* "KEY words": what of its request is not carried out; any bytes. */
	void (*note)(struct window *w, const char *text, size_t len);
	/* Every other record of the process: memory, calls, marks, stacks; r->time_ns is monotonic.
	 */
	void (*record)(struct window *w, uint32_t tid, const struct rec *r);
	void (*tick)(struct window *w, uint64_t now_mono_ns);
	void (*flush)(struct window *w);
	/*
	 * Texts that were not used for long are about to go: nothing may point to a text after
	 * this. NULL: it holds on to them, and while it is open the process cannot have more names
	 * than there is room for.
	 */
	void (*forget)(struct window *w);
	void (*close)(struct window *w);
};

/* The text behind a hash that the process reported (REC_NAME), before the window or in it; never
 * NULL, valid UTF-8, lives as the texts of a struct activity. */
const char *window_name(struct window *w, uint64_t hash);

extern const struct window_ops window_metrics; /* activity/live/metrics.c: to the daemon */
extern const struct window_ops window_file; /* activity/windows/file.c: DB or Jsonl */
extern const struct window_ops window_recorded; /* activity/windows/record.c: `sonde record` */
extern const struct window_ops window_trace; /* activity/trace/trace.c: nputrace */
bool window_trace_writes(void); /* something that has closed is not in its files yet */
void window_trace_wait(void); /* until all that has closed is in its files */

#endif
