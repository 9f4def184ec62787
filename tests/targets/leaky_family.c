/* SPDX-License-Identifier: MulanPSL-2.0 */
/* leaky_family CHILDREN BLOCKS: children one after the other, each of which leaves BLOCKS blocks.
 */
#include "hal/ascend_hal.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define FLAG (1ull << 10 | 7ull << 56) /* device 0, device memory, module RUNTIME */

static void leave(int blocks)
{
	void *p;

	for (int i = 0; i < blocks; i++)
		if (halMemAlloc(&p, 512ull * (1 + (unsigned)i % 7), FLAG))
			_exit(1);
	_exit(0);
}

int main(int argc, char **argv)
{
	int children = argc > 1 ? atoi(argv[1]) : 1, blocks = argc > 2 ? atoi(argv[2]) : 1;
	int status;

	for (int i = 0; i < children; i++) {
		pid_t pid = fork();
		if (pid == 0)
			leave(blocks);
		if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
			return 9;
	}
	printf("done\n");
	return 0;
}
