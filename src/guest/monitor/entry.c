/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * How the monitor notices that this process is a job: it initialises the runtime of an NPU. (On
 * GPUs the driver itself calls InitializeInjection(), see src/device/cuda.) A shell, a launcher, a
 * data loader never do, and so cost nothing.
 */
#include "device/ascend/hooks/real.h"
#include "guest/monitor/impl.h"
#include "guest/monitor/monitor.h"

#define EXPORT __attribute__((visibility("default")))

int aclInit(const char *config);
int aclrtSetDevice(int32_t device);
int rtSetDevice(int32_t device);

EXPORT int aclInit(const char *config)
{
	static const char *const libs[] = {"libascendcl.so", NULL};
	__typeof__(&aclInit) real = REAL(aclInit, NULL, libs);
	int r = real ? real(config) : -1;

	monitor_wake();
	return r;
}

EXPORT int aclrtSetDevice(int32_t device)
{
	static const char *const libs[] = {"libascendcl.so", NULL};
	__typeof__(&aclrtSetDevice) real = REAL(aclrtSetDevice, NULL, libs);
	int r = real ? real(device) : -1;

	monitor_wake();
	return r;
}

EXPORT int rtSetDevice(int32_t device)
{
	static const char *const libs[] = {"libruntime.so", NULL};
	__typeof__(&rtSetDevice) real = REAL(rtSetDevice, NULL, libs);
	int r = real ? real(device) : -1;

	monitor_wake();
	return r;
}

/* CUDA_INJECTION64_PATH: the driver loads us when the job initialises it, and calls this. */

__attribute__((visibility("default"))) int InitializeInjection(void);
__attribute__((visibility("default"))) int InitializeInjection(void)
{
	monitor_wake();
	return 1;
}
