/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Blocks that the driver hands out by their address, on devices and on the host. */
#include "device/cuda/hooks/hooks.h"

#include <errno.h>
#include <stdatomic.h>
#include <time.h>

#define SAMPLE_NS 50000000ull /* how often a pool of the driver is asked what it holds */

/* --- one hook at a time --- */

static __thread uint64_t inside_sp __attribute__((tls_model("initial-exec")));

/* Deeper in the stack than one that is open: inside of it. One that was left by longjmp() is not
 * above later ones. */
bool hook_enter(void)
{
	uint64_t sp = (uint64_t)__builtin_frame_address(0);

	if (__builtin_expect(inside_sp && sp < inside_sp, 0))
		return false;
	inside_sp = sp;
	return true;
}

void hook_leave(void)
{
	inside_sp = 0;
}

/* --- what is reported --- */

void report_refusal(struct collect_block *b, int error, const void *caller)
{
	size_t free_bytes = 0, total = 0;
	bool known = error == CU_OUT_OF_MEMORY && b->device != DEV_HOST && driver.mem_get_info &&
		     driver.mem_get_info(&free_bytes, &total) == CU_SUCCESS;

	if (error == CU_OUT_OF_MEMORY)
		collect_driver_oom(b, known ? free_bytes : OOM_UNKNOWN, caller);
}

/* errno is the driver's: ours would be a surprise. */
static void report_block(int r, struct collect_block *b, cu_stream stream, const void *caller)
{
	int saved = errno;

	collect_see_driver();
	if (collect_wants_driver()) {
		struct place at = place_now(stream, caller);

		b->pool = POOL_CUDA;
		b->context = b->kind == ALLOC_ASYNC ? 0 : at.context; /* the pool is the device's */
		b->device = b->kind == ALLOC_PINNED ? DEV_HOST : at.device;
		b->module = collect_library(caller);
		if (r == CU_SUCCESS)
			collect_alloc(b, caller);
		else
			report_refusal(b, r, caller);
	}
	errno = saved;
}

static void report_plain(int r, uint8_t kind, uint64_t addr, uint64_t bytes, const void *caller)
{
	struct collect_block b = {.addr = addr, .size_bytes = bytes, .kind = kind};

	report_block(r, &b, NULL, caller);
}

int hook_mem_alloc(mem_alloc_fn real, const void *caller, cu_address *out, size_t bytes)
{
	INSIDE(real, out, bytes);
	int r = real(out, bytes);
	report_plain(r, ALLOC_PLAIN, r == CU_SUCCESS ? *out : 0, bytes, caller);
	hook_leave();
	return r;
}

int hook_mem_alloc_pitch(mem_alloc_pitch_fn real, const void *caller, cu_address *out,
			 size_t *pitch, size_t width, size_t height, unsigned int element)
{
	INSIDE(real, out, pitch, width, height, element);
	int r = real(out, pitch, width, height, element);
	size_t bytes;
	if (__builtin_mul_overflow(r == CU_SUCCESS ? *pitch : width, height, &bytes))
		bytes = SIZE_MAX; /* of a request that was refused */
	report_plain(r, ALLOC_PLAIN, r == CU_SUCCESS ? *out : 0, bytes, caller);
	hook_leave();
	return r;
}

int hook_mem_alloc_managed(mem_alloc_managed_fn real, const void *caller, cu_address *out,
			   size_t bytes, unsigned int flags)
{
	INSIDE(real, out, bytes, flags);
	int r = real(out, bytes, flags);
	report_plain(r, ALLOC_MANAGED, r == CU_SUCCESS ? *out : 0, bytes, caller);
	hook_leave();
	return r;
}

int hook_mem_alloc_host(mem_alloc_host_fn real, const void *caller, void **out, size_t bytes)
{
	INSIDE(real, out, bytes);
	int r = real(out, bytes);
	report_plain(r, ALLOC_PINNED, r == CU_SUCCESS ? (uint64_t)*out : 0, bytes, caller);
	hook_leave();
	return r;
}

int hook_mem_host_alloc(mem_host_alloc_fn real, const void *caller, void **out, size_t bytes,
			unsigned int flags)
{
	INSIDE(real, out, bytes, flags);
	int r = real(out, bytes, flags);
	report_plain(r, ALLOC_PINNED, r == CU_SUCCESS ? (uint64_t)*out : 0, bytes, caller);
	hook_leave();
	return r;
}

int hook_mem_host_register(mem_host_register_fn real, const void *caller, void *addr, size_t bytes,
			   unsigned int flags)
{
	INSIDE(real, addr, bytes, flags);
	int r = real(addr, bytes, flags);
	report_plain(r, ALLOC_PINNED, (uint64_t)addr, bytes, caller);
	hook_leave();
	return r;
}

/* --- what ends --- */

struct freeing {
	struct collect_block b;
	struct collect_pending p;
};

