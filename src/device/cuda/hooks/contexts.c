/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Contexts: in which one a thread allocates, on which device it is, and when it ends with all that
 * was allocated in it. They are met at their first allocation; nobody has to see them being made.
 *
 *	table[i]	handle, 0: free or ended; its number, which is never used twice
 *
 * Two threads that meet a context at once may give it two numbers; both end with it.
 */
#include "device/cuda/hooks/hooks.h"

#include <errno.h>
#include <stdatomic.h>

#define MAX_CONTEXTS 255u /* at once */
#define MAX_NUMBER 65535u /* of a context, in records */
#define MAX_POOLS 64u
#define MAX_PRIMARY 64u

#define CLAIMED 1u /* no handle of the driver: an entry that is being filled in */

struct known {
	_Atomic uint64_t handle;
	_Atomic uint32_t device, number;
};

static struct known table[MAX_CONTEXTS];
static _Atomic uint32_t ncontexts; /* entries that were ever used */
static _Atomic uint32_t numbered; /* contexts that were ever met */
static _Atomic uint32_t ended; /* how many times one has: what threads remember is old */
static _Atomic uint64_t primary[MAX_PRIMARY]; /* by the job's number of the device */

static struct {
	_Atomic uint64_t handle;
	_Atomic uint32_t device;
} pools[MAX_POOLS];

/* The last context of the thread. */
static __thread struct {
	uint64_t handle;
	struct place at;
	uint32_t ended;
} last __attribute__((tls_model("initial-exec")));

static uint32_t count_known(void)
{
	uint32_t n = atomic_load_explicit(&ncontexts, memory_order_acquire);

	return n < MAX_CONTEXTS ? n : MAX_CONTEXTS;
}

static bool is_primary(uint64_t handle)
{
	for (unsigned i = 0; i < MAX_PRIMARY; i++)
		if (atomic_load_explicit(&primary[i], memory_order_relaxed) == handle)
			return true;
	return false;
}

static cu_device device_of_context(cu_context ctx)
{
	cu_context other = NULL;
	cu_device device = -1;
	bool pushed = driver.ctx_push && driver.ctx_pop && driver.ctx_push(ctx) == CU_SUCCESS;

	if (!driver.ctx_get_device || driver.ctx_get_device(&device) != CU_SUCCESS)
		device = -1;
	if (pushed)
		(void)driver.ctx_pop(&other);
	return device;
}

/* That of a context which has ended, or a new one; NULL: there is no room. */
static struct known *claim_entry(void)
{
	uint32_t n = count_known();

	for (uint32_t i = 0; i < n; i++) {
		uint64_t none = 0;
		if (atomic_compare_exchange_strong(&table[i].handle, &none, CLAIMED))
			return &table[i];
	}
	n = n < MAX_CONTEXTS ? atomic_fetch_add(&ncontexts, 1) : n;
	if (n >= MAX_CONTEXTS)
		return NULL;
	uint64_t none = 0; /* unless another thread has been quicker */
	return atomic_compare_exchange_strong(&table[n].handle, &none, CLAIMED) ? &table[n] : NULL;
}

static struct place add_context(cu_context ctx, const void *caller)
{
	struct place at = {device_number(device_of_context(ctx)), 0};
	uint32_t number = atomic_load(&numbered) < MAX_NUMBER ? atomic_fetch_add(&numbered, 1) + 1
							      : MAX_NUMBER + 1;
	struct known *k = number <= MAX_NUMBER ? claim_entry() : NULL;

	devices_report(CU_SUCCESS);
	if (!k)
		return at;
	at.context = (uint16_t)number;
	atomic_store(&k->device, at.device);
	atomic_store(&k->number, number);
	atomic_store(&k->handle, (uint64_t)ctx);
	struct collect_context c = {
		.handle = (uint64_t)ctx,
		.context = at.context,
		.device = at.device,
		.op = CONTEXT_BEGIN,
		.flags = is_primary((uint64_t)ctx) ? CONTEXT_PRIMARY : 0,
	};
	collect_context(&c, caller);
	return at;
}

static struct place place_of(cu_context ctx, const void *caller)
{
	uint32_t n = count_known();

	for (uint32_t i = 0; i < n; i++)
		if (atomic_load_explicit(&table[i].handle, memory_order_relaxed) == (uint64_t)ctx)
			return (struct place){(uint16_t)atomic_load(&table[i].device),
					      (uint16_t)atomic_load(&table[i].number)};
	return add_context(ctx, caller);
}

/* A stream may be of another context than the thread; asked only where there are several. */
static cu_context context_now(cu_stream stream)
{
	cu_context ctx = NULL;

	if ((uint64_t)stream > 2 && count_known() > 1 && driver.stream_get_ctx &&
	    driver.stream_get_ctx(stream, &ctx) == CU_SUCCESS && ctx)
		return ctx;
	if (driver.ctx_get_current && driver.ctx_get_current(&ctx) == CU_SUCCESS)
		return ctx;
	return NULL;
}

