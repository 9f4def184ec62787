/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The recorder's view of one arena (wire/ring.h): mapped, bounds-checked, with a reading position
 * for each ring. Indexes and sizes that come from the arena are never used unchecked.
 */
#ifndef SONDE_RECORDER_ARENA_H
#define SONDE_RECORDER_ARENA_H

#include "recorder/drain.h"
#include "wire/control_page.h"
#include "wire/ring.h"

#include <stdbool.h>
#include <stdint.h>

/* Reading position: everything before `off` of segment `seg` has been taken. */
struct ring_reader {
	uint32_t seg; /* index + 1; 0: the ring has not been read yet */
	uint32_t off;
	uint32_t tid; /* whose records come next */
	uint64_t key; /* greatest time so far */
	uint64_t floor_ns; /* no future record is older */
};

struct arena_losses {
	uint64_t events, stacks, damaged;
};

struct arena {
	struct drain_proc proc;
	struct arena_head *head;
	uint64_t image_ns; /* when the guest made it */
	uint64_t alive_ns; /* when its process was last known to live */
	uint64_t watched; /* its number in drain->ends */
	struct arena *former; /* the image before exec() that is read to its end first, borrowed */
	bool announced; /* its process is in the recording */
	uint64_t bytes; /* of the mapping */
	uint32_t max_segs, stack_bytes; /* as checked when it was opened */
	/* Its owner (arena_owner.c) */
	uint64_t pid_ns, address; /* as in its head */
	int pidfd; /* negative: not available */
	int fd; /* of the file, where there is no pidfd; else -1 */
	bool by_number; /* there is no pidfd, but a process of this number in our namespace */
	uint64_t asked_ns; /* out of sight: when the file was asked about */
	uint64_t published, published_ns; /* and what was there then; when that grew */
	char *name; /* of the file in its directory */
	char *path;
	struct ring_reader *rings;
	uint32_t nrings;
	bool was_read; /* by a round of the drain */
	uint64_t records; /* taken out of its rings so far */
	uint32_t in_batch; /* those of the batch at hand, which come next */
	struct arena_losses losses; /* as the recording has them */
	uint64_t dev, ino; /* of the file */
	uint8_t *recorded; /* bitmap of stack ids */
};

/* A stretch of one segment that has been published and not been taken. */
struct arena_piece {
	const char *data;
	uint32_t bytes;
	uint32_t offset; /* of data in the segment */
};

/* NULL: not a complete arena (yet). */
struct arena *arena_open(const char *dir, const char *name);
void arena_close(struct arena *a);
int arena_remove(const char *dir, const char *name, struct err *err);
/* Did its process die while it made the arena, so that no event is in it? */
bool arena_is_unmade(const char *dir, const char *name);

bool arena_is_name(const char *name); /* of a file: that of an arena */
/* By its file: nobody makes it any more, and it cannot be read. */
bool arena_is_abandoned(const char *dir, const char *name);
/* By its file: has its process ended, or gone on in another session? */
bool arena_is_done(const char *dir, const char *name);

/* By arena_open(): whose it is, and whether that process lives. Takes the descriptor by which the
 * file is mapped. */
void arena_set_owner(struct arena *a, int fd);
bool arena_process_lives(struct arena *a);
/* Has the process it mapped? 1, 0 (it has become another program), or a negative errno where nobody
 * can tell. */
int arena_is_mapped(const struct arena *a);
/* The same, cheaper: where addresses are not random the next program may have one at the same. */
int arena_seems_mapped(const struct arena *a);

/* Is it to be read now? */
static inline bool arena_is_due(const struct arena *a)
{
	return a->announced && !a->former;
}

/* Rings in use; makes room for their positions. */
uint32_t arena_nrings(struct arena *a);
uint64_t arena_pending(const struct arena *a, uint32_t ring);

/* The next piece behind *at, moving *at to its segment; false when there is none. */
bool arena_next_piece(struct arena *a, uint32_t ring, struct ring_reader *at,
		      struct arena_piece *out);

/* Bytes that are published and not taken. */
uint64_t arena_unread(struct arena *a);

/* What lies before *at is not made of records: count it and go on behind it. */
void arena_damaged(struct arena *a, uint32_t ring, const struct ring_reader *at, size_t bytes);

/* Everything up to (seg, off) is safe: move on and recycle whole segments. */
void arena_advance(struct arena *a, uint32_t ring, uint32_t seg, uint32_t off);

/* The same for records that no recording has: that and their number stay in the arena. */
void arena_drop(struct arena *a, uint32_t ring, uint32_t seg, uint32_t off, uint32_t records);
/* For recovery: goes on behind what was dropped. */
void arena_skip_dropped(struct arena *a);
uint64_t arena_dropped(struct arena *a); /* records, of all rings */
/* What its process could not keep, as far as the arena says. */
struct arena_losses arena_losses(struct arena *a);

/* Sets the position from a recording: segment by its number along the ring. */
void arena_seek(struct arena *a, uint32_t ring, uint64_t seq, uint32_t off, uint32_t tid);
uint64_t arena_seq(const struct arena *a, uint32_t seg);

bool arena_is_empty(struct arena *a);
/* Of an empty one: bytes in the newest segments of rings whose chain is broken before them. */
uint64_t arena_unreachable(struct arena *a);

bool arena_stack_is_recorded(const struct arena *a, uint32_t id);
void arena_set_stack_recorded(struct arena *a, uint32_t id);
void arena_forget_stacks(struct arena *a); /* none is recorded */
/* Copies a stack; returns its depth, 0 if the id is not one. */
uint32_t arena_read_stack(const struct arena *a, uint32_t id, uint64_t pc[ARENA_MAX_DEPTH]);

#endif
