/* SPDX-License-Identifier: MulanPSL-2.0 */
/* hold_memory MB: takes that much of device 0, says "held", and keeps it until stdin ends. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "acl/acl.h"

int main(int argc, char **argv)
{
	size_t mb = argc > 1 ? strtoul(argv[1], NULL, 10) : 1;
	void *p = NULL;
	char c;

	if (aclInit(NULL) || aclrtSetDevice(0) ||
	    aclrtMalloc(&p, mb << 20, ACL_MEM_MALLOC_HUGE_FIRST))
		return 1;
	puts("held");
	fflush(stdout);
	while (read(STDIN_FILENO, &c, 1) > 0)
		;
	aclrtFree(p);
	aclFinalize();
	return 0;
}
