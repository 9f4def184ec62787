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
 * All functions may be called from any thread. Text is copied, up to 1024 bytes.
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
extern void sonde_impl_tracing(int on) __attribute__((weak));

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

/* What this thread allocates between push and pop belongs to the label; labels nest. */
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

/* The block that contains addr belongs to the label; its FREE row says so if its MALLOC is out. */
static inline void sonde_label_addr(const void *addr, const char *label)
{
	if (sonde_impl_label_addr)
		sonde_impl_label_addr(addr, label);
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
