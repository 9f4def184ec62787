/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * --attribute: which module of a model and which line of the program launches what a device
 * executes. The source reports launches; Python's side (src/python/_monitor/attribution.c) follows
 * the modules, and has no hook anywhere before somebody wants that, or afterwards.
 */
#include "guest/monitor/monitor_impl.h"

static void (*_Atomic listener)(void);
static _Atomic uint32_t wanted_by; /* the process that wants it; 0: none */

bool monitor_attributes(void)
{
	uint32_t pid = atomic_load(&wanted_by);

	return pid && pid == (uint32_t)getpid();
}

void monitor_on_attribute(void (*fn)(void))
{
	atomic_store(&listener, fn);
}

void attribute_switch(const struct activity_source *s, bool on)
{
	bool was = monitor_attributes();

	if (s && s->attribute)
		s->attribute(on);
	atomic_store(&wanted_by, on ? (uint32_t)getpid() : 0);
	void (*fn)(void) = was != on ? atomic_load(&listener) : NULL;
	if (fn)
		fn();
}
