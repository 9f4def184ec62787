/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What hooks call: one function per kind of fact. Each decides by itself whether the fact is
 * wanted; a hook just reports. Exported by libsonde_guest.so to the preload libraries.
 *
 * `caller` is __builtin_return_address(0) of the hook: stacks begin there.
 *
 * Order matters: an allocation is reported after the real call succeeded; a free is bracketed, so
 * that its time lies before the moment the address can be handed out again.
 */
#ifndef SONDE_COLLECT_COLLECT_H
#define SONDE_COLLECT_COLLECT_H

#include "wire/record.h"
#include "wire/session.h"

#include <stdbool.h>
#include <stdint.h>

/*
 * In the job's global namespace our names begin with sonde_, whatever they are called here: a job
 * may have a collect_free() of its own.
 */
#define EXPORTED(name) __asm__("sonde_" #name)

#pragma GCC visibility push(default)

struct collect_block {
	uint64_t addr;
	uint64_t size_bytes;
	uint16_t device;
	uint8_t pool; /* enum rec_pool */
	uint8_t kind; /* enum rec_alloc_kind */
	uint8_t page; /* enum rec_page */
	uint8_t module;
};

/* Is any of these (enum session_want) being recorded right now? */
bool collect_wants(uint32_t want) EXPORTED(collect_wants);

/* Is this process being recorded at all right now? */
bool collect_tracing(void) EXPORTED(collect_tracing);

void collect_alloc(const struct collect_block *b, const void *caller) EXPORTED(collect_alloc);

/* A free that cannot fail, reported before the memory goes back. Uses addr, device, pool, kind. */
void collect_free(const struct collect_block *b, const void *caller) EXPORTED(collect_free);

/*
 * A free that can fail: begin, call the real one, then end(…, true) only if it succeeded. From the
 * beginning on the block is not read any more, by whoever watches it.
 */
struct collect_pending {
	uint64_t time_ns; /* 0: not recording */
	bool held;
};
struct collect_pending collect_free_begin(const struct collect_block *b)
	EXPORTED(collect_free_begin);
void collect_free_end(struct collect_pending p, const struct collect_block *b, bool happened,
		      const void *caller) EXPORTED(collect_free_end);

/* What a pool holds from the driver; see enum rec_heap_mode. */
void collect_heap(uint8_t pool, uint16_t device, uint8_t mode, uint64_t addr, int64_t bytes)
	EXPORTED(collect_heap);

/* The driver had no memory left. */
void collect_oom(uint16_t device, uint8_t kind, uint64_t size, uint64_t flag, const void *caller)
	EXPORTED(collect_oom);

/* Text longer than REC_MAX_TEXT is cut. extra (domain, attributes) may be NULL. */
void collect_mark(uint8_t kind, uint64_t range, const char *message, const char *domain)
	EXPORTED(collect_mark);
void collect_op(uint8_t kind, const char *name, const char *attrs, const void *caller)
	EXPORTED(collect_op);
void collect_access(const struct collect_block *b, uint8_t access, const char *op,
		    const char *attrs) EXPORTED(collect_access);
void collect_system(uint8_t kind, uint64_t value) EXPORTED(collect_system);
void collect_label(uint8_t kind, uint8_t level, uint64_t addr, const char *label)
	EXPORTED(collect_label);

/* Kernels. Launches nest (acl calls rt): only the outermost is one launch. */
bool collect_launch_enter(void) EXPORTED(
	collect_launch_enter); /* true: this is the outermost; call collect_launch_leave() */
void collect_launch_leave(void) EXPORTED(collect_launch_leave);
void collect_kernel(uint8_t kind, uint64_t time_ns, uint64_t name_hash, uint16_t device,
		    uint16_t stream, uint16_t task) EXPORTED(collect_kernel);
void collect_name(uint64_t hash, const char *text, size_t len) EXPORTED(collect_name);

/*
 * Watched memory (watch.h): an operator begins, has an output, ends; all three in its own thread.
 * Names as the framework gives them. ACL and runtime launches have no name before they are through.
 * Only while collect_wants(WANT_WATCH).
 */
void collect_watch_begin(const char *op) EXPORTED(collect_watch_begin);
void collect_watch_output(const char *op, uint64_t addr, uint64_t bytes, uint32_t index)
	EXPORTED(collect_watch_output);
void collect_watch_end(const char *op) EXPORTED(collect_watch_end);
void collect_watch_launch(void) EXPORTED(collect_watch_launch);
void collect_watch_launched(void) EXPORTED(collect_watch_launched);

/*
 * Tells a process from those it was forked from: what was noted under another value was noted in
 * another process. 0 or UINT32_MAX before the first event.
 */
uint32_t collect_epoch(void) EXPORTED(collect_epoch);

/* The device that the calling thread works on, DEV_NONE if nobody knows. */
uint16_t collect_device(void) EXPORTED(collect_device);

/* A new id for a range, counted per process from 1. */
uint64_t collect_range_id(void) EXPORTED(collect_range_id);

/* start/stop of tracing in this process (deferred collection). */
void collect_set_tracing(bool on) EXPORTED(collect_set_tracing);

/* Steps of the step API: n = 1, 2, … per process. */
void collect_step(void) EXPORTED(collect_step);

#pragma GCC visibility pop

#endif
