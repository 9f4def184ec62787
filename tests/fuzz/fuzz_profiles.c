/* SPDX-License-Identifier: MulanPSL-2.0 */
/* A profile of stacks from anywhere, collapsed or of speedscope: read, or refused with words. */
#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"
#include "report/profiles.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	for (int form = 0; form < 2; form++) {
		struct pack pack;
		struct tree tree;
		struct stacks_read s = {.tree = &tree, .unit = "samples"};
		struct err err = {0};

		pack_init(&pack, NULL);
		tree_init(&tree, &pack);
		int r = (form ? profile_read_speedscope
			      : profile_read_collapsed)(&s, (const char *)data, size, &err);
		BUG_ON(r < 0 && (err.code >= 0 || !err.text[0]));
		hmap_release(&s.own);
		tree_release(&tree);
		pack_release(&pack);
	}
	return 0;
}
