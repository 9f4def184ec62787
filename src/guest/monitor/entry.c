/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * How the monitor notices that this process is a job: it initialises the runtime of an NPU. (On
 * GPUs the driver itself calls InitializeInjection(), see src/device/cuda.) A shell, a launcher, a
 * data loader never do, and so cost nothing.
 */
#include "device/ascend/hooks/real.h"
#include "guest/monitor/monitor.h"
#include "guest/monitor/monitor_impl.h"
#include "guest/runtime/env.h"

#define PREPARE_ENV "SONDE_PREPARE_ATTRIBUTE" /* as launch/monitor.c sets it */
#define EXPORT __attribute__((visibility("default")))

/* A function of the vendor's runtime: called through, and the monitor woken behind it. */
#define WAKES(name, type, lib)                                                                     \
	EXPORT int name(type argument);                                                            \
	EXPORT int name(type argument)                                                             \
	{                                                                                          \
		static const char *const libs[] = {lib, NULL};                                     \
		__typeof__(&name) real = REAL(name, NULL, libs);                                   \
		int r = real ? real(argument) : -1;                                                \
                                                                                                   \
		monitor_wake();                                                                    \
		return r;                                                                          \
	}

WAKES(aclInit, const char *, "libascendcl.so")
WAKES(aclrtSetDevice, int32_t, "libascendcl.so")
WAKES(rtSetDevice, int32_t, "libruntime.so")

/* CUDA_INJECTION64_PATH: the driver loads us when the job initialises it, and calls this. */
__attribute__((visibility("default"))) int InitializeInjection(void);
__attribute__((visibility("default"))) int InitializeInjection(void)
{
	char wanted[2];

	guest_env_copy(PREPARE_ENV, wanted, sizeof(wanted));
	if (wanted[0] == '1')
		source_prepare();
	monitor_wake();
	return 1;
}
