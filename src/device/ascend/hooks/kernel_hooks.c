/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * libascend_kernel_hook.so: ACL life cycle and kernel launches. Frameworks look for this very file
 * name in LD_PRELOAD to decide whether to report their pools.
 *
 * A launch is seen twice: the hook notes when it was entered, and the runtime, inside the real
 * call, reports through the profiling callback which kernel went to which stream. When it ran is
 * the device's to say (stars_reader.h). All of this starts at the first launch while kernel
 * launches are asked for, so that other profilers are left in peace.
 */
#include "device/ascend/abi.h"
#include "device/ascend/hooks/real.h"
#include "device/ascend/hooks/stars_reader.h"
#include "guest/collect/collect.h"
#include "guest/runtime/guest.h"

#include <errno.h>
#include <stdatomic.h>

#define EXPORT __attribute__((visibility("default")))

static const char *const acl_libs[] = {"libascendcl.so", NULL};
static const char *const impl_libs[] = {"libascendcl_impl.so", "libacl_rt_impl.so", NULL};
static const char *const rt_libs[] = {"libruntime.so", NULL};

/*
 * Names that this process has announced, so that each is written once. An entry is the name's id
 * mixed with the epoch: what a forked child finds of its parent matches nothing, and it announces
 * its names again, to its own arena. A name that finds no place is announced every time.
 *
 * Another thread's launch may carry an earlier time than the announcement that it relies on, and
 * would then be reported first. So in its first second a name is announced by every thread that
 * uses it; `recent` keeps that to once per thread.
 */
#define NAMES 4096u
#define NAME_PROBES 16u
#define NAME_YOUNG_NS 1000000000ull

static struct name {
	_Atomic uint64_t tag;
	_Atomic uint64_t since_ns; /* 0: being announced */
} names[NAMES];

static __thread uint64_t recent[16] __attribute__((tls_model("initial-exec")));

static struct name *name_slot(uint64_t tag)
{
	for (uint32_t i = 0; i < NAME_PROBES; i++) {
		struct name *n = &names[((tag >> 32) + i) % NAMES];
		uint64_t seen = 0;
		if (atomic_compare_exchange_strong(&n->tag, &seen, tag) || seen == tag)
			return n;
	}
	return NULL;
}

static void announce_kernel(uint64_t id, const char *text, size_t len)
{
	uint32_t epoch = collect_epoch();
	uint64_t tag = (id ^ (uint64_t)epoch * 0x9e3779b97f4a7c15ull) * 0xff51afd7ed558ccdull | 1;
	uint64_t *mine = &recent[tag >> 60];

	if (*mine == tag)
		return;
	struct name *n = epoch && epoch != UINT32_MAX ? name_slot(tag) : NULL;
	uint64_t since = n ? atomic_load(&n->since_ns) : 0;
	if (!since || guest_now_coarse() - since < NAME_YOUNG_NS)
		collect_name(id, text, len);
	if (n && !since)
		atomic_store(&n->since_ns, guest_now_coarse());
	if (n)
		*mine = tag;
}

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
	announce_kernel(id, text, len);
	return id;
}

static int32_t on_compact(uint32_t aging, const void *data, uint32_t len)
{
	const struct prof_compact *c = data;

	(void)aging;
	if (!data || len < sizeof(*c) || c->magic != PROF_MAGIC || c->level != PROF_LEVEL_RUNTIME)
		return 0;
	if (c->type == PROF_TYPE_TASK_TRACK) {
		collect_kernel(KERNEL_LAUNCH, 0, c->task.name_hash, c->task.device, c->task.stream,
			       (uint16_t)c->task.task);
		stars_reader_launched(&c->task);
	} else if (c->type == PROF_TYPE_STREAM_EXPAND) {
		stars_reader_expanded(c->bytes[0] != 0);
	}
	return 0;
}

static int32_t on_api(uint32_t aging, const void *data)
{
	(void)aging;
	(void)data;
	return 0;
}

static void *find_in(const char *lib, const char *name)
{
	void *fn = dlsym(RTLD_DEFAULT, name);

	return fn ? fn : real_in_library(lib, name, RTLD_LAZY | RTLD_NOLOAD);
}

static void register_callbacks(void)
{
	static atomic_flag done = ATOMIC_FLAG_INIT;

	if (!collect_wants(WANT_KERNEL) || atomic_flag_test_and_set(&done))
		return;
	int (*reg)(int, void *, uint32_t) = (int (*)(int, void *, uint32_t))find_in(
		"libprofapi.so", "MsprofRegisterProfileCallback");
	if (!reg)
		return;
	reg(PROF_CB_HASH, (void *)on_hash, sizeof(void *));
	reg(PROF_CB_COMPACT, (void *)on_compact, sizeof(void *));
	reg(PROF_CB_API, (void *)on_api, sizeof(void *));
}

