/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What the device says about kernels, without any I/O: records of the STARS channel, the device's
 * counter as host time, and the table that finds the launch behind a record.
 *
 * A record says "task T of stream S began (ended) at counter C" and nothing else; which kernel that
 * was is known from the launch, which the runtime reported a moment earlier under the same numbers.
 *
 * Every byte of a record is foreign. The table is filled by all launching threads and read by one
 * thread per device, without locks: what does not fit or was overwritten is simply not found.
 */
#ifndef SONDE_DEVICE_ASCEND_HOOKS_STARS_H
#define SONDE_DEVICE_ASCEND_HOOKS_STARS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STARS_STREAM_UNKNOWN 0xffffu

/* Bytes of a record: the chip decides. */
enum stars_format { STARS_LONG = 64, STARS_SHORT = 32 };

struct stars_event {
	uint64_t counter;
	uint16_t stream; /* STARS_STREAM_UNKNOWN in short records, which do not say */
	uint16_t task;
	bool ends;
};

/*
 * Calls fn for every record in [buf, buf + len) that is the begin or the end of a task; `expanded`
 * is how the runtime packs stream numbers. Returns the bytes consumed: whole records only.
 */
size_t stars_each(const void *buf, size_t len, enum stars_format format, bool expanded,
		  void (*fn)(void *arg, const struct stars_event *e), void *arg);

/* counter0 was read at host time mono0_ns. */
struct stars_clock {
	uint64_t counter0;
	uint64_t mono0_ns;
	uint32_t khz;
};

/* The counter's frequency from what the driver answered, in whatever unit it did. */
uint32_t stars_khz(int64_t reported);

/* CLOCK_MONOTONIC ns of a counter value; before or after the anchor, never out of range. */
uint64_t stars_time(const struct stars_clock *c, uint64_t counter);

struct stars_launch {
	uint64_t name_hash;
	uint64_t launch_ns;
	uint64_t start_ns; /* 0: has not begun */
	uint16_t device;
	uint16_t stream;
	uint16_t task;
};

#define STARS_SETS 8192u
#define STARS_WAYS 8u

struct stars_slot {
	_Atomic uint64_t key; /* 0 free, 1 being written, else device, stream, task */
	_Atomic uint64_t name_hash;
	_Atomic uint64_t launch_ns;
	_Atomic uint64_t start_ns;
};

/* All zeros is empty. by_task: records carry no stream, so that the task alone must find it. */
struct stars_tasks {
	bool by_task;
	struct stars_slot slot[STARS_SETS][STARS_WAYS];
};

/* Any thread. The oldest launch of a full set makes room. */
void stars_tasks_put(struct stars_tasks *t, const struct stars_launch *l);

/*
 * The launch behind a record of `device`; one thread per device. A begin leaves it in the table
 * with start_ns as its start, an end takes it out. False: unknown, *out_launch untouched.
 */
bool stars_tasks_match(struct stars_tasks *t, uint16_t device, const struct stars_event *e,
		       uint64_t start_ns, struct stars_launch *out_launch);

#endif
