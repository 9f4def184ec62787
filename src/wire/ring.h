/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * An arena: the shared memory between one guest process and the recorder. One file per process
 * image, mapped by both sides, owned by neither side's heap: what a hook has published in it
 * outlives the process.
 *
 *	+------------+---------+-----------+-------------+--------+-----------+------------+-------+
 *	| arena_head | ring[]  | seg state | stack index | second | segments… | stack data | third |
 *	+------------+---------+-----------+-------------+--------+-----------+------------+-------+
 *	  4 KiB        64 B      u32 each    u64 each               64 KiB each  bump
 *
 * The number of segments and the size of the stack data are in the head. Where call stacks are wanted,
 * they have a quarter of what rings have else, and the third index; the whole takes no more room.
 *
 * Rings
 * -----
 * One per thread that ever produced an event: a chain of segments, newest last.
 *
 *	ring.first_seg                                      ring.last_seg
 *	     |                                                    |
 *	     v                                                    v
 *	+---------+  next  +---------+  next  +-------------------------+
 *	| seq 0   | -----> | seq 1   | -----> | seq 2                   |
 *	| full    |        | full    |        | seg | rec rec rec |free |
 *	+---------+        +---------+        +-------------------------+
 *	                                                     ^ used
 *
 * Who may write what, and when:
 *
 *	word              writer                    when
 *	ring.owner        a thread of the guest     compare-and-swap: only a ring that is free, or
 *	                                            whose owner has ended
 *	the other words   the owner thread alone    from its first event until it ends
 *	 of ring and seg
 *	seg.used          the owner                 after the record below it is complete
 *	seg.next          the owner                 once, when the successor is ready; from then on
 *	                                            nobody writes this segment again
 *	seg state         guest 0 -> 1, by          to take a free segment; the recorder gives it
 *	                  compare-and-swap;         back after everything in it is in the recording
 *	                  recorder 1 -> 0
 *	ring.dropped,     the recorder              when a batch could not be written, before it
 *	 dropped_to                                 goes on behind it
 *	arena_head.left   the guest                 once, when the process goes on in another arena,
 *	                                            or is at the end of exit()
 *	everything else   the guest                 the recorder only reads
 *
 * Orders: `used`, `next` and `first_seg` are stored with release and loaded by the recorder with
 * acquire; that is all there is between the two. The recorder reads up to `used`, so a record that
 * was not published does not exist, whatever a killed thread left behind it. A segment comes back
 * only after its contents are on disk, so a death of both sides at once loses nothing either.
 *
 * The life of a ring: a thread's first event takes a ring whose owner has ended, or the next unused
 * one (nrings + 1); writes REC_THREAD, which says whose records follow; appends; ends without
 * notice. A later thread finds by tgkill() that the owner is gone, takes the ring over and
 * goes on in the same segment, behind `used`. `level` 1 is a second ring of the same thread, for
 * hooks that a signal handler calls while the thread is inside a hook.
 *
 * Holds
 * -----
 * Records of different threads are put in order by their times. A hook reads the clock before it
 * publishes, so the recorder needs to know what may still come:
 *
 *	pending_ns = 0		nothing: the next record will be younger than "now"
 *	pending_ns = 1		a hook is about to read the clock (RING_PENDING_NOW)
 *	pending_ns = t		a record with a time of t or later is about to be published
 *
 *	guest:     pending = 1;  t = clock;  [pending = t];  record;  used = …;  pending = 0
 *	recorder:  read pending of all rings, then their records; write in order of time up to the
 *	           oldest bound. A hold that is older than a second is overtaken: a hook that hangs
 *	           in a driver must not stop the recording.
 *
 * Stacks
 * ------
 * Interned arrays of return addresses. index[] is an open-addressing table of
 *
 *	63           32 31            0
 *	+--------------+--------------+
 *	| hash | 1     | id           |	id = offset into the stack data / 8; 0: the slot is free
 *	+--------------+--------------+
 *
 * A slot goes from 0 to its final value by one compare-and-swap, after the entry in the stack data
 * is complete, and never changes again: who finds a slot may read what it names. Of two threads
 * that store the same stack at once one loses the slot and uses the other's id; its own entry is a
 * few bytes that nobody names. What finds no slot in its window goes into the second, larger
 * index, and from there into the third: few programs need these, and they have no file space before.
 *
 * A stack of more than STACK_CHUNK words is several entries, cut at multiples of that from its
 * outermost frame; the last word of each but the outermost says where it goes on:
 *
 *	id -> | 3 | pc pc REST|id2 |  ->  | 9 | pc pc pc pc pc pc pc pc REST|id3 |  ->  | 8 | pc … |
 *
 * So stacks that differ in their innermost frames alone share the others. An entry is older than those
 * that go on in it, and its id is smaller: no chain is endless.
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
#define ARENA_VERSION 4
#define ARENA_MAX_RINGS 4096u
#define ARENA_MAX_SEGS 16384u
#define ARENA_SEG_SIZE 65536u
#define ARENA_FIRST_SEGS 16 /* file space of a new arena: 1 MiB of rings */
#define ARENA_STACK_SLOTS 65536u
#define ARENA_MORE_SLOTS (512u << 10) /* of the second index */
#define ARENA_THIRD_SLOTS (2u << 20)
#define ARENA_SMALL_STACKS (32u << 20) /* bytes of stack data */
#define ARENA_LARGE_STACKS (80u << 20) /* where stacks are wanted, instead of so many segments: */
#define ARENA_SEGS_FOR_STACKS 1024u
#define ARENA_MAX_DEPTH 1000u
#define STACK_CHUNK 8u
#define STACK_REST 0xfffe000000000000ull /* | id: the stack goes on there */

