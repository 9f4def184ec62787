/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Which device a thread works on: the runtime knows, so it is asked. Its library may be loaded
 * late and privately (RTLD_LOCAL), so the search is repeated now and then until it succeeds.
 */
#include "guest/watch/watch.h"

#include <dlfcn.h>
#include <stdatomic.h>

typedef int (*device_getter)(int32_t *out);

static _Atomic(device_getter) getter;
static _Atomic uint16_t given = DEV_NONE; /* by the framework; counts where no runtime is */

static device_getter find_in(const char *lib, const char *symbol)
{
	void *h = dlopen(lib, RTLD_LAZY | RTLD_NOLOAD);
	device_getter fn = h ? (device_getter)dlsym(h, symbol) : NULL;

	if (h)
		dlclose(h);
	return fn;
}

/* dlsym() takes the loader's lock and allocates: so seldom, and never again once it has
 * succeeded. RTLD_NOLOAD: nothing is loaded because of us. */
static device_getter find_getter(void)
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

	if (!fn && !guest_is_sealed())
		fn = find_getter();
	if (!fn || fn(&device) != 0 || device < 0 || device >= (int32_t)DEV_NONE)
		return atomic_load_explicit(&given, memory_order_relaxed);
	return (uint16_t)device;
}

void collect_set_device(uint16_t device)
{
	atomic_store_explicit(&given, device, memory_order_relaxed);
}

/* --- reading memory back, for watch.h --- */

#define COPY_TO_HOST 2
#define NOT_FOUND 500000 /* what ACL says when a function is not there */

typedef int (*copy_fn)(void *to, size_t room, const void *from, size_t bytes, int kind);
typedef int (*wait_fn)(void);
typedef int (*wait_stream_fn)(void *stream);

static void *find_acl(const char *name)
{
	void *fn = dlsym(RTLD_DEFAULT, name);
	void *h = fn ? NULL : dlopen("libascendcl.so", RTLD_LAZY | RTLD_NOLOAD);

	if (h) {
		fn = dlsym(h, name);
		dlclose(h);
	}
	return fn;
}

/*
 * All streams of the device, since nobody says on which one an operator runs. A runtime without
 * that call is asked to wait for its default stream.
 */
static int device_wait(void)
{
	static _Atomic(wait_fn) wait;
	static _Atomic(wait_stream_fn) wait_stream;

	if (!atomic_load(&wait) && !atomic_load(&wait_stream)) {
		atomic_store(&wait, (wait_fn)find_acl("aclrtSynchronizeDevice"));
		atomic_store(&wait_stream, (wait_stream_fn)find_acl("aclrtSynchronizeStream"));
	}
	if (atomic_load(&wait))
		return atomic_load(&wait)();
	return atomic_load(&wait_stream) ? atomic_load(&wait_stream)(NULL) : NOT_FOUND;
}

static int device_read(void *out, uint64_t addr, size_t bytes)
{
	static _Atomic(copy_fn) copy;

	if (!atomic_load(&copy))
		atomic_store(&copy, (copy_fn)find_acl("aclrtMemcpy"));
	return atomic_load(&copy)
		       ? atomic_load(&copy)(out, bytes, (const void *)addr, bytes, COPY_TO_HOST)
		       : NOT_FOUND;
}

static const struct watch_device runtime = {collect_device, device_wait, device_read};
const struct watch_device *watch_device = &runtime;
