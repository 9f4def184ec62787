/* SPDX-License-Identifier: MulanPSL-2.0 */
/* A process and its windows that are open; inside activity/windows. */
#ifndef SONDE_ACTIVITY_WINDOWS_PROCESS_H
#define SONDE_ACTIVITY_WINDOWS_PROCESS_H

#include "activity/live/daemon_queue.h"
#include "activity/live/top_report.h"
#include "activity/windows/attribution.h"
#include "activity/windows/marks.h"
#include "activity/windows/names.h"
#include "activity/windows/window.h"
#include "base/containers/buf.h"

#include <stdbool.h>
#include <stdint.h>

#define MAX_WINDOWS 8u /* of a process at a time */
#define MAX_GROUPS_BYTES (1u << 20)

/* What the filter says about the names of a kind, by their ids: 0 not asked yet. */
enum filter_answer { FILTER_UNKNOWN, FILTER_KEEP, FILTER_DROP };

struct filter_answers {
	uint8_t *by_id;
	size_t n;
};

struct open_window {
	struct window w;
	struct open_window *next;
	bool failed; /* it writes nothing */
	struct top *top; /* what `sonde top` is sent of a monitor; NULL: it is a trace */
	bool attributes; /* to modules and lines */
	uint32_t kinds; /* that it wants */
	struct request_text filter;
	struct filter_answers answers[ACTIVITY_KIND_END];
	struct marks marks;
	/* activities: of kinds that it does not want; that the filter does not let through; that
	 * had ended before; with times that cannot be */
	uint64_t received, unwanted, filtered, early, absurd;
};

/* One process. */
struct process {
	struct process *next;
	uint32_t number, pid;
	uint32_t shown_pid; /* in /proc, as we see it; 0: not there */
	struct frame_proc frame;
	struct texts names;
	struct open_window *windows;
	unsigned nwindows;
	uint64_t lost; /* events so far, as its counts say */
	bool counted; /* there are such counts */
	uint64_t refused; /* windows that were not opened, or write nothing */
	uint64_t unread; /* requests for a change that could not be read */
	struct buf request; /* pieces that have come */
	bool request_too_long;
	struct buf groups;
	bool groups_whole; /* the next piece begins another text */
	struct buf places; /* records REC_PYTHON */
	struct senders *senders; /* of all processes */
	const struct window_ops *reader; /* NULL, or who reads a recording */
	void *reader_arg;
	struct buf ahead; /* records REC_ACTIVITY: a window that goes on here has not come yet */
	uint64_t too_many_ahead; /* for which there was no room */
	uint64_t seen_before; /* activities of all processes, when the first of these came */
	struct attribution *attribution; /* NULL: no window wants it */
	struct buf held; /* records REC_ACTIVITY whose launches have not been reported yet */
};

/* 0 and the end of time are what a sum that does not fit becomes. */
static inline uint64_t wall_of(uint64_t mono_ns, int64_t wall_minus_mono_ns)
{
	int64_t ns;

	if (mono_ns > INT64_MAX ||
	    __builtin_add_overflow((int64_t)mono_ns, wall_minus_mono_ns, &ns))
		return INT64_MAX;
	return ns < 0 ? 0 : (uint64_t)ns;
}

/* The request is what p->request holds. */
void process_open_window(struct process *p, const struct window *w);
void process_change_window(struct process *p, struct open_window *f);
void process_close_window(struct process *p, struct open_window *f, bool killed);

/*
 * A process that moves to this session reports activities before it reports what they are for. What
 * comes behind the end of a window and before the next order is nobody's. `seen`: how many of all
 * processes came before.
 */
void process_keep_ahead(struct process *p, const struct rec *r, uint64_t seen);
void process_replay_ahead(struct process *p, bool goes_on);

/* owner: NULL: nobody, or it is not known. */
void open_window_add(struct open_window *f, const struct rec_activity *r,
		     const struct activity_owner *owner);
/* The answers of the filter are forgotten. */
void open_window_reset_filter(struct open_window *f);

#endif