#define RING_PENDING_NOW 1u /* a hook is about to publish; its time is not known yet */

struct ring {
	_Atomic uint32_t owner; /* tid; 0: never used; UINT32_MAX: given up, to be taken over */
	_Atomic uint32_t first_seg; /* index + 1 of the oldest segment ever; 0: none yet */
	_Atomic uint32_t last_seg; /* index + 1 of the segment being written */
	uint32_t level; /* 0, or 1 for events inside signal handlers that hit a hook */
	_Atomic uint64_t pending_ns;
	_Atomic uint64_t lost; /* events dropped by this ring's owners */
	uint64_t next_seq; /* of the next segment */
	_Atomic uint64_t activities; /* REC_ACTIVITY, of all its owners */
	_Atomic uint64_t dropped; /* recorder: records that the recording could not take */
	_Atomic uint64_t dropped_to; /* recorder: where the last of them ends, RING_POSITION */
};

/* A place in a ring: number of the segment and offset in it; never 0. */
#define RING_POSITION(seq, off) ((uint64_t)(seq) << 17 | (off))
#define RING_POSITION_SEQ(p) ((p) >> 17)
#define RING_POSITION_OFF(p) ((uint32_t)((p)&0x1ffffu))

/* The header of a segment; records follow, one behind the other, each a multiple of 8 bytes. A
 * record never goes over the end of its segment: what does not fit begins the next one. */
struct seg {
	_Atomic uint32_t used; /* bytes, this header included */
	_Atomic uint32_t next; /* index + 1 of the successor */
	uint32_t ring; /* its number: a reader checks that it is still in the chain it came by */
	uint32_t reserved;
	uint64_t seq; /* 0, 1, 2 … along the ring: tells a recycled segment from what it was */
	uint64_t reserved2[5];
};

struct stack_entry {
	uint32_t hash;
	uint32_t depth;
	uint64_t pc[]; /* innermost first; return addresses, then STACK_PYTHON words, STACK_REST */
};

/* Written before the recorder sees the arena, but for the atomic words. `magic` is stored last,
 * with release: a file without it is being made, or its process died while it made it. */
