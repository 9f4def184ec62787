/* SPDX-License-Identifier: MulanPSL-2.0 */
/* A profile of stacks from anywhere, collapsed, of speedscope, a Chrome trace: read, or refused. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"
#include "report/profiles.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int read_trace(struct stacks_read *s, const char *text, size_t len, struct err *err)
{
	int fd = memfd_create("trace", MFD_CLOEXEC);
	char path[64];

	BUG_ON(fd < 0 || write(fd, text, len) != (ssize_t)len);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	int r = profile_read_chrome(s, path, err);
	close(fd);
	return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static int (*const forms[])(struct stacks_read * s, const char *text, size_t len,
				    struct err *err) = {profile_read_collapsed,
							profile_read_speedscope, read_trace};

	for (size_t form = 0; form < sizeof(forms) / sizeof(forms[0]); form++) {
		struct pack pack;
		struct tree tree;
		struct stacks_read s = {.tree = &tree, .unit = "samples"};
		struct err err = {0};

		pack_init(&pack, NULL);
		tree_init(&tree, &pack);
		int r = forms[form](&s, (const char *)data, size, &err);
		BUG_ON(r < 0 && (err.code >= 0 || !err.text[0]));
		hmap_release(&s.own);
		tree_release(&tree);
		pack_release(&pack);
	}
	return 0;
}
