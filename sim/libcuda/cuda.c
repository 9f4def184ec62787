/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The driver, as far as it brings a tool into the job: see cuInit() of the real one. */
#include "cupti/cupti.h"

#include <dlfcn.h>
#include <stdlib.h>

int cuInit(unsigned int flags)
{
	static int done;
	const char *path = getenv("CUDA_INJECTION64_PATH");

	(void)flags;
	if (done++ || !path || !*path)
		return 0;
	void *lib = dlopen(path, RTLD_LAZY);
	int (*init)(void) = lib ? (int (*)(void))dlsym(lib, "InitializeInjection") : NULL;
	return init && !init() ? 999 : 0;
}