struct arena_head {
	uint64_t magic;
	uint32_t version;
	uint32_t pid;
	uint32_t ppid;
	_Atomic uint32_t left; /* not 0: nothing more comes, see above */
	uint64_t image_ns; /* when it was made: exec() under the same pid makes another */
	uint64_t address; /* of the arena in its process: tells a reused pid apart */
	uint64_t pid_ns; /* inode of /proc/PID/ns/pid: where that number counts; 0: not known */
	uint64_t file_bytes;
	uint32_t max_rings; /* the geometry below is checked against these by readers */
	uint32_t max_segs;
	uint32_t stack_bytes; /* ARENA_SMALL_STACKS or ARENA_LARGE_STACKS */
	_Atomic uint32_t nrings; /* rings [0, nrings) have been used */
	_Atomic uint32_t nsegs; /* segments [0, nsegs) have file space */
	_Atomic uint32_t has_more; /* not 0: the second stack index has file space */
	_Atomic uint32_t has_third;
	_Atomic uint32_t tracing; /* between start and stop */
	_Atomic uint64_t stack_used; /* bytes of stack data handed out; id 0 stays unused */
	_Atomic uint64_t stack_committed; /* bytes of it that have file space */
	_Atomic uint64_t lost_events; /* dropped where no ring was available */
	_Atomic uint64_t lost_stacks; /* events kept, stack dropped */
	char exe[256];
	char cmdline[512]; /* arguments separated by NUL */
	char visible_devices[256]; /* ASCEND_RT_VISIBLE_DEVICES as it was at the first event */
	_Atomic uint32_t epoch; /* guest: under which threads take rings of it */
	/* Said at exit(), 0 before; files of an older guest end before these. */
	_Atomic uint32_t rank_plus_1; /* as the environment says it then */
	_Atomic uint32_t peak_rss_kib;
	_Atomic uint64_t steps; /* of the job that have ended, told or detected: for who looks on */
};

_Static_assert(sizeof(struct ring) == 64, "ring changed size");
_Static_assert(sizeof(struct seg) == 64, "seg changed size");
_Static_assert(sizeof(struct stack_entry) == 16 - 8, "stack_entry changed size");
_Static_assert(sizeof(struct arena_head) <= 4096, "arena_head outgrew its page");

/* Where the parts begin; only the number of segments and the size of the stack data vary. */
#define ARENA_OFF_RINGS 4096u
#define ARENA_OFF_SEG_STATE (ARENA_OFF_RINGS + ARENA_MAX_RINGS * sizeof(struct ring))
#define ARENA_OFF_STACK_INDEX (ARENA_OFF_SEG_STATE + ARENA_MAX_SEGS * sizeof(uint32_t))
#define ARENA_OFF_MORE_INDEX (ARENA_OFF_STACK_INDEX + ARENA_STACK_SLOTS * sizeof(uint64_t))
#define ARENA_OFF_SEGS (ARENA_OFF_MORE_INDEX + ARENA_MORE_SLOTS * sizeof(uint64_t))

_Static_assert(ARENA_OFF_SEGS % 4096 == 0, "segments must start on a page");
_Static_assert(ARENA_LARGE_STACKS - ARENA_SMALL_STACKS + ARENA_THIRD_SLOTS * 8 ==
		       ARENA_SEGS_FOR_STACKS * ARENA_SEG_SIZE,
	       "stacks take what rings give");

static inline uint64_t arena_off_stacks(uint32_t max_segs)
{
	return ARENA_OFF_SEGS + (uint64_t)max_segs * ARENA_SEG_SIZE;
}

static inline uint64_t arena_bytes(uint32_t max_segs, uint32_t stack_bytes)
{
	uint64_t third = stack_bytes == ARENA_LARGE_STACKS ? ARENA_THIRD_SLOTS * 8ull : 0;

	return arena_off_stacks(max_segs) + stack_bytes + third;
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
	return (struct stack_entry *)((char *)a + arena_off_stacks(a->max_segs) + (uint64_t)id * 8);
}

static inline _Atomic uint64_t *arena_third_index(struct arena_head *a)
{
	return (_Atomic uint64_t *)((char *)a + arena_off_stacks(a->max_segs) + a->stack_bytes);
}

#endif