static struct freeing begin_free(uint8_t kind, uint64_t addr)
{
	struct freeing f = {
		.b = {.addr = addr,
		      .device = kind == ALLOC_PINNED ? DEV_HOST : DEV_NONE,
		      .pool = POOL_CUDA,
		      .kind = kind},
	};

	f.p = collect_free_begin(&f.b);
	return f;
}

static void end_free(const struct freeing *f, int r, const void *caller)
{
	int saved = errno;

	collect_free_end(f->p, &f->b, r == CU_SUCCESS && f->b.addr, caller);
	errno = saved;
}

int hook_mem_free(mem_free_fn real, const void *caller, cu_address addr)
{
	INSIDE(real, addr);
	struct freeing f = begin_free(ALLOC_PLAIN, addr);
	int r = real(addr);
	end_free(&f, r, caller);
	hook_leave();
	return r;
}

int hook_mem_free_host(mem_free_host_fn real, const void *caller, void *addr)
{
	INSIDE(real, addr);
	struct freeing f = begin_free(ALLOC_PINNED, (uint64_t)addr);
	int r = real(addr);
	end_free(&f, r, caller);
	hook_leave();
	return r;
}

int hook_mem_host_unregister(mem_host_unregister_fn real, const void *caller, void *addr)
{
	INSIDE(real, addr);
	struct freeing f = begin_free(ALLOC_PINNED, (uint64_t)addr);
	int r = real(addr);
	end_free(&f, r, caller);
	hook_leave();
	return r;
}

/* --- in the order of a stream, from pools of the driver --- */

static void sample_pool(cu_pool pool, uint16_t device)
{
	uint64_t bytes = 0;

	if (pool && driver.pool_get_attribute &&
	    driver.pool_get_attribute(pool, CU_POOL_RESERVED_NOW, &bytes) == CU_SUCCESS)
		collect_heap(POOL_CUDA, device, HEAP_SET, (uint64_t)pool, (int64_t)bytes);
}

static bool is_sample_due(void)
{
	static _Atomic uint64_t last_ns;
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
	uint64_t now = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
	uint64_t last = atomic_load_explicit(&last_ns, memory_order_relaxed);
	return now - last >= SAMPLE_NS && atomic_compare_exchange_strong(&last_ns, &last, now);
}

static void sample_default_pool(cu_device device)
{
	cu_pool pool = NULL;

	if (driver.device_get_pool && driver.device_get_pool(&pool, device) == CU_SUCCESS)
		sample_pool(pool, device_number(device));
}

int hook_mem_alloc_async(mem_alloc_async_fn real, const void *caller, cu_address *out, size_t bytes,
			 cu_stream stream)
{
	INSIDE(real, out, bytes, stream);
	int r = real(out, bytes, stream);
	struct collect_block b = {
		.addr = r == CU_SUCCESS ? *out : 0, .size_bytes = bytes, .kind = ALLOC_ASYNC};
	cu_device device;
	if (!graphs_capture(stream)) {
		report_block(r, &b, stream, caller);
		if (is_sample_due() && driver.ctx_get_device &&
		    driver.ctx_get_device(&device) == CU_SUCCESS)
			sample_default_pool(device);
	}
	hook_leave();
	return r;
}

int hook_mem_alloc_pool(mem_alloc_pool_fn real, const void *caller, cu_address *out, size_t bytes,
			cu_pool pool, cu_stream stream)
{
	INSIDE(real, out, bytes, pool, stream);
	int r = real(out, bytes, pool, stream), saved = errno;
	struct collect_block b = {
		.addr = r == CU_SUCCESS ? *out : 0, .size_bytes = bytes, .kind = ALLOC_ASYNC};
	collect_see_driver();
	if (collect_wants_driver() && !graphs_capture(stream)) {
		struct place at = place_now(stream, caller);
		b.pool = POOL_CUDA;
		b.device = device_of_pool(pool, at.device);
		b.module = collect_library(caller);
		if (r == CU_SUCCESS)
			collect_alloc(&b, caller);
		else
			report_refusal(&b, r, caller);
		if (is_sample_due())
			sample_pool(pool, b.device);
	}
	errno = saved;
	hook_leave();
	return r;
}

int hook_mem_free_async(mem_free_async_fn real, const void *caller, cu_address addr,
			cu_stream stream)
{
	INSIDE(real, addr, stream);
	struct freeing f = begin_free(ALLOC_ASYNC, addr);
	int r = real(addr, stream);
	end_free(&f, r, caller);
	hook_leave();
	return r;
}

int hook_pool_trim(pool_trim_fn real, const void *caller, cu_pool pool, size_t keep)
{
	(void)caller;
	INSIDE(real, pool, keep);
	int r = real(pool, keep), saved = errno;
	if (r == CU_SUCCESS && collect_wants_driver())
		sample_pool(pool, device_of_pool(pool, place_now(NULL, caller).device));
	errno = saved;
	hook_leave();
	return r;
}
