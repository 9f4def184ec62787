/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Inside of a timeline: timeline.c has tracks and events, lanes.c the order of slices, output.c writes. */
#ifndef SONDE_TIMELINE_TIMELINE_IMPL_H
#define SONDE_TIMELINE_TIMELINE_IMPL_H

#include "base/containers/hmap.h"
#include "formats/perfetto/perfetto.h"
#include "timeline/clocks.h"
#include "timeline/timeline.h"

/* A track of the file. */
struct out_track {
	uint32_t number; /* of Perfetto; of a Chrome trace its tid */
	int64_t pid; /* of a Chrome trace */
};

#define LANES_MAX 16
#define LANE_DEPTH 256 /* slices inside of one another */

/* Slices that are open, the outermost first. */
struct lane {
	struct out_track out;
	uint64_t last_ns; /* of the newest beginning */
	uint64_t ends[LANE_DEPTH];
	unsigned depth;
};

#define PENDING_MAX 128 /* slices of a track that wait for older ones */

struct pending_slices {
	/* A heap, the oldest first; slots are given anew when all have been used once. */
	struct pending_key {
		uint64_t start_ns, end_ns, seq;
		unsigned slot;
	} keys[PENDING_MAX];
	struct pending_slice {
		struct timeline_event event;
		struct chrome_arg args[TIMELINE_MAX_ARGS];
	} slices[PENDING_MAX];
};

struct timeline_track {
	struct timeline *t;
	struct timeline_process *process;
	struct timeline_place where;
	char *name;
	struct out_track group; /* that it belongs to */
	struct out_track out; /* of instants and counters, and the first lane */
	bool has_out;
	struct lane *lanes[LANES_MAX];
	unsigned nlanes;
	struct pending_slices *pending;
	unsigned npending;
	uint64_t seq;
	unsigned open; /* timeline_begin() without an end */
	unsigned not_begun; /* those that were left out, whose ends are, too */
	const char **early; /* names of those that began before the time that was asked for */
	unsigned nearly;
	uint64_t last_ns;
	uint64_t thread; /* of slices without an end, which somebody counts */
};

struct timeline_process {
	struct timeline *t;
	uint32_t index;
	uint32_t pid;
	int32_t rank;
	enum sampled_role role;
	const char *host;
	const struct timeline_clock *clock; /* of its host; NULL: times are as they are */
	int64_t shown_pid; /* of a Chrome trace */
	struct out_track out;
};

struct timeline {
	struct timeline_options o;
	struct perfetto_trace *perfetto;
	struct chrome_trace *chrome;
	uint64_t base_ns; /* of a Chrome trace */
	struct timeline_counts counts;
	struct timeline_process **processes;
	size_t nprocesses, cap_processes;
	struct timeline_track **tracks;
	size_t ntracks, cap_tracks;
	struct hmap by_pid; /* hash of pid and host to a process */
	struct hmap roles; /* the same hash to a role, and the rank + 1 above it */
	struct hmap by_place; /* hash of process and place to its track */
	struct hmap groups; /* hash to the number of its track in the file */
	struct hmap hosts; /* address of an interned name to its track */
	struct hmap shown_pids;
	int64_t next_tid;
	struct err err;
};

/* --- chrome_source.c --- */

/* A descriptor of the text of a trace, which may be compressed: it is expanded beside the output. */
int chrome_source_open(const char *path, const char *beside, struct err *err);
/* A member of the trace may say what times count from. */
bool chrome_source_base(const char *key, size_t key_len, const char *text, size_t len,
			int64_t *out_ns);

/* --- lanes.c --- */

void lanes_put(struct timeline_track *k, uint64_t start_ns, uint64_t end_ns,
	       const struct timeline_event *e);
void lanes_finish(struct timeline_track *k); /* writes what waits, closes what is open */
void lanes_release(struct timeline_track *k);

/* --- output.c --- */

int output_open(struct timeline *t, struct err *err);
int output_close(struct timeline *t, struct err *err);
struct out_track output_process(struct timeline *t, const struct timeline_process *p,
				const char *name);
struct out_track output_track(struct timeline *t, const struct timeline_process *p,
			      const struct timeline_place *where, const char *name, unsigned lane);
void output_begin(struct timeline *t, const struct out_track *k, uint64_t start_ns, uint64_t end_ns,
		  const struct timeline_event *e);
/* Not of Chrome traces, whose slices have their end with them, unless it was not known. */
void output_end(struct timeline *t, const struct out_track *k, uint64_t end_ns, bool known);
void output_instant(struct timeline *t, const struct out_track *k, uint64_t time_ns,
		    const struct timeline_event *e);
void output_counter(struct timeline *t, const struct timeline_track *k, uint64_t time_ns,
		    double value);

#endif
