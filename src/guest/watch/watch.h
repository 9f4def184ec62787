/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Watching memory between operators: the part inside the job. A watched block is read back from the
 * device and summed up whenever an operator of its device begins or ends; the recorder's side finds
 * out who changed it.
 *
 * What is watched: the outputs of the operator `start`, from its end to
 * the end of the operator `end` (watch_settings()), then again; and what the program itself names.
 * A block that is freed is not watched any longer.
 *
 * Nothing here runs, and nothing is paid but one bit test, unless WANT_WATCH is set. While it is,
 * every edge of an operator waits for the device. No lock is held meanwhile: a collective operator
 * may need the other threads of the job to get on.
 *
 *	marks.c    operators of torch, from its dispatcher's marks     \
 *	hooks      operators of ATB, launches of kernels                > watch.c: when
 *	collect.h  blocks that the program names                       /
 *	slots.c    which blocks; names.c  whose operator               sample.c: what they hold
 *
 * Host memory is read through the kernel: what has been unmapped is an error, not a fault.
 */
#ifndef SONDE_GUEST_WATCH_WATCH_H
#define SONDE_GUEST_WATCH_WATCH_H

#include "guest/collect/collect.h"
#include "guest/runtime/guest.h"

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

/* A mark of torch's dispatcher, before (written = false) and after it was written to the ring. */
void watch_mark(const char *message, bool written);

/* Memory comes and goes. */
void watch_alloc(const struct collect_block *b);
void watch_free(const struct collect_block *b);

/* A block of the current device. See collect_watch_named(). */
bool watch_named(uint64_t addr, uint64_t bytes, const char *name, int32_t dumps);
void watch_unnamed(uint64_t addr);

/* Kernel names, for launches that know only a number. */
void watch_name(uint64_t hash, const char *text, size_t len);
void watch_launched(uint64_t name_hash);

/* --- between the files of this part --- */

/* What follows from a block that the program names: operators are reported, and what they use. */
#define WATCH_WANTS (WANT_WATCH | WANT_OP | WANT_ACCESS)

#define WATCH_DEVICES 64u
#define WATCH_NEXT_OUTPUT UINT32_MAX /* of the operator, counted by us */

/* What is watched without being named. The names end with a NUL or with SESSION_NAME_BYTES. */
struct watch_settings {
	const char *start, *end;
	uint32_t output; /* UINT32_MAX: every one */
	bool content;
};
struct watch_settings watch_settings(void);

/* The end was reached, and no start can come again. */
bool watch_is_over(void);

/* Samples what can be reached at the edge of an operator, and writes it. */
struct watch_edge {
	const char *op;
	uint32_t call;
	uint16_t device; /* of the thread */
	bool after;
};
void watch_sample(const struct watch_edge *e, bool host);

/* The same in two parts, where the name comes late. */
void watch_hold(uint16_t device);
void watch_emit_held(const struct watch_edge *e);
void watch_forget_held(void);

/* Does an operator's name mean the one that the user wrote? See guest/watch/names.c. */
bool watch_name_matches(const char *wanted, size_t room, const char *name);
/* The part behind "<device>_<thread>/", where it has one. */
const char *watch_name_plain(const char *name);

/* How often the thread has called the operator; counts this call. 0: no room to count. */
uint32_t watch_count(const char *name, uint16_t device, uint32_t tid);
void watch_count_clear(void);

/* The text of a kernel, NULL if it is not known. */
const char *watch_name_text(uint64_t hash);

#endif
