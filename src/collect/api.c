/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The functions behind include/sonde/sonde.h. */
#include "sonde/sonde.h"

#include "collect/collect.h"

#define EXPORT __attribute__((visibility("default")))

#define LABEL_USER 5 /* first level that belongs to the user */

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
	collect_label(LABEL_PUSH, LABEL_USER, 0, label);
}

EXPORT void sonde_impl_label_pop(const char *label)
{
	collect_label(LABEL_POP, LABEL_USER, 0, label);
}

EXPORT void sonde_impl_label_addr(const void *addr, const char *label)
{
	collect_label(LABEL_ADDR, LABEL_USER, (uint64_t)addr, label);
}

EXPORT void sonde_impl_tracing(int on)
{
	collect_set_tracing(on != 0);
}
