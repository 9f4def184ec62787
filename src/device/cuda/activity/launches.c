/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Which calls of the runtime and the driver give work to a device. Those alone are reported where a
 * library can do that (cuptiActivityEnableRuntimeApi(), CUDA 12.4 and later): all calls would cost a
 * job several percent. What cuBLAS and Triton launch by the driver, and what programs launch by the
 * runtime, have one record each.
 *
 * The kind is switched on first, and then the other calls off: a call that is switched on alone after
 * the context was made is not reported. Switching the kind on again forgets what was switched off.
 *
 * The library looks at every call then, also at those that are off, which cost a step that launches
 * bound a quarter on an H200. Before there is a context launches can be switched on alone, and nothing
 * else is looked at: in programs that were started for that (SONDE_PREPARE_ATTRIBUTE).
 */
#include "device/cuda/activity/cupti.h"

#include <stdatomic.h>
#include <string.h>

#define CALLS 1024u

static _Atomic uint64_t launches[2][CALLS / 64];

static bool is_launch(const char *name)
{
	if (strstr(name, "HostFunc"))
		return false;
	if (strstr(name, "Graph"))
		return strstr(name, "GraphLaunch");
	return strstr(name, "Launch") || strstr(name, "Memcpy") || strstr(name, "Memset");
}

bool cupti_is_launch(int domain, uint32_t cbid)
{
	return cbid < CALLS &&
	       (atomic_load_explicit(&launches[domain == CUPTI_DOMAIN_RUNTIME][cbid / 64],
				     memory_order_relaxed) >>
			(cbid % 64) &
		1);
}

static void find_launches(const struct cupti *fns, int domain)
{
	for (uint32_t cbid = 1; cbid < CALLS; cbid++) {
		const char *name = NULL;
		if (fns->callback_name(domain, cbid, &name) == CUPTI_OK && name && is_launch(name))
			atomic_fetch_or(&launches[domain == CUPTI_DOMAIN_RUNTIME][cbid / 64],
					1ull << (cbid % 64));
	}
}

static void switch_domain(const struct cupti *fns, int domain, bool on)
{
	bool runtime = domain == CUPTI_DOMAIN_RUNTIME;
	cupti_result (*one)(uint32_t, uint8_t) = runtime ? fns->runtime_call : fns->driver_call;
	uint32_t kind = runtime ? CUPTI_RUNTIME : CUPTI_DRIVER;
	const char *name;

	if (!on) {
		(void)fns->disable(kind);
		return;
	}
	if (fns->enable(kind) != CUPTI_OK || !one)
		return;
	for (uint32_t cbid = 1; cbid < CALLS; cbid++)
		if (!cupti_is_launch(domain, cbid) &&
		    fns->callback_name(domain, cbid, &name) == CUPTI_OK)
			(void)one(cbid, 0);
}

static void find_all(const struct cupti *fns)
{
	static bool found;

	if (found)
		return;
	find_launches(fns, CUPTI_DOMAIN_RUNTIME);
	find_launches(fns, CUPTI_DOMAIN_DRIVER);
	found = true;
}

bool cupti_launches_switch_each(const struct cupti *fns, bool on)
{
	if (!fns->runtime_call || !fns->driver_call)
		return false;
	find_all(fns);
	for (uint32_t cbid = 1; cbid < CALLS; cbid++) {
		if (cupti_is_launch(CUPTI_DOMAIN_RUNTIME, cbid))
			(void)fns->runtime_call(cbid, on);
		if (cupti_is_launch(CUPTI_DOMAIN_DRIVER, cbid))
			(void)fns->driver_call(cbid, on);
	}
	return true;
}

void cupti_launches_switch(const struct cupti *fns, bool runtime, bool driver, bool on)
{
	find_all(fns);
	if (runtime)
		switch_domain(fns, CUPTI_DOMAIN_RUNTIME, on);
	if (driver)
		switch_domain(fns, CUPTI_DOMAIN_DRIVER, on);
}
