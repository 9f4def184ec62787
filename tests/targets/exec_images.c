/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Images of one process: each allocates 200 blocks, leaves N of them, and execs itself with N - 1.
 */
#include "hal/ascend_hal.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define BLOCKS 200

int main(int argc, char **argv)
{
	int left = argc > 1 ? atoi(argv[1]) : 4;
	void *p[BLOCKS];
	char number[16];

	for (int i = 0; i < BLOCKS; i++)
		if (halMemAlloc(&p[i], 4096, 1 << 10))
			return 1;
	for (int i = left; i < BLOCKS; i++)
		halMemFree(p[i]);
	if (left <= 1)
		return 0;
	snprintf(number, sizeof(number), "%d", left - 1);
	execl(argv[0], argv[0], number, (char *)NULL);
	return 1;
}
