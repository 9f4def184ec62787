/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The functions behind include/sonde/sonde.h. Programs do not link with us: the header declares
 * these as weak symbols and calls them if they are there. So their names and types are for ever;
 * each is a thin layer over collect.h, and checks what a program may get wrong.
 */
#include "sonde/sonde.h"

#include "guest/collect/collect.h"
#include "guest/watch/watch.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT void sonde_impl_mark(const char *message)
{
	collect_mark(MARK_INSTANT, 0, message, NULL);
}

EXPORT uint64_t sonde_impl_range_start(const char *message)
{
	if (!collect_tracing())
		return 0;
	uint64_t id = collect_range_id();
	collect_mark(MARK_RANGE_START, id, message, NULL);
	return id;
}

EXPORT void sonde_impl_range_end(uint64_t range)
{
	if (range)
		collect_mark(MARK_RANGE_END, range, NULL, NULL);
}

EXPORT void sonde_impl_step(void)
{
	collect_step();
}

EXPORT void sonde_impl_label_push(const char *label)
{
	collect_label(LABEL_PUSH, SONDE_LABEL_USER, 0, label);
}

EXPORT void sonde_impl_label_pop(const char *label)
{
	collect_label(LABEL_POP, SONDE_LABEL_USER, 0, label);
}

EXPORT void sonde_impl_label_addr(const void *addr, const char *label)
{
	collect_label(LABEL_ADDR, SONDE_LABEL_USER, (uint64_t)addr, label);
}

static bool is_level(int level)
{
	return level >= SONDE_LABEL_COMPONENT && level <= SONDE_LABEL_USER;
}

EXPORT void sonde_impl_label_push_at(int level, const char *label)
{
	if (is_level(level))
		collect_label(LABEL_PUSH, (uint8_t)level, 0, label);
}

EXPORT void sonde_impl_label_addr_at(int level, const void *addr, const char *label)
{
	if (is_level(level))
		collect_label(LABEL_ADDR, (uint8_t)level, (uint64_t)addr, label);
}

EXPORT int sonde_impl_watch(const void *addr, uint64_t length, const char *name, int dumps)
{
	return watch_named((uint64_t)addr, length, name, dumps);
}

EXPORT void sonde_impl_unwatch(const void *addr)
{
	if (watch_is_on())
		watch_unnamed((uint64_t)addr);
}

EXPORT void sonde_impl_tracing(int on)
{
	collect_set_tracing(on != 0);
}
