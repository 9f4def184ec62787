/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What the driver is asked: its version, its devices and how the job counts them. */
#include "device/cuda/hooks/hooks.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define VISIBLE "CUDA_VISIBLE_DEVICES"
#define MAX_DEVICES 64

struct driver driver;
static _Atomic bool initialised; /* by a call that came to us */

/* The newest name first; a driver that has none of them is not asked. */
static const struct {
	void *at;
	const char *names[2];
} asked[] = {
	{&driver.ctx_get_current, {"cuCtxGetCurrent"}},
	{&driver.ctx_get_device, {"cuCtxGetDevice"}},
	{&driver.primary_get_state, {"cuDevicePrimaryCtxGetState"}},
	{&driver.stream_get_ctx, {"cuStreamGetCtx"}},
	{&driver.stream_is_capturing, {"cuStreamIsCapturing"}},
	{&driver.ctx_push, {"cuCtxPushCurrent_v2"}},
	{&driver.ctx_pop, {"cuCtxPopCurrent_v2"}},
	{&driver.mem_get_info, {"cuMemGetInfo_v2"}},
	{&driver.device_get_count, {"cuDeviceGetCount"}},
	{&driver.device_get, {"cuDeviceGet"}},
	{&driver.device_get_name, {"cuDeviceGetName"}},
	{&driver.device_total_mem, {"cuDeviceTotalMem_v2"}},
	{&driver.device_get_uuid, {"cuDeviceGetUuid_v2", "cuDeviceGetUuid"}},
	{&driver.device_get_attribute, {"cuDeviceGetAttribute"}},
	{&driver.device_get_pool, {"cuDeviceGetMemPool"}},
	{&driver.pool_get_attribute, {"cuMemPoolGetAttribute"}},
	{&driver.driver_get_version, {"cuDriverGetVersion"}},
	{&driver.graph_get_attribute, {"cuDeviceGetGraphMemAttribute"}},
	{&driver.graph_node_get_type, {"cuGraphNodeGetType"}},
};

/* Threads that race here find the same. */
void driver_find(void *real)
{
	static _Atomic bool done;
	Dl_info info;

	if (atomic_load_explicit(&done, memory_order_acquire) || !dladdr(real, &info) ||
	    !info.dli_fname)
		return;
	void *lib = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
	if (!lib || !next_dlsym(lib, "cuCtxGetCurrent"))
		return; /* not the driver itself, but somebody before it */
	for (size_t i = 0; i < sizeof(asked) / sizeof(asked[0]); i++) {
		void *fn = next_dlsym(lib, asked[i].names[0]);

		if (!fn && asked[i].names[1])
			fn = next_dlsym(lib, asked[i].names[1]);
		memcpy(asked[i].at, &fn, sizeof(fn));
	}
	atomic_store_explicit(&done, true, memory_order_release);
}

/* --- numbers --- */

static uint16_t numbers[MAX_DEVICES];
static _Atomic int nnumbers = -1; /* -1: not read; 0: as the job counts */

/* "2,0": the job's device 0 is 2. Anything else, such as names: as the job counts them. */
static int read_visible(void)
{
	const char *s = getenv(VISIBLE);
	int n = 0;

	while (s && *s && n < MAX_DEVICES) {
		unsigned v = 0, digits = 0;

		for (; *s && *s != ','; s++) {
			if (*s == ' ')
				continue;
			if (*s < '0' || *s > '9' || ++digits > 4)
				return 0;
			v = v * 10 + (unsigned)(*s - '0');
		}
		if (!digits || v >= DEV_NONE)
			return 0;
		numbers[n++] = (uint16_t)v;
		s += *s == ',';
	}
	return n;
}

uint16_t device_number(cu_device device)
{
	int n = atomic_load_explicit(&nnumbers, memory_order_acquire);

	if (n < 0) {
		n = read_visible();
		atomic_store_explicit(&nnumbers, n, memory_order_release);
	}
	if (device < 0 || device >= (int)DEV_NONE)
		return DEV_NONE;
	return device < n ? numbers[device] : (uint16_t)device;
}

/* --- what there is --- */

