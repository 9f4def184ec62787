/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What a snapshot holds, for the files that tell about it. */
#ifndef SONDE_SAMPLER_SNAPSHOT_SNAPSHOT_IMPL_H
#define SONDE_SAMPLER_SNAPSHOT_SNAPSHOT_IMPL_H

#include "base/containers/hmap.h"
#include "sampler/snapshot/call_site.h"
#include "sampler/snapshot/snapshot.h"

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
	int place; /* index of the frame it is known by; -1 */
	struct snap_local *locals;
	unsigned nlocals;
	size_t locals_cap;
};

struct snap_process {
	pid_t pid;
	int rank, local_rank, device;
	char *cmdline;
	char version[16]; /* "3.11.2" */
	bool counts; /* one that the answer speaks of; else a helper of one */
	enum target_state state;
	char *trouble; /* why there is no stack; NULL */
	uint64_t time_ns;
	unsigned first_thread; /* index, or SNAP_NONE */
};

/* Threads whose stacks are equal. */
struct snap_group {
	unsigned *threads;
	unsigned n;
	size_t cap;
	bool counts, first; /* of its processes, of its threads */
};

/* Processes that are in the same place, for the answer. */
struct snap_place {
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
	struct snap_place *places; /* by size */
	unsigned nplaces;
	size_t places_cap;
	bool ranks; /* all that count have one */
	unsigned counted; /* processes that count and have stacks */
};

/* "ranks 0-4,6", "pid 4711", or both: who these processes are. */
void snap_add_who(const struct snapshot *s, const unsigned *processes, unsigned n,
		  unsigned max_bytes, struct buf *out);
void snap_add_who_of_threads(const struct snapshot *s, const unsigned *threads, unsigned n,
			     unsigned max_bytes, struct buf *out);

/* Whether one place has most of them and only a few are elsewhere: the place, else NULL. */
const struct snap_place *snap_crowd(const struct snapshot *s);

/* "in all_reduce at trainer.py:88 > wait (threading.py:331)" */
void snap_add_place(const struct snap_thread *t, struct buf *out);

const char *snap_state_word(const struct snap_thread *t);

#endif
