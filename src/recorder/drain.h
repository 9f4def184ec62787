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
#include "base/containers/hmap.h"
#include "base/err.h"
#include "recorder/consumer.h"
#include "wire/recording.h"
#include "wire/ring.h"

#include <stdbool.h>
#include <stdint.h>

struct drain;

/* A process, as its arena says. */
struct drain_proc {
	uint32_t number; /* as in the recording */
	uint32_t pid; /* in its own namespace */
	uint32_t shown_pid; /* in /proc, as we see it; 0: not there */
	bool dead; /* it ended, or became another program by exec */
	bool uncertain; /* out of sight: nobody knows whether it lives */
	bool finished; /* drain_finish() was called */
	uint64_t damaged;
};

/* Arenas lie in dir; numbers of new processes begin at first_number. */
struct drain *drain_new(const char *dir, uint32_t first_number);
/* All processes are in our pid namespace or below: whom /proc does not show has ended. */
void drain_expect_below(struct drain *d);
/* The processes live while we read: a thread notes when each of them ends. */
void drain_watch_ends(struct drain *d);
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
/* It is in the recording to its end. If its arena is still there, it is not read again. */
void drain_forget(struct drain *d, uint32_t number);
bool drain_knows(const struct drain *d, uint32_t number);
void drain_set_cursor(struct drain *d, const struct batch_cursor *c);
/* How many records of each process were counted; and, after all of this: skips what was dropped. */
void drain_set_counts(struct drain *d, const struct hmap *counts);
void drain_skip_dropped(struct drain *d);

/*
 * Looks which processes ended. With `all_dead` (recovery) everybody is taken for dead.
 * Returns the number of processes that are alive.
 */
unsigned drain_check_alive(struct drain *d, bool all_dead);

/* Has one gone on in another session (arena_head.left)? It has ended, as far as this one goes. */
bool drain_has_left(const struct drain *d);

/* A process that certainly is alive, as the last drain_check_alive() found; 0: none. */
uint32_t drain_living_pid(const struct drain *d);

/* Are so many bytes there for the next round, or as many as a process should have waiting? */
bool drain_has_much(struct drain *d, size_t much);
/* Appends items to batch; returns the number of records in it. */
uint32_t drain_round(struct drain *d, struct buf *batch);
void drain_commit(struct drain *d);
/*
 * Instead of it, when the batch could not be kept. Its records are counted in their arenas, which
 * recovery looks at, and by the next batch; its stacks are recorded when they recur.
 */
void drain_drop(struct drain *d);

/* The next dead process with nothing left to read, not finished yet; NULL if there is none. */
struct drain_proc *drain_next_dead(struct drain *d);
bool drain_has_dead(const struct drain *d); /* any, read to the end or not */
uint64_t drain_unread(struct drain *d); /* bytes in the rings of all processes */
/* Has one of them become another program? It has ended, as far as we go. */
bool drain_check_images(struct drain *d);

/* What consumers may know of it. */
struct dead_process drain_dead_process(struct drain *d, const struct drain_proc *p);
void drain_end_frame(struct drain *d, struct drain_proc *p, struct frame_proc_end *out);
/*
 * Unmaps the arena. With `remove`, when its end frame is safe, its file is deleted; if that is not
 * possible, this is logged once. Either way it is not read again by this drain.
 */
void drain_finish(struct drain *d, struct drain_proc *p, bool remove);

/*
 * Deletes what processes left that died while they were making their arena. Returns how many
 * arenas of ended processes cannot be read: they stay, and each is counted once.
 */
unsigned drain_sweep(struct drain *d);

#endif
