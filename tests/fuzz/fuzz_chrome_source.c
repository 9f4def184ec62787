/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Chrome traces of anybody, as `sonde timeline` merges them. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "timeline/timeline.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct timeline_options o = {.path = "/dev/null"};
	int fd = memfd_create("trace", MFD_CLOEXEC);
	struct timeline_counts counts;
	struct timeline *t;
	struct buf notes = {0};
	char path[64];

	if (fd < 0 || write(fd, data, size) != (ssize_t)size)
		abort();
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (timeline_new(&o, &t, NULL) == 0) {
		struct timeline_source s = {NULL, path};

		(void)timeline_read_chrome(t, &s, &notes, NULL);
		(void)timeline_close(t, &counts, NULL);
		if (counts.slices > size || counts.counters > size)
			abort();
	}
	buf_release(&notes);
	close(fd);
	return 0;
}
