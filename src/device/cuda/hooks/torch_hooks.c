/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Blocks of torch's caching allocator: c10::reportMemoryUsageToProfiler(), which the allocator calls
 * for every block that it hands out or takes back, whether a profiler is on or not. libc10_cuda.so
 * calls it in libc10.so, so a preloaded library comes before.
 *
 *	ptr, bytes           the block; negative bytes: it is freed. Rounded up, as torch counts it
 *	allocated, reserved  what all blocks of the device have now, what the allocator has
 *	device               kind and number; the host and other kinds are not recorded here
 *
 * torch 1.13 has signed sums, torch 2 unsigned ones: two names, the same registers.
 */
#include "guest/collect/collect.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>

#define EXPORT __attribute__((visibility("default")))
#define DEVICE_CUDA 1 /* of c10::DeviceType; HIP builds call their devices so, too */

struct c10_device {
	int8_t type, index;
};

typedef void (*report_fn)(void *ptr, int64_t bytes, uint64_t allocated, uint64_t reserved,
			  struct c10_device device);

EXPORT void report_signed(
	void *ptr, int64_t bytes, uint64_t allocated, uint64_t reserved,
	struct c10_device device) __asm__("_ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE");
EXPORT void report_unsigned(
	void *ptr, int64_t bytes, uint64_t allocated, uint64_t reserved,
	struct c10_device device) __asm__("_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE");

/* In a library that the caller was linked with, wherever and however it was loaded: the caller's own
 * list of libraries has it, and does not have us. */
static report_fn find_real(const char *name, const void *caller)
{
	Dl_info from;
	report_fn fn = (report_fn)dlsym(RTLD_NEXT, name);

	if (fn || !dladdr(caller, &from) || !from.dli_fname)
		return fn;
	void *library = dlopen(from.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
	if (library) { /* it stays: it is the caller's */
		fn = (report_fn)dlsym(library, name);
		dlclose(library);
	}
	return fn;
}

static void record_block(const void *ptr, int64_t bytes, uint64_t reserved,
			 struct c10_device device, const void *caller)
{
	if (device.type != DEVICE_CUDA || device.index < 0)
		return;
	struct collect_torch t = {
		.addr = (uint64_t)ptr,
		.bytes = bytes,
		.reserved_bytes = reserved,
		.index = (uint16_t)device.index,
	};
	collect_torch_block(&t, caller);
}

#define REPORT(function, name)                                                                     \
	void function(void *ptr, int64_t bytes, uint64_t allocated, uint64_t reserved,             \
		      struct c10_device device)                                                    \
	{                                                                                          \
		static _Atomic(report_fn) real;                                                    \
		const void *caller = __builtin_return_address(0);                                  \
		report_fn fn = atomic_load_explicit(&real, memory_order_relaxed);                  \
                                                                                                   \
		if (__builtin_expect(!fn, 0)) {                                                    \
			fn = find_real(name, caller);                                              \
			atomic_store_explicit(&real, fn, memory_order_relaxed);                    \
		}                                                                                  \
		record_block(ptr, bytes, reserved, device, caller);                                \
		if (fn)                                                                            \
			fn(ptr, bytes, allocated, reserved, device);                               \
	}

REPORT(report_signed, "_ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE")
REPORT(report_unsigned, "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE")
