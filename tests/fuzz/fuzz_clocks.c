/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Two hosts with the same trace of anybody, and a file of round trips: a NUL between them. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "timeline/clocks.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int put_file(const uint8_t *data, size_t size, char path[64])
{
	int fd = memfd_create("input", MFD_CLOEXEC);

	if (fd < 0 || write(fd, data, size) != (ssize_t)size)
		abort();
	snprintf(path, 64, "/proc/self/fd/%d", fd);
	return fd;
}

static void check_clocks(const struct timeline_clocks *c)
{
	size_t n;
	const struct timeline_clock *list = timeline_clocks_list(c, &n);

	for (size_t i = 0; i < n; i++)
		if (list[i].known && list[i].line.bound_ns < 0)
			abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *end = size ? memchr(data, 0, size) : NULL;
	size_t first = end ? (size_t)(end - data) : size;
	struct timeline_clocks *c = timeline_clocks_new();
	struct timeline_options o = {.path = "/dev/null", .clocks = c};
	struct timeline_source s[3] = {{"node1", NULL}, {"node2", NULL}, {NULL, NULL}};
	struct timeline_counts counts;
	struct timeline *t;
	struct buf notes = {0};
	char path[3][64];
	int fd[3], r = 0;

	for (unsigned i = 0; i < 3; i++) {
		const uint8_t *rest = end ? end + 1 : data + size;
		size_t n = i < 2 ? first : size - first - (end != NULL);

		fd[i] = put_file(i < 2 ? data : rest, n, path[i]);
		s[i].path = path[i];
		r = r < 0 ? r : timeline_clocks_add(c, &s[i], NULL);
	}
	if (r == 0 && timeline_clocks_solve(c, "/dev/null", &notes, NULL) == 0)
		check_clocks(c);
	if (timeline_new(&o, &t, NULL) == 0) {
		for (unsigned i = 0; i < 2; i++)
			(void)timeline_read_chrome(t, &s[i], &notes, NULL);
		(void)timeline_close(t, &counts, NULL);
	}
	timeline_clocks_free(c);
	buf_release(&notes);
	for (unsigned i = 0; i < 3; i++)
		close(fd[i]);
	return 0;
}
