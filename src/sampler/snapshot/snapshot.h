/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The stacks of all processes at one moment, equal ones put together: "510 ranks in all_reduce at
 * trainer.py:88, 2 ranks in load_batch at data.py:41". A snapshot owns all that it holds but the
 * names, which are interned; it does not change once it is taken.
 */
#ifndef SONDE_SAMPLER_SNAPSHOT_SNAPSHOT_H
#define SONDE_SAMPLER_SNAPSHOT_SNAPSHOT_H

#include <jansson.h>

#include "base/containers/buf.h"
#include "sampler/snapshot/call_site.h"

struct snapshot_options {
	bool all_threads; /* groups of all threads, not only of main ones */
	bool exact; /* stacks that differ only in a line inside libraries are different */
	unsigned top; /* frames shown of a stack; 0: all */
	const char *const *locals; /* functions whose variables are wanted; NULL: none */
	unsigned nlocals;
	const pid_t *named; /* named by the user: an error if they are no Python processes */
	unsigned nnamed;
	bool color;
};

#define SNAP_NONE UINT32_MAX

struct snap_local {
	unsigned frame;
	char *name, *value;
	bool argument;
};

struct snap_thread {
	unsigned process; /* index */
	pid_t tid;
	uint64_t thread_id;
	int64_t interp;
	const char *name; /* interned */
	uint8_t state; /* enum thread_state */
	bool first; /* the main one of its process */
	bool has_gil, gc, missed, cut;
	struct stack_frame *frames; /* outermost first */
	unsigned nframes;
	int site; /* index of the frame that is its call site; -1 */
	struct snap_local *locals;
	unsigned nlocals;
	size_t locals_cap;
};

struct snap_process {
	pid_t pid;
	int rank, local_rank, device;
	int64_t steps; /* that have ended; -1: nobody counts them */
	enum target_role role;
	char *cmdline;
	char version[16]; /* "3.11.2" */
	bool counts; /* one that the answer speaks of; else a helper of one */
	char *problem; /* why there is no stack; NULL */
	unsigned first_thread; /* index, or SNAP_NONE */
};

/* Threads whose stacks are equal. */
struct snap_group {
	unsigned *threads;
	unsigned n;
	size_t cap;
	bool counts, first; /* of its processes, of its threads */
};

/* Processes that are at the same call site, for the answer. */
struct snap_site {
	unsigned thread; /* one of them */
	unsigned *processes;
	unsigned n, idle;
	size_t cap;
};

struct snapshot {
	struct snapshot_options o;
	int64_t real_ns;
	struct snap_process *processes;
	unsigned nprocesses;
	struct snap_thread *threads;
	unsigned nthreads;
	size_t threads_cap;
	struct snap_group *groups; /* those that count first, then by size */
	unsigned ngroups;
	size_t groups_cap;
	struct snap_site *sites; /* by size */
	unsigned nsites;
	size_t sites_cap;
	bool ranks; /* all that count have one */
	unsigned counted; /* processes that count and have stacks */
};

/* Copies what the last round of the targets holds, native frames too if there are some. */
struct snapshot *snapshot_take(const struct targets *s, const struct snapshot_options *o);
void snapshot_free(struct snapshot *s);

/* How many processes it shows stacks of. */
unsigned snapshot_processes(const struct snapshot *s);
/* Equal while every process is at the same call site as before. */
uint64_t snapshot_hash(const struct snapshot *s);

/* The frame that is its call site; NULL if it has none. */
const struct stack_frame *snapshot_site(const struct snap_thread *t);
/* The call site that most processes are at while only a few are elsewhere; NULL if there is none.
 */
const struct snap_site *snapshot_crowd(const struct snapshot *s);

/* The answer in a line or two, as snapshot_text() begins. */
void snapshot_answer(const struct snapshot *s, struct buf *out);
/* The answer, the groups with their ranks and stacks below. */
void snapshot_text(const struct snapshot *s, struct buf *out);
/* The stacks of each process under a line with its pid. */
void snapshot_dump(const struct snapshot *s, struct buf *out);
json_t *snapshot_json(const struct snapshot *s);

#endif