struct place place_now(cu_stream stream, const void *caller)
{
	cu_context ctx = context_now(stream);
	uint32_t now = atomic_load_explicit(&ended, memory_order_relaxed);

	if (!ctx)
		return (struct place){DEV_NONE, 0};
	if (last.handle != (uint64_t)ctx || last.ended != now) {
		last.at = place_of(ctx, caller);
		last.handle = (uint64_t)ctx;
		last.ended = now;
	}
	return last.at;
}

/* --- the end --- */

static void end_contexts(struct collect_pending p, uint64_t handle, bool happened,
			 const void *caller)
{
	uint32_t n = count_known();
	int saved = errno;

	for (uint32_t i = 0; happened && handle && i < n; i++) {
		if (atomic_load(&table[i].handle) != handle)
			continue;
		struct collect_context c = {
			.handle = handle,
			.context = (uint16_t)atomic_load(&table[i].number),
			.device = (uint16_t)atomic_load(&table[i].device),
			.op = CONTEXT_END,
			.flags = is_primary(handle) ? CONTEXT_PRIMARY : 0,
		};
		atomic_store(&table[i].handle, 0);
		collect_context_end((struct collect_pending){p.time_ns, false}, &c, true, caller);
	}
	if (happened)
		atomic_fetch_add(&ended, 1);
	collect_context_end(p, NULL, false, caller);
	errno = saved;
}

int hook_ctx_destroy(ctx_destroy_fn real, const void *caller, cu_context ctx)
{
	INSIDE(real, ctx);
	struct collect_pending p = collect_driver_begin();
	int r = real(ctx);
	end_contexts(p, (uint64_t)ctx, r == CU_SUCCESS, caller);
	hook_leave();
	return r;
}

int hook_primary_retain(primary_retain_fn real, const void *caller, cu_context *out,
			cu_device device)
{
	INSIDE(real, out, device);
	int r = real(out, device);
	if (r == CU_SUCCESS && out && (unsigned)device < MAX_PRIMARY)
		atomic_store(&primary[device], (uint64_t)*out);
	else if (r != CU_SUCCESS && r != CU_NOT_INITIALIZED && r != CU_INVALID_DEVICE)
		devices_report_refused(device, r, caller);
	hook_leave();
	return r;
}

static uint64_t primary_of(cu_device device)
{
	return (unsigned)device < MAX_PRIMARY ? atomic_load(&primary[device]) : 0;
}

static bool is_active(cu_device device)
{
	unsigned int flags = 0;
	int active = 1;

	return !driver.primary_get_state ||
	       driver.primary_get_state(device, &flags, &active) != CU_SUCCESS || active;
}

int hook_primary_release(primary_release_fn real, const void *caller, cu_device device)
{
	INSIDE(real, device);
	struct collect_pending p = collect_driver_begin();
	int r = real(device);
	end_contexts(p, primary_of(device), r == CU_SUCCESS && !is_active(device), caller);
	hook_leave();
	return r;
}

int hook_primary_reset(primary_reset_fn real, const void *caller, cu_device device)
{
	INSIDE(real, device);
	struct collect_pending p = collect_driver_begin();
	int r = real(device);
	end_contexts(p, primary_of(device), r == CU_SUCCESS, caller);
	hook_leave();
	return r;
}

/* --- pools of the driver --- */

static void remember_pool(cu_pool pool, uint32_t device)
{
	for (unsigned i = 0; i < MAX_POOLS; i++) {
		uint64_t none = 0;
		if (atomic_compare_exchange_strong(&pools[i].handle, &none, (uint64_t)pool)) {
			atomic_store(&pools[i].device, device);
			return;
		}
	}
}

uint16_t device_of_pool(cu_pool pool, uint16_t otherwise)
{
	for (unsigned i = 0; i < MAX_POOLS; i++)
		if (atomic_load_explicit(&pools[i].handle, memory_order_relaxed) == (uint64_t)pool)
			return (uint16_t)atomic_load(&pools[i].device);
	return otherwise;
}

int hook_pool_create(pool_create_fn real, const void *caller, cu_pool *out,
		     const struct cu_pool_props *props)
{
	(void)caller;
	INSIDE(real, out, props);
	int r = real(out, props);
	if (r == CU_SUCCESS && out && props)
		remember_pool(*out, props->location.type == CU_LOCATION_DEVICE
					    ? device_number(props->location.id)
					    : DEV_HOST);
	hook_leave();
	return r;
}

int hook_pool_destroy(pool_destroy_fn real, const void *caller, cu_pool pool)
{
	(void)caller;
	INSIDE(real, pool);
	uint16_t device = device_of_pool(pool, DEV_NONE);
	int r = real(pool), saved = errno;
	for (unsigned i = 0; r == CU_SUCCESS && i < MAX_POOLS; i++)
		if (atomic_load(&pools[i].handle) == (uint64_t)pool)
			atomic_store(&pools[i].handle, 0);
	if (r == CU_SUCCESS && collect_wants_driver())
		collect_heap(POOL_CUDA, device, HEAP_SET, (uint64_t)pool, 0);
	errno = saved;
	hook_leave();
	return r;
}
