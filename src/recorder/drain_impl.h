/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What drain.c (rounds) and drain_procs.c (processes) share; nobody else includes this. */
#ifndef SONDE_RECORDER_DRAIN_IMPL_H
#define SONDE_RECORDER_DRAIN_IMPL_H

#include "base/containers/buf.h"
#include "base/containers/hmap.h"
#include "recorder/arena.h"
#include "recorder/drain.h"

#include <poll.h>

/* One record waiting in this round. */
struct entry {
	uint64_t key;
	uint32_t raw; /* offset of its copy */
	uint32_t run; /* whose it is */
	uint32_t seg; /* where it ends in the arena: the cursor after it */
	uint32_t end;
};

/* The share of one ring in this round. */
struct run {
	struct arena *arena;
	uint32_t ring;
	uint32_t tid; /* of the record at hand */
	bool emitted; /* something of it is in the batch */
	uint32_t records; /* of it in the batch */
	uint32_t seg; /* cursor behind that */
	uint32_t off;
};

struct drain {
	char *dir;
	uint32_t next_number;
	uint64_t horizon; /* of the last round */
	uint64_t now_ns; /* when this round began */
	size_t ring_bytes; /* that it takes of one ring */
	uint64_t last_ns; /* the latest time in batches so far */
	struct arena **arenas; /* of unfinished processes, in no order */
	size_t narenas, cap_arenas;
	struct pollfd *fds; /* one per arena, for one question about all of them */
	size_t cap_fds;
	struct buf raw;
	struct entry *entries, *spare;
	size_t nentries, cap_entries, cap_spare;
	struct run *runs;
	size_t nruns, cap_runs;
	uint32_t *run_begin; /* first entry of each run */
	size_t cap_begin;
	bool left; /* see drain_has_left() */
	bool sees_all; /* see drain_expect_below() */
	struct frame_proc *known; /* of a former recorder */
	size_t nknown, cap_known;
	struct hmap known_at; /* number of a process → its place in known[] */
	struct hmap drained; /* keys of arenas and images that were read to their end */
	struct hmap ignored; /* keys of names: files that stay, and are not looked at again */
	struct end_times *ends; /* NULL: nobody watches */
	uint64_t next_watched; /* number for it */
	uint64_t losses_ns; /* when a batch was made for losses alone */
};

#endif
