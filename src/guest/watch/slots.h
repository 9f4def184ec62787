/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The blocks that are watched: a table of fixed size. Threads find and leave slots without a lock:
 *
 *	taken 0 → 1		somebody fills it
 *	id 0 → n		it is watched; n is never used twice
 *	id n → 0, taken → 0	it is not any more
 *
 * Who may write what:
 *
 *	taken	compare-and-swap 0 → 1 makes the slot this thread's to fill
 *	words[]	the thread that took it, before the id is set; readers may copy them at the same
 *		time: a copy that is torn is thrown away
 *	id	0 → n by the thread that filled it; n → 0 by compare-and-swap, by anybody who has
 *		read n. A number is never used again, so nobody drops a slot whose former contents
 *		he means
 *	readers	+1 before the memory of the block is read, -1 after
 *
 * A reader copies the words between two loads of the id (acquire, then after acquire loads of the
 * words): equal ids mean that the copy is of that watch. It loads the id once more after it has
 * read the block: what was freed meanwhile is not reported. Who drops a slot because its memory
 * goes away waits for those who are inside (watch_slot_enter()); they check the id after every
 * piece.
 */
#ifndef SONDE_GUEST_WATCH_SLOTS_H
#define SONDE_GUEST_WATCH_SLOTS_H

#include "wire/control_page.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WATCH_SLOTS 256u

struct watched {
	uint64_t addr;
	uint64_t bytes;
	uint32_t id; /* in a copy */
	uint32_t output;
	uint32_t watched_call;
	uint16_t device;
	bool named; /* by the program itself */
	char name[SESSION_NAME_BYTES];
};

#define WATCHED_WORDS ((sizeof(struct watched) + 7) / 8)
#define WATCHED_HEAD ((offsetof(struct watched, name) + 7) / 8) /* all but the name */

struct slot {
	_Atomic uint32_t taken;
	_Atomic uint32_t id;
	_Atomic int32_t readers;
	_Atomic uint64_t seq; /* of the last sample; the upper half is the id */
	_Atomic int32_t left; /* samples; negative: no limit */
	_Atomic uint32_t waits; /* the thread whose operator is not through; 0: none */
	_Atomic uint64_t words[WATCHED_WORDS]; /* struct watched */
};

extern struct slot watch_slots[WATCH_SLOTS];
extern _Atomic uint32_t watch_slots_live; /* how many have an id */

struct slot *watch_slot_take(void); /* NULL: all are taken */
void watch_slot_fill(struct slot *s, struct watched *v, const char *name, int32_t left);
void watch_slot_watch(struct slot *s); /* from here on */
void watch_slot_drop(struct slot *s, uint32_t id);

/* The first words of it, with its id; false: it is not watched. */
bool watch_slot_copy(const struct slot *s, struct watched *out, size_t nwords);

/* One sample is used up; false: there was none left. */
bool watch_slot_use(struct slot *s);

/* The number of the next sample, from 1; 0: it is not watched under that id any more. */
uint32_t watch_slot_next(struct slot *s, uint32_t id);

/* Around the reading of its memory. False: it is not watched under that id any more. */
bool watch_slot_enter(struct slot *s, uint32_t id);
void watch_slot_leave(struct slot *s);

/* Outputs of an operator of this thread that never came to its end. */
void watch_slots_drop_waiting(uint32_t tid);

/* In a forked child: all of it is about its parent's memory. */
void watch_slots_clear(void);

#endif
