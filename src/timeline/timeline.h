/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * One file of what all ranks did, on one clock: memory recordings, activities of devices, stacks and
 * traces of others, merged. Readers (memory_source.c, activity_source.c, chrome_source.c) put events on
 * tracks here; the file is a protobuf of Perfetto or a Chrome trace. It is written as events come.
 *
 * Tracks are a tree: host (if there are several), process in the order of ranks, groups, tracks.
 */
#ifndef SONDE_TIMELINE_TIMELINE_H
#define SONDE_TIMELINE_TIMELINE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/containers/buf.h"
#include "base/err.h"
#include "formats/chrome_trace/chrome_trace.h"
#include "wire/record.h"

struct timeline;
struct timeline_process;
struct timeline_track;
struct timeline_clocks;

struct timeline_options {
	const char *path;
	bool json; /* a Chrome trace instead of protobuf */
	bool gzip;
	uint64_t from_ns, to_ns; /* wall clock; what lies outside is left out. 0: no limit */
	/* Steps whose time is to be found (timeline_counts.steps_*); last_step 0: none. */
	uint64_t first_step, last_step;
	/* Ranks that are wanted; NULL: all processes. */
	const bool *ranks;
	size_t nranks;
	struct explain *explain; /* counts what is shown; NULL: nobody does (timeline/explain.h) */
	/* Of several hosts: whose clocks are put on one; NULL: times are as they are. Borrowed. */
	const struct timeline_clocks *clocks;
};

struct timeline_counts {
	uint64_t slices, instants, counters, arrows;
	uint64_t outside; /* not in the time or the ranks that were asked for */
	uint64_t left_out; /* slices that overlap too many others */
	uint64_t bytes;
	unsigned processes, tracks;
	uint64_t first_ns, last_ns;
	/* From the beginning of the first of the steps that were asked for to the end of the last, of
	 * any process; 0, 0: there are none of them. */
	uint64_t steps_start_ns, steps_end_ns;
};

int timeline_new(const struct timeline_options *o, struct timeline **out, struct err *err);
/* Frees the timeline in any case. */
int timeline_close(struct timeline *t, struct timeline_counts *out, struct err *err);

/* --- tracks --- */

/* The process; NULL: it is of no rank that was asked for. host may be NULL: there is one. The first
 * known rank and command of a process count. */
struct timeline_process *timeline_process(struct timeline *t, const char *host, uint32_t pid,
					  int32_t rank, const char *command);

/* What is known of a process by who has looked at its whole job, before its first use: workers of data
 * loaders and launchers may have the rank of another in their environment. */
void timeline_note_role(struct timeline *t, const char *host, uint32_t pid, enum sampled_role role,
			int32_t rank);

/* Groups of a process, in the order in which they are shown. */
enum timeline_group {
	GROUP_NONE, /* directly below the process: steps */
	GROUP_DEVICE, /* `number`: which */
	GROUP_MEMORY,
	GROUP_HOST, /* calls of threads */
	GROUP_MARKS,
	GROUP_PYTHON,
	GROUP_COUNTERS,
};

struct timeline_place {
	enum timeline_group group;
	uint32_t number; /* of the group */
	const char *group_name; /* interned; or NULL: the usual one */
	int32_t order; /* within the group, lower ones above; and what tells tracks apart: */
	uint64_t id;
	enum { TRACK_SLICES, TRACK_COUNTER, TRACK_BYTES } kind;
};
/* The track at a place; name is used when it is new. */
struct timeline_track *timeline_track(struct timeline_process *p,
				      const struct timeline_place *where, const char *name);

/* --- events: times of the wall clock, in any order within reason --- */

#define TIMELINE_MAX_ARGS 10

/* What a slice is to those who count. */
enum timeline_role {
	ROLE_NONE,
	ROLE_COMPUTE, /* of a device: work */
	ROLE_COMM,
	ROLE_COPY,
	ROLE_PYTHON, /* of a thread of the host: a function, */
	ROLE_CALL, /* a call of a library, */
	ROLE_RANGE, /* an operator or a range of the program */
};

struct timeline_event {
	const char *name; /* interned */
	const char *category; /* of Chrome traces; may be NULL */
	const struct chrome_arg *args;
	unsigned nargs; /* more than TIMELINE_MAX_ARGS are left out; keys and texts are interned */
	unsigned track_args; /* of these, the last ones: what the names of tracks say, too */
	uint64_t flow; /* arrows connect events of the same number; 0: none */
	bool flow_end; /* the arrow ends here */
	enum timeline_role role; /* ROLE_NONE: as the category says, if that is "python_function" */
	uint32_t device; /* of work */
	uint64_t thread; /* of the host: its number; 0: that of the track's place */
	/* Of a function: "FILE(LINE): NAME", interned. NULL: as it is shown, with its arguments "file"
	 * and "line" if there are. */
	const char *full_name;
	int32_t caller_line; /* at which its caller has called it; 0: not known */
};

/* Slices that do not nest get a track beside it. */
void timeline_slice(struct timeline_track *k, uint64_t start_ns, uint64_t end_ns,
		    const struct timeline_event *e);
void timeline_instant(struct timeline_track *k, uint64_t time_ns, const struct timeline_event *e);
void timeline_counter(struct timeline_track *k, uint64_t time_ns, double value);
/* Slices whose end is not known yet: strictly in order of time, and alone on their track. */
void timeline_begin(struct timeline_track *k, uint64_t time_ns, const struct timeline_event *e);
void timeline_end(struct timeline_track *k, uint64_t time_ns);

/* A step of a process began, ended, or both (else 0). */
void timeline_note_step(struct timeline_process *p, uint64_t number, uint64_t start_ns,
			uint64_t end_ns);
/* The driver has allocated or freed memory of a device. */
void timeline_note_allocation(struct timeline_process *p, uint64_t time_ns);
/* What is known of the process ends within its last step. */
void timeline_note_cut(struct timeline_process *p);
/* The number in "ProfilerStep#12", as PyTorch's profiler and traces of steps have it; 0: no step. */
uint64_t timeline_step_number(const char *name);

/* The number of an arrow for a correlation id of a process. */
uint64_t timeline_flow(const struct timeline_process *p, uint64_t correlation);

/* --- readers: what a path is, and what is in it --- */

struct timeline_source {
	const char *host; /* or NULL */
	const char *path;
};
/* Sentences for the reader are added to notes, one per line. */
int timeline_read_activities(struct timeline *t, const struct timeline_source *s, struct buf *notes,
			     struct err *err);
int timeline_read_chrome(struct timeline *t, const struct timeline_source *s, struct buf *notes,
			 struct err *err);
/* Whichever it is; a directory may have several kinds of files. -ENOENT: none of them. */
int timeline_read(struct timeline *t, const struct timeline_source *s, struct buf *notes,
		  struct err *err);

#endif
