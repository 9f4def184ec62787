/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * libascend_kernel_hook.so: ACL life cycle and kernel launches. Frameworks look for this very file
 * name in LD_PRELOAD to decide whether to report their pools.
 *
 * A launch is seen twice: the hook notes when it was entered, and the runtime, inside the real
 * call, reports through the profiling callback which kernel went to which stream. Callbacks are
 * registered only when kernel launches are asked for, so that other profilers are left in peace.
 */
#include "collect/collect.h"
#include "device/ascend/abi.h"
#include "device/ascend/real.h"

#include <stdatomic.h>

#define EXPORT __attribute__((visibility("default")))

static const char *const acl_libs[] = {"libascendcl.so", NULL};
static const char *const impl_libs[] = {"libascendcl_impl.so", "libacl_rt_impl.so", NULL};
static const char *const rt_libs[] = {"libruntime.so", NULL};

/* The id that the runtime will use for a name: two polynomial hashes side by side. */
static uint64_t on_hash(const char *text, size_t len)
{
	uint32_t high = 0, low = 0;

	if (!text)
		return 0;
	for (size_t i = 0; i < len; i++) {
		high = high * 29 + (uint32_t)text[i];
		low = low * 131 + (uint32_t)text[i];
	}
	uint64_t id = (uint64_t)high << 32 | low;
	collect_name(id, text, len);
	return id;
}

static int32_t on_compact(uint32_t aging, const void *data, uint32_t len)
{
	const struct prof_compact *c = data;

	(void)aging;
	if (!data || len < sizeof(*c) || c->magic != PROF_MAGIC)
		return 0;
	if (c->level == PROF_LEVEL_RUNTIME && c->type == PROF_TYPE_TASK_TRACK)
		collect_kernel(KERNEL_LAUNCH, 0, c->task.name_hash, c->task.device, c->task.stream,
			       (uint16_t)c->task.task);
	return 0;
}

static int32_t on_api(uint32_t aging, const void *data)
{
	(void)aging;
	(void)data;
	return 0;
}

static void register_callbacks(void)
{
	static atomic_flag done = ATOMIC_FLAG_INIT;

	if (!collect_wants(WANT_KERNEL) || atomic_flag_test_and_set(&done))
		return;
	void *h = dlopen("libprofapi.so", RTLD_LAZY | RTLD_NOLOAD);
	int (*reg)(int, void *, uint32_t) =
		(int (*)(int, void *, uint32_t))dlsym(h ? h : RTLD_DEFAULT,
						      "MsprofRegisterProfileCallback");
	if (!reg)
		return;
	reg(PROF_CB_HASH, (void *)on_hash, sizeof(void *));
	reg(PROF_CB_COMPACT, (void *)on_compact, sizeof(void *));
	reg(PROF_CB_API, (void *)on_api, sizeof(void *));
}

EXPORT int aclInit(const char *config)
{
	__typeof__(&aclInit) real = REAL(aclInit, NULL, acl_libs);

	if (!real)
		return ACL_ERROR_NOT_FOUND;
	int r = real(config);
	if (r == 0)
		collect_system(SYSTEM_ACL_INIT, 0);
	register_callbacks();
	return r;
}

EXPORT int aclFinalize(void)
{
	__typeof__(&aclFinalize) real = REAL(aclFinalize, NULL, acl_libs);

	if (!real)
		return ACL_ERROR_NOT_FOUND;
	int r = real();
	if (r == 0)
		collect_system(SYSTEM_ACL_FINI, 0);
	return r;
}

/* One launch, whatever it goes through: acl calls rt, and only the outermost counts. */
#define LAUNCH(name, libs, missing, ...)                                                           \
	__typeof__(&name) real = REAL(name, NULL, libs);                                           \
	if (!real)                                                                                 \
		return missing;                                                                    \
	bool outermost = collect_launch_enter();                                                   \
	if (outermost)                                                                             \
		register_callbacks();                                                              \
	int r = real(__VA_ARGS__);                                                                 \
	if (outermost)                                                                             \
		collect_launch_leave();                                                            \
	return r

EXPORT int aclrtLaunchKernelImpl(void *fn, uint32_t blocks, const void *args, size_t n,
				 void *stream)
{
	LAUNCH(aclrtLaunchKernelImpl, impl_libs, ACL_ERROR_LAUNCH, fn, blocks, args, n, stream);
}

EXPORT int aclrtLaunchKernelV2Impl(void *fn, uint32_t blocks, const void *args, size_t n, void *cfg,
				   void *stream)
{
	LAUNCH(aclrtLaunchKernelV2Impl, impl_libs, ACL_ERROR_LAUNCH, fn, blocks, args, n, cfg,
	       stream);
}

EXPORT int aclrtLaunchKernelWithConfig(void *fn, uint32_t blocks, void *stream, void *cfg,
				       void *args, void *reserve)
{
	LAUNCH(aclrtLaunchKernelWithConfig, acl_libs, ACL_ERROR_LAUNCH, fn, blocks, stream, cfg,
	       args, reserve);
}

EXPORT int aclrtLaunchKernelWithHostArgs(void *fn, uint32_t blocks, void *stream, void *cfg,
					 void *args, size_t n, void *holders, size_t nholders)
{
	LAUNCH(aclrtLaunchKernelWithHostArgs, acl_libs, ACL_ERROR_LAUNCH, fn, blocks, stream, cfg,
	       args, n, holders, nholders);
}

EXPORT int rtKernelLaunch(const void *stub, uint32_t blocks, void *args, uint32_t n, void *desc,
			  void *stream)
{
	LAUNCH(rtKernelLaunch, rt_libs, RT_ERROR_RESERVED, stub, blocks, args, n, desc, stream);
}

EXPORT int rtKernelLaunchWithHandleV2(void *handle, uint64_t key, uint32_t blocks, void *args,
				      void *desc, void *stream, const void *cfg)
{
	LAUNCH(rtKernelLaunchWithHandleV2, rt_libs, RT_ERROR_RESERVED, handle, key, blocks, args,
	       desc, stream, cfg);
}

EXPORT int rtKernelLaunchWithFlagV2(const void *stub, uint32_t blocks, void *args, void *desc,
				    void *stream, uint32_t flags, const void *cfg)
{
	LAUNCH(rtKernelLaunchWithFlagV2, rt_libs, RT_ERROR_RESERVED, stub, blocks, args, desc,
	       stream, flags, cfg);
}

EXPORT int rtAicpuKernelLaunchExWithArgs(uint32_t type, const char *op, uint32_t blocks,
					 const void *args, void **desc, void *stream,
					 uint32_t flags)
{
	LAUNCH(rtAicpuKernelLaunchExWithArgs, rt_libs, RT_ERROR_RESERVED, type, op, blocks, args,
	       desc, stream, flags);
}

EXPORT int rtLaunchKernelByFuncHandle(void *fn, uint32_t blocks, void *args, void *stream)
{
	LAUNCH(rtLaunchKernelByFuncHandle, rt_libs, RT_ERROR_RESERVED, fn, blocks, args, stream);
}

EXPORT int rtLaunchKernelByFuncHandleV2(void *fn, uint32_t blocks, void *args, void *stream,
					const void *cfg)
{
	LAUNCH(rtLaunchKernelByFuncHandleV2, rt_libs, RT_ERROR_RESERVED, fn, blocks, args, stream,
	       cfg);
}
