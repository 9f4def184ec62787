/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The recording: an append-only file that holds everything, in the order of time, from which every
 * other file can be made again. A sequence of frames; each is complete or it is not there.
 *
 *	+----------------+---------+---------+-------+---------+-------+---------
 *	| recording_head | frame   | SESSION | frame | PROC 0  | frame | BATCH …
 *	+----------------+---------+---------+-------+---------+-------+---------
 *	  32 bytes         24        JSON      24
 *
 * The payload of a BATCH is a sequence of items, each a multiple of 8 bytes:
 *
 *	+------------+-----------------------+-------------+---------------------+--------------+
 *	| BATCH_RUN  | rec rec rec …         | BATCH_STACK | pc pc pc …          | BATCH_CURSOR |
 *	| proc, tid  | of one thread, in     | proc, id    | innermost first     | ring, seq,   |
 *	|            | order of time         |             |                     | offset       |
 *	+------------+-----------------------+-------------+---------------------+--------------+
 *
 * Invariants:
 *   - runs of a batch, and batches, are in order of time; a record that its thread published more
 *     than a second late comes late (ring.h, "Holds");
 *   - a stack comes before the first record that names its id, once per process;
 *   - FRAME_PROC of a process comes before the first batch that names its number;
 *   - the cursors of a batch say how far each ring has been read when its records are counted in.
 *     Records and cursors arrive in one frame: a recording cut off anywhere and the rings that are
 *     left add up to every event exactly once. That is what `sonde mem recover` does.
 *
 * Counts: a batch ends with a BATCH_COUNT of each process that it has records of, and begins with
 * one of each process that has lost more since. They are the same numbers that FRAME_PROC_END gives
 * in the end, but they are there when the recorder is killed. Records are numbered along a process:
 * the count before a batch (records - in_batch) is that behind the batch before it, unless a frame
 * that could not be written lay between. So a frame that is missing is noticed, and its records
 * counted. FRAME_PROC_END has the count for the last of them.
 *
 * `check` covers the payload as it is stored. The last frame of a recorder that was killed may be
 * half there: its check is wrong, and readers stop before it. Behind a frame that is damaged in the
 * middle they go on with the next whole one. Payloads may be compressed (zstd): then raw_bytes !=
 * stored_bytes. Numbers are those of the machine, little-endian.
 *
 * Version 3 has FRAME_PACKED: a batch of more than a few events in the form of
 * recorder/pack/pack.h. Files of version 2 have FRAME_PACKED_V2 instead, those of version 1
 * neither; both are continued with batches that are not packed.
 *
 * Version 4 is a recording of which the oldest part was dropped (--max-size). It begins with a
 * checkpoint:
 *
 *	SESSION | CUT | PROC of each process that lived at the cut | BATCH … | what came after the cut
 *
 * The batches of the checkpoint say what the dropped part had come to: for each process a
 * STATE_BEGIN, its settings, names, call stacks and pools, a REC_BLOCK for each block that is
 * alive, and STATE_END; then the cursors of its rings and its counts. A process that ended before
 * is not in it. Such a file is written beside the one that it replaces, and takes its name in one
 * step.
 */
#ifndef SONDE_WIRE_RECORDING_H
#define SONDE_WIRE_RECORDING_H

#include <stdint.h>

#define RECORDING_MAGIC "SONDEREC"
#define RECORDING_VERSION 4 /* of a file that lacks its oldest part; else: */
#define RECORDING_PLAIN 3
#define RECORDING_PACKED 3 /* from here on batches are packed as we pack them */
#define RECORDING_OLDEST 1 /* that is read, and continued as it is */
#define FRAME_MAGIC 0x314d5246u /* "FRM1" */
#define FRAME_MAX_BYTES (64u << 20)

struct recording_head {
	char magic[8];
	uint32_t version;
	uint32_t rec_version; /* REC_VERSION of the records inside */
	uint64_t reserved[2];
};

/* "tool" of a FRAME_SESSION: the recording is of a trace of a running job (enum mem_tool). */
#define RECORDING_TOOL_TRACE 4

