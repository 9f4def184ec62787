/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * chain COUNTER TIMES PAIRS HOW: makes PAIRS allocations and frees, then becomes itself again with
 * TIMES - 1, in the same process. The last one ends: return, or stay (sleeps for ever).
 */
#include "counted.h"

#include <string.h>

int main(int argc, char **argv)
{
	char left[16];

	if (argc != 5)
		return 98;
	int times = atoi(argv[2]);
	counted_open(argv[1]);
	counted_churn(0, strtoul(argv[3], NULL, 10));
	if (times <= 1) {
		if (!strcmp(argv[4], "stay"))
			pause();
		puts("chained");
		return 0;
	}
	snprintf(left, sizeof(left), "%d", times - 1);
	execl("/proc/self/exe", argv[0], argv[1], left, argv[3], argv[4], (char *)NULL);
	return 97;
}
