/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The trace of some steps: what is held of it until its window closes, and who writes it. Inside
 * activity/trace. All times are of the wall clock.
 */
#ifndef SONDE_ACTIVITY_TRACE_TRACE_H
#define SONDE_ACTIVITY_TRACE_TRACE_H

#include "activity/steps/step_split.h"
#include "activity/trace/python.h"
#include "activity/windows/names.h"
#include "activity/windows/window.h"
#include "base/containers/hmap.h"

#define TRACE_MAX_ACTIVITIES 4000000u /* 88 bytes each */
#define TRACE_MAX_TOTAL 12000000u /* of all traces of a recorder at one time */
extern size_t trace_max_activities; /* tests want fewer */
#define TRACE_MAX_CALLS 2000000u
#define TRACE_MAX_MARKS 1000000u
#define TRACE_MAX_MEMORY 2000000u
#define TRACE_MAX_BOUNDS 1000000u
#define TRACE_MAX_SAMPLES 100000u
#define TRACE_MAX_TEXT_BYTES (128u << 20)
#define TRACE_NOT_YET UINT64_MAX

struct trace_bound {
	uint64_t number; /* of the step that begins */
	uint64_t ns;
};

/* A function of Python, or a span that the program has named. */
struct trace_call {
	uint64_t start_ns, end_ns;
	const char *text;
	uint32_t tid;
	int32_t caller_line; /* of the call in the function that made it; 0: not known */
};

struct trace_calls {
	struct trace_call *list;
	size_t n, cap;
	struct hmap threads; /* tid to what runs in it */
	struct hmap notes; /* name of a span to its index in the list */
	struct hmap names; /* of threads of Python, by tid; they outlive the trace */
	bool exact; /* the process reports its calls itself: they are not sampled */
};

/* Memory that was taken (freed: given back) as a record or an activity reports it. */
struct trace_block {
	uint64_t ns;
	uint64_t addr, bytes;
	uint64_t held_bytes; /* of its pool, of what was taken in the trace, with this */
	uint32_t tid;
	uint16_t device;
	uint8_t pool; /* enum rec_pool; 0: as the device's library reports it */
	uint8_t kind; /* enum rec_alloc_kind */
	bool freed;
	bool known; /* of what was given back: it was taken in the trace, so its size is known */
};

struct trace_memory {
	struct trace_block *list;
	size_t n, cap;
	struct hmap live; /* address and pool to index; HMAP_NONE */
	struct hmap sums; /* pool and device to bytes */
};

/* What the host and the process did since the machine was started, at one moment. */
struct trace_sample {
	uint64_t ns;
	uint64_t cpu_busy, cpu_all, own_cpu; /* ticks of all processors, of the process */
	uint64_t mem_total, mem_available, own_rss;
	uint64_t disk_read, disk_written, own_read, own_written;
	uint64_t net_in, net_out;
};

struct trace_samples {
	struct trace_sample *list;
	size_t n, cap;
	uint64_t next_ns; /* monotonic */
};

struct trace_state {
	struct window *w; /* the window; when it has closed, what is left of it: */
	struct window own;
	struct frame_proc process; /* as the recorder has seen it */
	struct trace_state *next; /* that is to be written */
	char *parent; /* ACTIVITIES_LOG_FILE */
	char *request;
	char *job, *started_by; /* activity/trace/job_identity.c */
	uint32_t world, local_world; /* likewise */
	uint64_t from_ns, to_ns; /* of the steps; TRACE_NOT_YET */
	bool ended; /* by request, at to_ns: before the last step has */
	uint64_t last_ns; /* of anything that was reported */
	struct trace_bound *bounds; /* from the first step of the trace on */
	size_t nbounds, cap_bounds;
	struct activity *held;
	size_t nheld, cap_held;
	/* When what has this correlation was launched: newer ones, older ones. */
	struct hmap launches[2];
	struct texts texts; /* all that is held; others' texts may go before the window closes */
	struct hmap known_texts; /* theirs to ours, while theirs are there */
	struct hmap owners; /* theirs to ours, which are made */
	struct hmap places; /* of Python code, by their ids */
	struct activity *marks; /* of records: in the trace where the source reports none */
	size_t nmarks, cap_marks;
	struct hmap open_marks; /* ranges that have not ended: index in marks */
	bool source_marks; /* the source reports marks: records of them would be twice */
	uint64_t left_out;
	struct trace_calls calls;
	struct trace_memory memory;
	struct trace_samples samples;
	struct trace_python *python; /* who samples its stacks; NULL: nobody */
	uint64_t first_sample_ns;
	struct buf notes; /* what the process could not do: "KEY words", each with NUL behind it */
	char *unseen; /* why there was nothing to see; NULL */
};

