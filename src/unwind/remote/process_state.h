/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What struct python_process keeps between two rounds. Part of unwind/remote/python.c.
 *
 *	threads.c   copies      slots[i]->walk.now       raw frames, innermost first
 *	exact.c     proves      the same, copied again
 *	resolve.c   resolves    slots[i]->out            frames with names, outermost first
 *	python.c    publishes   p->threads               copies of `out`, oldest thread first
 *
 * One thread at a time works on a process.
 */
#ifndef SONDE_UNWIND_REMOTE_PROCESS_STATE_H
#define SONDE_UNWIND_REMOTE_PROCESS_STATE_H

#include "unwind/remote/code.h"
#include "unwind/remote/interpreter.h"
#include "unwind/remote/python.h"
#include "unwind/remote/walk.h"

struct thread_slot {
	struct walk_thread walk;
	struct python_thread out;
	size_t frames_cap;
	struct remote_interp *interp;
	uint64_t seen; /* round in which it was copied, */
	uint64_t listed; /* and in which it was in the list of threads */
	bool known; /* was in a list that was read whole */
	bool fresh; /* copied, not resolved */
	bool missed; /* could not be copied */
	uint64_t name_due_ns; /* when to look for its name (again) */
	uint64_t name_wait_ns;
	int stat_fd, sched_fd; /* of /proc/PID/task/TID/stat and schedstat; -1 */
};

struct python_inside {
	struct python_options o;
	struct walker walker;
	struct code_cache codes;
	struct remote_runtime runtime;
	struct thread_slot **slots; /* newest first, as the interpreters list them */
	unsigned nslots;
	size_t slots_cap;
	struct thread_slot **scratch; /* the list while it is made anew */
	size_t scratch_cap;
	struct hmap by_tstate;
	struct thread_slot *main; /* MainThread, if it is all that is wanted and known */
	bool only_main; /* nothing else was copied in the last round */
	uint64_t round, serial;
	uint64_t unproved; /* copies that were to be exact, and nobody knows */
	struct python_thread *threads;
	size_t threads_cap;
	uint64_t *to_check; /* code objects */
	unsigned nto_check;
	size_t to_check_cap;
	uint64_t code_generation;
	/* Thread ids: see unwind/remote/threads.c. */
	pid_t inner_pid; /* as the process sees itself */
	bool other_namespace;
	uint32_t tid_offset; /* in struct pthread; PYTHON_NONE: unknown */
	bool tid_offset_tried;
};

/* A process whose interpreter was found already. */
struct python_process *python_process_at(pid_t pid, const struct python_place *place,
					 const struct python_options *o);

/* unwind/remote/threads.c: copies the stacks of all threads of all interpreters. */
int threads_capture(struct python_process *p);
void thread_slot_free(struct thread_slot *s);

/* unwind/remote/exact.c: copies those again that were moving, until nothing moves meanwhile. */
void threads_prove(struct python_process *p);

/* unwind/remote/resolve.c */
int threads_resolve(struct python_process *p);

/* unwind/remote/threads.c: fills in tid, inner_tid, main. */
void tids_init(struct python_process *p);
void tids_find(struct python_process *p, struct thread_slot *s);
void tids_state(struct python_process *p, struct thread_slot *s);
/* The text of /proc/PID/task/TID/stat; false if there is none. */
bool tids_stat(struct python_process *p, struct thread_slot *s, char *out, size_t cap);

#endif
