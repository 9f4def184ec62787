/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Asks for functions of a CUDA driver that is not there, in every way that needs no handle. */
#include <dlfcn.h>
#include <stdio.h>

int main(void)
{
	static const char *const names[] = {"cuInit", "cuMemAlloc_v2", "cuGetProcAddress",
					    "cuMemAllocAsync", "malloc"};

	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		printf("%s %d %d\n", names[i], dlsym(RTLD_DEFAULT, names[i]) != NULL,
		       dlsym(RTLD_NEXT, names[i]) != NULL);
	return 0;
}
