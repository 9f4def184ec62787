/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Empties the rings of all processes of a session, merged by time, into batches (the payload of
 * FRAME_BATCH). Two steps, so that a death in between loses and doubles nothing:
 *
 *	drain_round()	reads what is complete so far into a batch; the rings are untouched
 *	drain_commit()	after the batch is safe: the space goes back to the writers
 *
 * Everything in an arena is foreign: it is copied, then checked, then used.
 */
#ifndef SONDE_RECORDER_DRAIN_H
#define SONDE_RECORDER_DRAIN_H

#include "base/containers/buf.h"
#include "base/err.h"
#include "wire/recording.h"
#include "wire/ring.h"

#include <stdbool.h>
#include <stdint.h>

struct drain;

/* A process, as its arena says. */
struct drain_proc {
	uint32_t number; /* as in the recording */
	uint32_t pid;
	uint64_t start_ticks;
	bool dead; /* it ended, or became another program by exec */
	bool finished; /* drain_finish() was called */
	uint64_t damaged;
};

/* Arenas lie in dir; numbers of new processes begin at first_number. */
struct drain *drain_new(const char *dir, uint32_t first_number);
void drain_free(struct drain *d);

/*
 * Maps arenas that appeared. Calls fn for each new process, in the order of their numbers.
 * Returns how many there were, or a negative errno.
 */
int drain_scan(struct drain *d, void (*fn)(void *arg, const struct frame_proc *p), void *arg,
	       struct err *err);

/*
 * For recovery. Before the scan: a process that the recording knows keeps its number and is not
 * reported again. After it: where a former recorder stopped in a ring.
 */
void drain_know(struct drain *d, const struct frame_proc *p);
/* It has ended and its arena is gone: one of the same name is that of a later image. */
void drain_forget(struct drain *d, uint32_t number);
bool drain_knows(const struct drain *d, uint32_t number);
void drain_set_cursor(struct drain *d, const struct batch_cursor *c);

/*
 * Looks which processes ended. With `all_dead` (recovery) everybody is taken for dead.
 * Returns the number of processes that are alive.
 */
unsigned drain_check_alive(struct drain *d, bool all_dead);

/* Has one gone on in another session (arena_head.left)? It has ended, as far as this one goes. */
bool drain_has_left(const struct drain *d);

/* A process that is alive, as the last drain_check_alive() found; 0: none. */
uint32_t drain_living_pid(const struct drain *d);

/* Appends items to batch; returns the number of records in it. */
uint32_t drain_round(struct drain *d, struct buf *batch);
void drain_commit(struct drain *d);
/* Instead of it, when the batch could not be kept: its stacks are recorded when they recur. */
void drain_drop(struct drain *d);

/* The next dead process with nothing left to read, not finished yet; NULL if there is none. */
struct drain_proc *drain_next_dead(struct drain *d);
bool drain_has_dead(const struct drain *d); /* any, read to the end or not */
/* The newest process with that number, NULL if there is none. */
struct drain_proc *drain_find(struct drain *d, uint32_t pid);

/* Fills the end frame, unmaps the arena and, with `remove`, deletes its file. */
void drain_finish(struct drain *d, struct drain_proc *p, bool remove, struct frame_proc_end *out);

/* Deletes what processes left that died while they were making their arena. */
void drain_sweep(struct drain *d);

#endif