enum frame_type {
	FRAME_SESSION = 1, /* JSON text: configuration, host, clocks */
	FRAME_PROC = 2, /* frame_proc: a process appears */
	FRAME_BATCH = 3, /* batch_items */
	FRAME_PROC_END = 4, /* frame_proc_end */
	FRAME_END = 5, /* no payload: the recorder left in order */
	FRAME_PACKED_V2 = 6, /* a FRAME_BATCH, packed as in version 2 */
	FRAME_PACKED = 7, /* a FRAME_BATCH, packed; readers give it as what it is */
	FRAME_CUT = 8, /* frame_cut: what was dropped before this */
};

struct frame {
	uint32_t magic;
	uint32_t type;
	uint32_t stored_bytes; /* of the payload in the file */
	uint32_t raw_bytes; /* of the payload after decompression */
	uint64_t check; /* XXH64 of the stored payload, seed = raw_bytes << 32 | type */
};

struct frame_proc {
	uint32_t proc; /* number used in batches, counts from 0 */
	uint32_t pid;
	uint32_t ppid;
	uint32_t shown_pid; /* in the recorder's /proc; 0: it was not there */
	uint64_t image_ns; /* of arena_head */
	uint64_t pid_ns; /* inode of the pid namespace in which `pid` counts */
	uint64_t time_ns; /* CLOCK_MONOTONIC when it was first seen */
	char exe[256];
	char cmdline[512];
	char visible_devices[256];
};

struct frame_proc_end {
	uint32_t proc;
	uint32_t records; /* as batch_count.records, but modulo 2^32; 0: not known */
	uint64_t time_ns; /* when it was last known to live, or its next image began */
	uint64_t lost_events;
	uint64_t lost_stacks;
	uint64_t damaged; /* bytes of its rings that did not hold well-formed records */
};

/* The part that was dropped, by one cut after the other. */
struct frame_cut {
	uint64_t limit_bytes; /* that was asked for; 0: a time was */
	uint64_t from_ns, until_ns; /* CLOCK_MONOTONIC */
	uint64_t first_step, last_step; /* the last one that had ended; 0: there were none */
	uint64_t events; /* that were recorded before the cut */
	uint64_t ended_events; /* of them: of processes that had ended */
	uint32_t ended; /* how many these are */
	uint32_t cuts;
};

enum batch_kind {
	BATCH_RUN = 1, /* batch_run, then records of one thread */
	BATCH_STACK = 2, /* batch_stack, then depth × u64 */
	BATCH_CURSOR = 3, /* batch_cursor */
	BATCH_COUNT = 4, /* batch_count */
};

struct batch_item {
	uint32_t kind;
	uint32_t bytes; /* of the whole item, this header included; a multiple of 8 */
	uint32_t proc;
	uint32_t tid; /* BATCH_RUN only */
};

struct batch_stack {
	struct batch_item head;
	uint32_t id;
	uint32_t depth;
	uint64_t pc[];
};

struct batch_cursor {
	struct batch_item head;
	uint32_t ring;
	uint32_t offset; /* bytes of the segment that have been taken */
	uint64_t seq; /* which segment of the ring */
};

/* How many records a process has produced so far, and what is missing; see "Counts" above. */
struct batch_count {
	struct batch_item head;
	uint64_t records; /* taken out of its rings, those of this batch up to here included */
	uint64_t in_batch; /* of them: in this batch, up to here */
	uint64_t lost_events; /* as in frame_proc_end, but for what this file itself lacks */
	uint64_t lost_stacks;
	uint64_t damaged;
};

_Static_assert(sizeof(struct recording_head) == 32, "recording_head changed size");
_Static_assert(sizeof(struct frame) == 24, "frame changed size");
_Static_assert(sizeof(struct frame_proc) == 1064, "frame_proc changed size");
_Static_assert(sizeof(struct frame_proc_end) == 40, "frame_proc_end changed size");
_Static_assert(sizeof(struct frame_cut) == 64, "frame_cut changed size");
_Static_assert(sizeof(struct batch_item) == 16, "batch_item changed size");
_Static_assert(sizeof(struct batch_stack) == 24, "batch_stack changed size");
_Static_assert(sizeof(struct batch_cursor) == 32, "batch_cursor changed size");
_Static_assert(sizeof(struct batch_count) == 56, "batch_count changed size");

#endif
