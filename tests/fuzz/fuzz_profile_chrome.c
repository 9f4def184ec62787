/* SPDX-License-Identifier: MulanPSL-2.0 */
/* A Chrome trace of anybody, plain or compressed, as a flame graph: read, or refused with words. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"
#include "report/profiles.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t sum_own(const struct stacks_read *s)
{
	uint64_t sum = 0, node, amount;
	size_t at = 0;

	while (hmap_next(&s->own, &at, &node, &amount))
		sum += amount;
	return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int fd = memfd_create("trace", MFD_CLOEXEC);
	struct pack pack;
	struct tree tree;
	struct stacks_read s = {.tree = &tree, .unit = "samples"};
	struct err err = {0};
	char path[64];

	if (fd < 0 || write(fd, data, size) != (ssize_t)size)
		abort();
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	pack_init(&pack, NULL);
	tree_init(&tree, &pack);
	int r = profile_read_chrome(&s, path, &err);
	BUG_ON(r < 0 && (err.code >= 0 || !err.text[0]));
	BUG_ON(sum_own(&s) != s.total);
	hmap_release(&s.own);
	tree_release(&tree);
	pack_release(&pack);
	close(fd);
	return 0;
}
