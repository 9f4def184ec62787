/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Which device a thread works on: the runtime knows, so it is asked. Its library may be loaded
 * late and privately (RTLD_LOCAL), so the search is repeated now and then until it succeeds.
 */
#include "collect/collect.h"

#include <dlfcn.h>
#include <stdatomic.h>

typedef int (*device_getter)(int32_t *out);

static _Atomic(device_getter) getter;

static device_getter find_in(const char *lib, const char *symbol)
{
	void *h = dlopen(lib, RTLD_LAZY | RTLD_NOLOAD);
	device_getter fn = h ? (device_getter)dlsym(h, symbol) : NULL;

	if (h)
		dlclose(h);
	return fn;
}

static device_getter find(void)
{
	static _Atomic uint32_t tries;
	uint32_t n = atomic_fetch_add_explicit(&tries, 1, memory_order_relaxed);

	/* At the 1st, 2nd, 4th, 8th … question, then at every 1024th. */
	if (n > 1024 ? n % 1024 : n & (n - 1))
		return NULL;
	device_getter fn = (device_getter)dlsym(RTLD_DEFAULT, "aclrtGetDeviceImpl");
	if (!fn)
		fn = find_in("libascendcl_impl.so", "aclrtGetDeviceImpl");
	if (!fn)
		fn = find_in("libacl_rt_impl.so", "aclrtGetDeviceImpl");
	if (!fn)
		fn = find_in("libruntime.so", "rtGetDevice");
	if (fn)
		atomic_store(&getter, fn);
	return fn;
}

uint16_t collect_device(void)
{
	device_getter fn = atomic_load_explicit(&getter, memory_order_relaxed);
	int32_t device = -1;

	if (!fn)
		fn = find();
	if (!fn || fn(&device) != 0 || device < 0 || device >= (int32_t)DEV_NONE)
		return DEV_NONE;
	return (uint16_t)device;
}