static void report_device(struct rec_gpu *r, int index)
{
	char name[128] = "";
	cu_device device = index;
	size_t total = 0;
	int mps = 0;

	if (driver.device_get && driver.device_get(&device, index) != CU_SUCCESS)
		return;
	if (driver.device_get_name)
		(void)driver.device_get_name(name, sizeof(name) - 1, device);
	if (driver.device_total_mem && driver.device_total_mem(&total, device) == CU_SUCCESS)
		r->total_bytes = total;
	if (driver.device_get_uuid)
		(void)driver.device_get_uuid(r->uuid, device);
	if (driver.device_get_attribute)
		(void)driver.device_get_attribute(&mps, CU_ATTRIBUTE_MPS_ENABLED, device);
	r->flags = GPU_BLOCKS | (mps == 1 ? GPU_MPS : 0) | (strstr(name, " MIG ") ? GPU_MIG : 0);
	r->device = device_number(device);
	r->index = (uint16_t)index;
	collect_gpu(r, name, getenv(VISIBLE));
}

static void report_all(int error)
{
	int count = 0, version = 0;

	if (driver.driver_get_version)
		(void)driver.driver_get_version(&version);
	if (error == CU_SUCCESS && driver.device_get_count)
		(void)driver.device_get_count(&count);
	struct rec_gpu r = {
		.driver = (uint32_t)version, .error = (uint32_t)error, .count = (uint16_t)count};
	if (count <= 0) {
		r.device = r.index = DEV_NONE;
		collect_gpu(&r, NULL, getenv(VISIBLE));
	}
	for (int i = 0; i < count && i < MAX_DEVICES; i++) {
		struct rec_gpu each = r;
		report_device(&each, i);
	}
}

/* The epoch is another one in each process of a tree; a failure may be followed by success. */
void devices_report(int error)
{
	static _Atomic uint64_t done;
	uint64_t now = (uint64_t)collect_epoch() << 32 | (uint32_t)(error + 1);
	uint64_t before = atomic_load_explicit(&done, memory_order_relaxed);
	int saved = errno;

	if (before == now || !collect_tracing())
		return;
	now = (uint64_t)collect_epoch() << 32 | (uint32_t)(error + 1); /* joined by the question */
	if (before != now && atomic_compare_exchange_strong(&done, &before, now))
		report_all(error);
	errno = saved;
}

/* Most often because others have taken the memory, or the device for themselves (nvidia-smi -c). */
void devices_report_refused(cu_device device, int error, const void *caller)
{
	struct collect_block b = {
		.device = device_number(device), .pool = POOL_CUDA, .kind = ALLOC_CONTEXT};
	struct rec_gpu r = {.error = (uint32_t)error};
	int saved = errno;

	devices_report(CU_SUCCESS);
	b.module = collect_library(caller);
	report_device(&r, device);
	if (error == CU_OUT_OF_MEMORY && b.device != DEV_NONE)
		collect_driver_oom(&b, OOM_UNKNOWN, caller);
	errno = saved;
}

/* Of all namespaces of dlmopen(), which glibc lists since 2.35. */
static bool is_driver_loaded(void)
{
	struct listed {
		struct r_debug debug;
		const struct listed *next;
	};
	const struct listed *all = (const void *)&_r_debug;

	for (; all; all = all->debug.r_version > 1 ? all->next : NULL)
		for (const struct link_map *o = all->debug.r_map; o; o = o->l_next) {
			const char *slash = o->l_name ? strrchr(o->l_name, '/') : NULL;

			if (slash && !strncmp(slash + 1, "libcuda.so", strlen("libcuda.so")))
				return true;
		}
	return false;
}

/* Nobody has asked for a function of a driver that is there: it was not used, or bound in a way that
 * leaves preloaded libraries out. */
__attribute__((destructor)) static void report_unseen(void)
{
	struct rec_gpu r = {.device = DEV_NONE, .index = DEV_NONE, .flags = GPU_UNSEEN};

	if (!atomic_load(&initialised) && is_driver_loaded())
		collect_gpu(&r, NULL, getenv(VISIBLE));
}

/* Open to calls inside of it: the driver brings in tools, which may allocate. */
int hook_init(init_fn real, const void *caller, unsigned int flags)
{
	(void)caller;
	atomic_store_explicit(&initialised, true, memory_order_relaxed);
	int r = real(flags);
	devices_report(r);
	return r;
}
