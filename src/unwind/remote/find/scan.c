/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "unwind/remote/find/scan.h"

#include <stdlib.h>

#include "base/mem.h"
#include "unwind/remote/find/version.h"

#define BLOCK (256u << 10)
#define MAX_BYTES (64u << 20) /* of one segment: more is not searched */

_Static_assert(SCAN_OVERLAP > 2 * VERSION_TEXT, "a text may not be cut");

static bool scan_part(const struct elf_image *image, const struct elf_part *p, char *block,
		      scan_fn fn, void *arg)
{
	uint64_t bytes = p->bytes < MAX_BYTES ? p->bytes : MAX_BYTES;
	/* Words are aligned: begin at one. */
	uint64_t at = -p->addr & 7;

	while (at < bytes) {
		size_t n = bytes - at < BLOCK ? (size_t)(bytes - at) : BLOCK;

		if (python_read(image->reader, p->addr + at, block, n) == 0 &&
		    fn(arg, p->addr + at, block, n))
			return true;
		if (n < BLOCK)
			break;
		at += BLOCK - SCAN_OVERLAP;
	}
	return false;
}

bool scan_image(const struct elf_image *image, scan_fn fn, void *arg)
{
	char *block = xmalloc(BLOCK);
	bool found = false;

	for (unsigned i = 0; i < image->nparts && !found; i++)
		if (image->parts[i].writable)
			found = scan_part(image, &image->parts[i], block, fn, arg);
	free(block);
	return found;
}

static bool find_version(void *arg, uint64_t addr, const char *bytes, size_t n)
{
	(void)addr;
	return version_find(bytes, n, arg);
}

bool scan_version(const struct elf_image *image, uint32_t *out)
{
	return scan_image(image, find_version, out);
}
