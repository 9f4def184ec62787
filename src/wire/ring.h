/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * An arena: the shared memory between one guest process and the recorder. One file (or memfd) per
 * process, mapped by both sides, owned by neither side's heap: what a hook has published in it
 * outlives the process.
 *
 *	+------------+---------+-----------+-------------+------------+--------------+-----------
 *	| arena_head | ring[]  | seg state | stack index | stack data | second index | segments …
 *	+------------+---------+-----------+-------------+------------+--------------+-----------
 *	  4 KiB        64 B      u32 each    u64 each      bump         u64 each       64 KiB each
 *
 * Ring: one per thread that ever produced an event, a chain of segments. The owner appends to the
 * newest segment and publishes with a release store of `used`. A full segment gets a successor
 * (`next`) and is never written again. The recorder reads behind the owner, and gives a segment
 * back (state 0) only after everything in it is in the recording, so a death of both sides at
 * once loses nothing either. A ring whose owner thread died is taken over by a later thread,
 * which says so with REC_THREAD.
 *
 * Stacks: interned arrays of return addresses. index[] is an open-addressing table of
 * (hash32 << 32 | id), id = offset into the stack data / 8; written once by compare-and-swap. What
 * finds no slot there goes into the second, larger one: few programs need it, and it has no file
 * space before.
 *
 * Ordering between threads is by time. A hook that has read the clock but not yet published must
 * hold `pending_ns` of its ring at a lower bound of that time (1 = "just now"), so that the
 * recorder knows what it may not overtake.
 *
 * File space is made real (fallocate or populate) before anyone stores into it: a full disk is a
 * failed system call, never a SIGBUS.
 */
#ifndef SONDE_WIRE_RING_H
#define SONDE_WIRE_RING_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define ARENA_MAGIC 0x31414e4552414453ull /* "SDARENA1" */
#define ARENA_VERSION 2
#define ARENA_MAX_RINGS 4096u
#define ARENA_MAX_SEGS 16384u
#define ARENA_SEG_SIZE 65536u
#define ARENA_STACK_SLOTS 65536u
#define ARENA_MORE_SLOTS (512u << 10) /* of the second index */
#define ARENA_STACK_BYTES (32u << 20)
#define ARENA_MAX_DEPTH 1000u

#define RING_PENDING_NOW 1u /* a hook is about to publish; its time is not known yet */

struct ring {
	_Atomic uint32_t owner; /* tid; 0: never used */
	_Atomic uint32_t first_seg; /* index + 1 of the oldest segment ever; 0: none yet */
	_Atomic uint32_t last_seg; /* index + 1 of the segment being written */
	uint32_t level; /* 0, or 1 for events inside signal handlers that hit a hook */
	_Atomic uint64_t pending_ns;
	_Atomic uint64_t lost; /* events dropped by this ring's owners */
	uint64_t next_seq; /* of the next segment */
	_Atomic uint64_t activities; /* REC_ACTIVITY, of all its owners */
	uint64_t reserved[2];
};

struct seg {
	_Atomic uint32_t used; /* bytes, this header included */
	_Atomic uint32_t next; /* index + 1 of the successor */
	uint32_t ring;
	uint32_t reserved;
	uint64_t seq; /* 0, 1, 2 … along the ring */
	uint64_t reserved2[5];
};

struct stack_entry {
	uint32_t hash;
	uint32_t depth;
	uint64_t pc[]; /* innermost first; return addresses, then STACK_PYTHON words */
};

struct arena_head {
	uint64_t magic;
	uint32_t version;
	uint32_t pid;
	uint32_t ppid;
	_Atomic uint32_t left; /* not 0: the process goes on elsewhere, nothing more comes */
	uint64_t image_ns; /* when it was made: exec() under the same pid makes another */
	uint64_t start_ticks; /* field 22 of /proc/PID/stat: tells a reused pid apart */
	uint64_t pid_ns; /* inode of /proc/PID/ns/pid: where that number counts; 0: not known */
	uint64_t file_bytes;
	uint32_t max_rings; /* the geometry below is checked against these by readers */
	uint32_t max_segs;
	_Atomic uint32_t nrings; /* rings [0, nrings) have been used */
	_Atomic uint32_t nsegs; /* segments [0, nsegs) have file space */
	_Atomic uint32_t has_more; /* not 0: the second stack index has file space */
	_Atomic uint32_t tracing; /* between start and stop */
	_Atomic uint64_t stack_used; /* bytes of stack data handed out; id 0 stays unused */
	_Atomic uint64_t stack_committed; /* bytes of it that have file space */
	_Atomic uint64_t lost_events; /* dropped where no ring could be had */
	_Atomic uint64_t lost_stacks; /* events kept, stack dropped */
	char exe[256];
	char cmdline[512]; /* arguments separated by NUL */
	char visible_devices[256]; /* ASCEND_RT_VISIBLE_DEVICES as it was at the first event */
	_Atomic uint32_t epoch; /* guest: under which threads take rings of it */
};

_Static_assert(sizeof(struct ring) == 64, "ring changed size");
_Static_assert(sizeof(struct seg) == 64, "seg changed size");
_Static_assert(sizeof(struct stack_entry) == 16 - 8, "stack_entry changed size");
_Static_assert(sizeof(struct arena_head) <= 4096, "arena_head outgrew its page");

/* Where the parts begin. The geometry is fixed; only the number of segments varies. */
#define ARENA_OFF_RINGS 4096u
#define ARENA_OFF_SEG_STATE (ARENA_OFF_RINGS + ARENA_MAX_RINGS * sizeof(struct ring))
#define ARENA_OFF_STACK_INDEX (ARENA_OFF_SEG_STATE + ARENA_MAX_SEGS * sizeof(uint32_t))
#define ARENA_OFF_STACK_DATA (ARENA_OFF_STACK_INDEX + ARENA_STACK_SLOTS * sizeof(uint64_t))
#define ARENA_OFF_MORE_INDEX (ARENA_OFF_STACK_DATA + ARENA_STACK_BYTES)
#define ARENA_OFF_SEGS (ARENA_OFF_MORE_INDEX + ARENA_MORE_SLOTS * sizeof(uint64_t))

_Static_assert(ARENA_OFF_SEGS % 4096 == 0, "segments must start on a page");

static inline uint64_t arena_bytes(uint32_t max_segs)
{
	return ARENA_OFF_SEGS + (uint64_t)max_segs * ARENA_SEG_SIZE;
}

static inline struct ring *arena_ring(struct arena_head *a, uint32_t i)
{
	return (struct ring *)((char *)a + ARENA_OFF_RINGS) + i;
}

static inline _Atomic uint32_t *arena_seg_state(struct arena_head *a, uint32_t i)
{
	return (_Atomic uint32_t *)((char *)a + ARENA_OFF_SEG_STATE) + i;
}

static inline struct seg *arena_seg(struct arena_head *a, uint32_t i)
{
	return (struct seg *)((char *)a + ARENA_OFF_SEGS + (uint64_t)i * ARENA_SEG_SIZE);
}

static inline _Atomic uint64_t *arena_stack_index(struct arena_head *a)
{
	return (_Atomic uint64_t *)((char *)a + ARENA_OFF_STACK_INDEX);
}

static inline _Atomic uint64_t *arena_more_index(struct arena_head *a)
{
	return (_Atomic uint64_t *)((char *)a + ARENA_OFF_MORE_INDEX);
}

static inline struct stack_entry *arena_stack(struct arena_head *a, uint32_t id)
{
	return (struct stack_entry *)((char *)a + ARENA_OFF_STACK_DATA + (uint64_t)id * 8);
}

#endif
