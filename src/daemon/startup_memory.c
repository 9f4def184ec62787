/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "daemon/startup_memory.h"

#include <malloc.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

struct mapping {
	uintptr_t begin, end;
	bool from_file; /* and not writable */
};

/* The line that begins a mapping: "7f00-7f10 r-xp 00000000 fd:00 123  /lib/x.so" */
static bool read_heading(const char *line, struct mapping *out)
{
	unsigned long begin, end, inode;
	char mode[5];

	if (sscanf(line, "%lx-%lx %4s %*x %*x:%*x %lu", &begin, &end, mode, &inode) != 4)
		return false;
	*out = (struct mapping){begin, end, inode && mode[0] == 'r' && mode[1] == '-'};
	return true;
}

/* A page that was changed (relocated) is "anonymous" and exists nowhere else: a mapping that has
 * one is left alone. */
static void drop_clean(FILE *smaps)
{
	struct mapping m = {0};
	char line[512];

	while (fgets(line, sizeof(line), smaps)) {
		unsigned long kb;

		if (read_heading(line, &m) || !m.from_file)
			continue;
		if (sscanf(line, "Anonymous: %lu kB", &kb) == 1 && kb == 0)
			(void)madvise((void *)m.begin, m.end - m.begin, MADV_DONTNEED);
	}
}

void release_startup_memory(void)
{
	FILE *smaps = fopen("/proc/self/smaps", "re");

	if (smaps) {
		drop_clean(smaps);
		fclose(smaps);
	}
	malloc_trim(0);
}
