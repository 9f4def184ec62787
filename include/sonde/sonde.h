/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * sonde for C and C++ programs: say in your own code where steps begin, what a piece of memory is
 * for, and when to record. Nothing to link: every call is a no-op unless the program runs under
 * `msmemscope` (or with its libraries preloaded).
 *
 *	sonde_label_push("kv_cache");
 *	cache = aclrtMalloc(…);			belongs to kv_cache
 *	sonde_label_pop("kv_cache");
 *
 *	for (…) {
 *		train_one_step();
 *		sonde_step();			ends a step
 *	}
 *
 * All functions may be called from any thread. Text is copied, up to 1024 bytes; labels are cut at
 * 128.
 */
#ifndef SONDE_SONDE_H
#define SONDE_SONDE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Present while the libraries are loaded, NULL otherwise. */
extern void sonde_impl_mark(const char *message) __attribute__((weak));
extern uint64_t sonde_impl_range_start(const char *message) __attribute__((weak));
extern void sonde_impl_range_end(uint64_t range) __attribute__((weak));
extern void sonde_impl_step(void) __attribute__((weak));
extern void sonde_impl_label_push(const char *label) __attribute__((weak));
extern void sonde_impl_label_pop(const char *label) __attribute__((weak));
extern void sonde_impl_label_addr(const void *addr, const char *label) __attribute__((weak));
extern void sonde_impl_label_push_at(int level, const char *label) __attribute__((weak));
extern void sonde_impl_label_addr_at(int level, const void *addr, const char *label)
	__attribute__((weak));
extern void sonde_impl_tracing(int on) __attribute__((weak));
extern int sonde_impl_watch(const void *addr, uint64_t length, const char *name, int dumps)
	__attribute__((weak));
extern void sonde_impl_unwatch(const void *addr) __attribute__((weak));

/* Is anybody listening? */
static inline int sonde_present(void)
{
	return sonde_impl_mark != 0;
}

/* An instant on the timeline. */
static inline void sonde_mark(const char *message)
{
	if (sonde_impl_mark)
		sonde_impl_mark(message);
}

/* A span of time; the message "step start" makes it a step. Returns 0 when nothing records. */
static inline uint64_t sonde_range_start(const char *message)
{
	return sonde_impl_range_start ? sonde_impl_range_start(message) : 0;
}

static inline void sonde_range_end(uint64_t range)
{
	if (sonde_impl_range_end)
		sonde_impl_range_end(range);
}

/* The end of step n and the beginning of step n + 1. Use either this or "step start" ranges. */
static inline void sonde_step(void)
{
	if (sonde_impl_step)
		sonde_impl_step();
}

/*
 * What this thread allocates between push and pop belongs to the label; labels nest, three deep.
 * pop ends the innermost push of the same text.
 */
static inline void sonde_label_push(const char *label)
{
	if (sonde_impl_label_push)
		sonde_impl_label_push(label);
}

static inline void sonde_label_pop(const char *label)
{
	if (sonde_impl_label_pop)
		sonde_impl_label_pop(label);
}

/* The block that contains addr belongs to the label, from its allocation on. */
static inline void sonde_label_addr(const void *addr, const char *label)
{
	if (sonde_impl_label_addr)
		sonde_impl_label_addr(addr, label);
}

/*
 * The same for a framework that tells more than one thing about a block. An owner reads
 * source@component@process@detail_1@detail_2@user…, without what nobody told. Of each level the
 * newest label counts, and those of other levels stay. End a push with sonde_label_pop().
 */
enum sonde_label_level {
	SONDE_LABEL_COMPONENT = 1, /* vllm, fsdp2 */
	SONDE_LABEL_PROCESS = 2, /* what it is doing: warmup, forward */
	SONDE_LABEL_DETAIL_1 = 3, /* what it is: weight, gradient, kv_cache */
	SONDE_LABEL_DETAIL_2 = 4, /* lora, attn */
	SONDE_LABEL_USER = 5, /* as sonde_label_push() and sonde_label_addr() */
};

static inline void sonde_label_push_at(enum sonde_label_level level, const char *label)
{
	if (sonde_impl_label_push_at)
		sonde_impl_label_push_at(level, label);
}

static inline void sonde_label_addr_at(enum sonde_label_level level, const void *addr,
				       const char *label)
{
	if (sonde_impl_label_addr_at)
		sonde_impl_label_addr_at(level, addr, label);
}

/*
 * Watch memory of the current device: a checksum is taken whenever an operator begins or ends,
 * until sonde_unwatch(), the free of its block, or the operator that `--watch=,OP` names. `sonde
 * mem watch` tells who changed it. A second call for an address replaces the first. 1 if it is
 * watched, 0 if nothing records or 256 blocks are watched already.
 */
static inline int sonde_watch(const void *addr, uint64_t length, const char *name)
{
	return sonde_impl_watch ? sonde_impl_watch(addr, length, name, -1) : 0;
}

/* The same for `dumps` looks, of which every operator takes two. */
static inline int sonde_watch_times(const void *addr, uint64_t length, const char *name, int dumps)
{
	return sonde_impl_watch ? sonde_impl_watch(addr, length, name, dumps) : 0;
}

static inline void sonde_unwatch(const void *addr)
{
	if (sonde_impl_unwatch)
		sonde_impl_unwatch(addr);
}

/* Begin and end recording; for runs with --collect-mode=deferred, which start silent. */
static inline void sonde_start(void)
{
	if (sonde_impl_tracing)
		sonde_impl_tracing(1);
}

static inline void sonde_stop(void)
{
	if (sonde_impl_tracing)
		sonde_impl_tracing(0);
}

#ifdef __cplusplus
}
#endif

#endif
