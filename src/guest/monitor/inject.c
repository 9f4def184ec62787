/* SPDX-License-Identifier: MulanPSL-2.0 */
/* CUDA_INJECTION64_PATH: the driver loads us when the job initialises it, and calls this. */
#include "guest/monitor/monitor.h"

__attribute__((visibility("default"))) int InitializeInjection(void);
__attribute__((visibility("default"))) int InitializeInjection(void)
{
	monitor_wake();
	return 1;
}
