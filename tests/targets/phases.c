/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * phases COUNTER WORD PAIRS STEP…: a job that others lead.
 *
 *	+		makes PAIRS allocations and frees, counted in word WORD
 *	wait:FILE	waits until FILE is there
 *	run:COMMAND	runs a shell command and waits for it
 */
#include "counted.h"

#include <string.h>

int main(int argc, char **argv)
{
	if (argc < 4)
		return 98;
	counted_open(argv[1]);
	for (int i = 4; i < argc; i++) {
		if (!strcmp(argv[i], "+"))
			counted_churn((unsigned)atoi(argv[2]), strtoul(argv[3], NULL, 10));
		else if (!strncmp(argv[i], "wait:", 5))
			while (access(argv[i] + 5, F_OK) < 0)
				usleep(1000);
		else if (!strncmp(argv[i], "run:", 4) && system(argv[i] + 4) != 0)
			return 97;
	}
	return 0;
}
