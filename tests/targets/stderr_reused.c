/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Loses a block in every step, and has something else at descriptor 2 when it ends: the file that
 * is named, or nothing. usage: stderr_reused FILE|-
 */
#include "acl/acl.h"
#include "mstx/ms_tools_ext.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	void *p;

	if (argc != 2 || aclInit(NULL) || aclrtSetDevice(0))
		return 1;
	for (int i = 0; i < 5; i++) {
		uint64_t id = mstxRangeStartA("step start", NULL);
		if (aclrtMalloc(&p, 1 << 20, ACL_MEM_MALLOC_HUGE_FIRST))
			return 1;
		mstxRangeEnd(id);
	}
	close(2);
	if (strcmp(argv[1], "-") != 0 && open(argv[1], O_WRONLY | O_CREAT | O_TRUNC, 0600) != 2)
		return 1;
	puts("done");
	return 0;
}
