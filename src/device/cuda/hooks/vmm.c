/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Virtual memory of devices: addresses, physical memory behind handles, and what lies where. Which
 * handle still has references and mappings is for the recorder to count (struct rec_vmm).
 */
#include "device/cuda/hooks/hooks.h"

#include <errno.h>

int hook_mem_create(mem_create_fn real, const void *caller, cu_handle *out, size_t bytes,
		    const struct cu_allocation_prop *prop, unsigned long long flags)
{
	INSIDE(real, out, bytes, prop, flags);
	int r = real(out, bytes, prop, flags), saved = errno;
	collect_see_driver();
	if (prop && collect_wants_driver()) {
		bool host = prop->location.type != CU_LOCATION_DEVICE;
		struct collect_block b = {
			.addr = r == CU_SUCCESS ? *out : 0,
			.size_bytes = bytes,
			.device = host ? DEV_HOST : device_number(prop->location.id),
			.pool = POOL_CUDA,
			.kind = ALLOC_CREATE,
			.module = collect_library(caller),
		};
		devices_report(CU_SUCCESS);
		if (r == CU_SUCCESS)
			collect_alloc(&b, caller);
		else
			report_refusal(&b, r, caller);
	}
	errno = saved;
	hook_leave();
	return r;
}

static void report_change(int r, const struct collect_vmm *v, const void *caller)
{
	int saved = errno;

	if (r == CU_SUCCESS)
		collect_vmm(v, caller);
	errno = saved;
}

static void end_change(struct collect_pending p, int r, const struct collect_vmm *v,
		       const void *caller)
{
	int saved = errno;

	collect_vmm_end(p, v, r == CU_SUCCESS, caller);
	errno = saved;
}

int hook_mem_release(mem_release_fn real, const void *caller, cu_handle handle)
{
	INSIDE(real, handle);
	struct collect_vmm v = {.handle = handle, .op = VMM_RELEASE};
	struct collect_pending p = collect_driver_begin();
	int r = real(handle);
	end_change(p, r, &v, caller);
	hook_leave();
	return r;
}

int hook_mem_map(mem_map_fn real, const void *caller, cu_address addr, size_t bytes, size_t offset,
		 cu_handle handle, unsigned long long f)
{
	INSIDE(real, addr, bytes, offset, handle, f);
	int r = real(addr, bytes, offset, handle, f);
	struct collect_vmm v = {addr, bytes, handle, offset, VMM_MAP};
	report_change(r, &v, caller);
	hook_leave();
	return r;
}

int hook_mem_unmap(mem_unmap_fn real, const void *caller, cu_address addr, size_t bytes)
{
	INSIDE(real, addr, bytes);
	struct collect_vmm v = {.addr = addr, .bytes = bytes, .op = VMM_UNMAP};
	struct collect_pending p = collect_driver_begin();
	int r = real(addr, bytes);
	end_change(p, r, &v, caller);
	hook_leave();
	return r;
}

int hook_mem_retain(mem_retain_fn real, const void *caller, cu_handle *out, void *addr)
{
	INSIDE(real, out, addr);
	int r = real(out, addr);
	struct collect_vmm v = {
		.addr = (uint64_t)addr, .handle = r == CU_SUCCESS ? *out : 0, .op = VMM_RETAIN};
	report_change(r, &v, caller);
	hook_leave();
	return r;
}

int hook_mem_import(mem_import_fn real, const void *caller, cu_handle *out, void *shareable,
		    int type)
{
	INSIDE(real, out, shareable, type);
	int r = real(out, shareable, type);
	struct collect_vmm v = {.handle = r == CU_SUCCESS ? *out : 0, .op = VMM_IMPORT};
	report_change(r, &v, caller);
	hook_leave();
	return r;
}

int hook_address_reserve(address_reserve_fn real, const void *caller, cu_address *out, size_t bytes,
			 size_t align, cu_address hint, unsigned long long f)
{
	INSIDE(real, out, bytes, align, hint, f);
	int r = real(out, bytes, align, hint, f);
	struct collect_vmm v = {
		.addr = r == CU_SUCCESS ? *out : 0, .bytes = bytes, .op = VMM_RESERVE};
	report_change(r, &v, caller);
	hook_leave();
	return r;
}

int hook_address_free(address_free_fn real, const void *caller, cu_address addr, size_t bytes)
{
	INSIDE(real, addr, bytes);
	struct collect_vmm v = {.addr = addr, .bytes = bytes, .op = VMM_UNRESERVE};
	struct collect_pending p = collect_driver_begin();
	int r = real(addr, bytes);
	end_change(p, r, &v, caller);
	hook_leave();
	return r;
}
