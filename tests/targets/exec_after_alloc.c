/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Allocates device memory, then becomes the program of its arguments. */
#include "acl/acl.h"

#include <unistd.h>

int main(int argc, char **argv)
{
	void *p;

	if (argc < 2 || aclInit(NULL) || aclrtSetDevice(0))
		return 1;
	for (int i = 0; i < 2; i++)
		if (aclrtMalloc(&p, 4096, ACL_MEM_MALLOC_HUGE_FIRST))
			return 1;
	execv(argv[1], argv + 1);
	return 1;
}