/* Is a moment of the host in the steps? */
static inline bool trace_within(const struct trace_state *t, uint64_t ns)
{
	return ns >= t->from_ns && t->from_ns != TRACE_NOT_YET && ns < t->to_ns;
}

/* Where an activity belongs, known when everything has been reported. */
enum trace_belongs {
	TRACE_OUT,
	TRACE_BEFORE, /* a device's work of an earlier step, which runs in these */
	TRACE_IN,
};
enum trace_belongs trace_belongs(const struct trace_state *t, const struct activity *a);
/* Was it asked for? */
bool trace_wanted(const struct trace_state *t, const struct activity *a);
/* Does a mark of a record say what the source does not? */
bool trace_needs_mark(const struct trace_state *t, const struct activity *a);
/* Pauses of Python's collector are ranges with this name in this domain. */
#define TRACE_GC_MARK "gc"
#define TRACE_GC_DOMAIN "python"
bool trace_is_gc(const struct activity *a);

/* Holds a copy with texts of its own, or counts it as left out; then NULL. */
struct activity *trace_hold(struct trace_state *t, const struct activity *a);
/* Our own text for somebody's. */
const char *trace_text(struct trace_state *t, const char *theirs);
const char *trace_text_of(struct trace_state *t, const char *text, size_t len);

/* activity/trace/records.c: marks, and calls of Python functions. */
void trace_record_mark(struct trace_state *t, uint32_t tid, const struct rec_mark *m);
void trace_record_place(struct trace_state *t, const struct rec_python *r);
void trace_record_call(struct trace_state *t, uint32_t tid, const struct rec_call *r);
void trace_calls_end(struct trace_state *t); /* those that have not, by now */
void trace_calls_release(struct trace_calls *c);

/* activity/trace/python_nest.c: what was seen of its Python is among the calls of the trace. */
void trace_python_finish(struct trace_state *t);

/* activity/trace/memory.c */
void trace_memory_record(struct trace_state *t, uint32_t tid, const struct rec *r);
void trace_memory_activity(struct trace_state *t, const struct activity *a);
void trace_memory_finish(struct trace_state *t); /* in order of time, with sums */
void trace_memory_csv(const struct trace_state *t, struct buf *out);
const char *trace_pool_name(uint8_t pool);
void trace_memory_release(struct trace_memory *m);

/* activity/trace/host_counters.c */
void trace_host_sample(struct trace_state *t, uint64_t now_mono_ns);
/* What its samples come to, in order of time. */
struct trace_counter {
	uint64_t ns;
	bool own; /* of the process, not of the host */
	const char *name, *unit; /* in trace.json */
	const char *recorded, *key; /* in a recording, which counts so many of the unit as one: */
	double scale;
	double value;
};
void trace_host_each(const struct trace_state *t,
		     void (*fn)(void *arg, const struct trace_counter *c), void *arg);

/* activity/trace/job_identity.c: a text that all ranks of a job have, and who has started the
 * process; new,
 * "" if it is not known. */
char *trace_job_of(uint32_t pid);
char *trace_parent_of(uint32_t pid);
/* How many ranks the job has, and on this host; 0: not known. */
void trace_world_of(uint32_t pid, uint32_t *out_world, uint32_t *out_local);

/* activity/trace/launches_not_run.c: which launches of the steps had not run at the end, into r. */
void trace_waits(const struct trace_state *t, struct split_rank *r);

/* activity/trace/metadata.c */
struct split_rank *trace_split(const struct trace_state *t); /* new */
char *trace_host_name(void); /* new, fit for the name of a file */
/* Members of the trace's object, new; NULL: out of memory. */
char *trace_about(const struct trace_state *t, const struct split_rank *r);

/* activity/trace/timeline.c: what is in a Chrome trace beside activities. Before the first. */
int trace_timeline(const struct trace_state *t, struct activity_writer *w,
		   const struct split_rank *rank, struct err *err);

/* activity/trace/recording.c: events.sonde in that directory, as `sonde record` makes them. The calls
 * of the trace are sorted. */
int trace_recording_write(struct trace_state *t, const char *dir, struct err *err);

/* activity/trace/files.c: takes a trace whose window closes. */
void trace_writer_add(struct trace_state *t);
void trace_free(struct trace_state *t);
/* Where it is written; NULL: nowhere, for this reason. From any thread. */
void trace_report_to_daemon(const struct trace_state *t, const char *path, const char *why);

#endif