/* The driver's number of a device that the runtime counts as `logical`. */
static uint32_t driver_device(uint32_t logical)
{
	const char *s = getenv("ASCEND_RT_VISIBLE_DEVICES");

	for (uint32_t i = 0; s && *s; i++) {
		uint32_t n = 0;
		const char *begin = s;
		for (; *s >= '0' && *s <= '9' && s - begin < 6; s++)
			n = n * 10 + (uint32_t)(*s - '0');
		if (s == begin)
			break;
		if (i == logical)
			return n;
		while (*s == ' ' || *s == ',')
			s++;
	}
	return logical;
}

/* Asks the runtime to report the tasks of a device, and the device to report their times. */
static void channel_open(uint32_t device)
{
	static struct prof_driver driver;
	struct prof_command cmd = {
		.switches = PROF_SWITCH_TASKS,
		.ndevices = 1,
		.devices = {device},
		.model = UINT32_MAX,
		.type = PROF_COMMAND_START,
	};
	int (*command)(void *, uint32_t) =
		(int (*)(void *, uint32_t))find_in("libprofapi.so", "profSetProfCommand");
	const char *(*soc_name)(void) =
		(const char *(*)(void))find_in(acl_libs[0], "aclrtGetSocName");
	static const char hal[] = "libascend_hal.so";

	if (command)
		command(&cmd, sizeof(cmd));
	driver.info = (__typeof__(driver.info))find_in(hal, "halGetDeviceInfo");
	driver.start = (__typeof__(driver.start))find_in(hal, "prof_drv_start");
	driver.read = (__typeof__(driver.read))find_in(hal, "prof_channel_read");
	driver.stop = (__typeof__(driver.stop))find_in(hal, "prof_stop");
	if (!driver.start || !driver.read || !driver.stop)
		return;
	const char *soc = soc_name ? soc_name() : NULL;
	bool newer = soc && (strstr(soc, "950") || strstr(soc, "960"));
	stars_reader_start(&driver, device, newer ? STARS_SHORT : STARS_LONG);
}

/* Epoch of the process for which the channel of a device, as the runtime counts, was opened. */
#define MAX_DEVICES 64u
static _Atomic uint32_t opened[MAX_DEVICES];

/* Before an outermost launch. In the steady state: one question to the runtime, one compare. */
static void before_launch(void)
{
	uint32_t device = collect_device(), epoch = collect_epoch();

	if (collect_wants(WANT_WATCH))
		collect_watch_launch();
	if (device >= MAX_DEVICES ||
	    atomic_load_explicit(&opened[device], memory_order_relaxed) == epoch)
		return;
	int saved = errno;
	register_callbacks();
	if (atomic_exchange(&opened[device], epoch) != epoch)
		channel_open(driver_device(device));
	errno = saved;
}

static void after_launch(void)
{
	collect_launch_leave();
	if (collect_wants(WANT_WATCH))
		collect_watch_launched();
}

static void close_channels(void)
{
	stars_reader_stop();
	for (uint32_t i = 0; i < MAX_DEVICES; i++)
		atomic_store(&opened[i], 0);
}

EXPORT int aclInit(const char *config)
{
	__typeof__(&aclInit) real = REAL(aclInit, NULL, acl_libs);

	if (!real)
		return ACL_ERROR_NOT_FOUND;
	int r = real(config);
	int saved = errno;
	if (r == 0)
		collect_system(SYSTEM_ACL_INIT, 0);
	register_callbacks();
	errno = saved;
	return r;
}

EXPORT int aclFinalize(void)
{
	__typeof__(&aclFinalize) real = REAL(aclFinalize, NULL, acl_libs);

	if (!real)
		return ACL_ERROR_NOT_FOUND;
	close_channels(); /* they must not outlive the device's context */
	int r = real();
	if (r == 0)
		collect_system(SYSTEM_ACL_FINI, 0);
	return r;
}

EXPORT int aclrtSetDevice(int32_t device)
{
	__typeof__(&aclrtSetDevice) real = REAL(aclrtSetDevice, NULL, acl_libs);

	return real ? real(device) : ACL_ERROR_NOT_FOUND;
}

/* One launch, whatever it goes through: acl calls rt, and only the outermost counts. */
#define LAUNCH(name, libs, missing, ...)                                                           \
	__typeof__(&name) real = REAL(name, NULL, libs);                                           \
	if (!real)                                                                                 \
		return missing;                                                                    \
	bool outermost = collect_launch_enter();                                                   \
	if (outermost)                                                                             \
		before_launch();                                                                   \
	int r = real(__VA_ARGS__);                                                                 \
	if (outermost)                                                                             \
		after_launch();                                                                    \
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
