/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Watching memory between operators: the part inside the job. A watched block is read back from the
 * device and summed up whenever an operator of its device begins or ends; the recorder's side finds
 * out who changed it.
 *
 * What is watched: the outputs of the operator `watch_start` of the control page, from its end to
 * the end of the operator `watch_end`, then again; and what the program itself names. A block that
 * is freed is not watched any longer.
 *
 * Nothing here runs, and nothing is paid but one bit test, unless WANT_WATCH is set. While it is,
 * every edge of an operator waits for the device. No lock is held meanwhile: a collective operator
 * may need the other threads of the job to get on.
 */
#ifndef SONDE_COLLECT_WATCH_H
#define SONDE_COLLECT_WATCH_H

#include "collect/collect.h"
#include "guest/guest.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How the device is reached; tests put their own here. Codes other than 0 are errors. */
struct watch_device {
	uint16_t (*current)(void); /* DEV_NONE: the thread works on none */
	int (*wait)(void); /* until all work of the current device is done */
	int (*read)(void *out, uint64_t addr, size_t bytes);
};
extern const struct watch_device *watch_device;

static inline bool watch_is_on(void)
{
	return unlikely(atomic_load_explicit(&guest.want, memory_order_relaxed) & WANT_WATCH);
}

/* Is this thread reading a block right now? What the runtime does for that is not the job's. */
bool watch_is_busy(void);

/* A mark of torch's dispatcher, before (told = false) and after it was written to the ring. */
void watch_mark(const char *message, bool told);

/* Memory comes and goes. */
void watch_alloc(const struct collect_block *b);
void watch_free(const struct collect_block *b);

/* The program's own blocks; dumps < 0: no limit. False: no room, or nothing is recorded. */
bool watch_named(uint64_t addr, uint64_t bytes, const char *name, int32_t dumps);
void watch_unnamed(uint64_t addr);

/* Kernel names, for launches that know only a number. */
void watch_name(uint64_t hash, const char *text, size_t len);
void watch_launched(uint64_t name_hash);

/* --- between the files of this part --- */

/* Does an operator's name mean the one that the user wrote? See watch_names.c. */
bool watch_name_matches(const char *wanted, size_t room, const char *name);
/* The part behind "<device>_<thread>/", where it has one. */
const char *watch_name_plain(const char *name);

/* How often the thread has called the operator; counts this call. 0: no room to count. */
uint32_t watch_count(const char *name, uint16_t device, uint32_t tid);
void watch_count_clear(void);

/* Where blocks of pools end, by where they begin: 0 where it is not known. */
void watch_blocks_put(uint8_t pool, uint64_t addr, uint64_t bytes);
uint64_t watch_blocks_take(uint8_t pool, uint64_t addr);

/* What a block held. */
struct watch_look {
	uint64_t checksum;
	uint64_t content;
	uint32_t error;
	uint8_t content_errno;
};
/* Only while *id is as it was: it is given up otherwise, with ECANCELED. */
struct watch_block {
	uint64_t addr, bytes;
	const _Atomic uint32_t *id;
	uint32_t was;
};
void watch_look(const struct watch_block *b, bool content, struct watch_look *out);
/* Nobody is told of it: what it wrote is removed. */
void watch_look_drop(const struct watch_look *look);

/* The text of a kernel, NULL if it is not known. */
const char *watch_name_text(uint64_t hash);

#endif
