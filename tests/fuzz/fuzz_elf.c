/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What is read from a process that may be hostile before its interpreter is known: its map of
 * memory, binaries in memory and as files, the text of sys.version. All of them over the same
 * bytes. As memory they are seen at 0x400000, as a file from 0 on.
 */
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "unwind/remote/find/elf.h"
#include "unwind/remote/find/process.h"
#include "unwind/remote/find/version.h"

#define BASE 0x400000u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct bytes {
	struct python_reader reader;
	const uint8_t *data;
	size_t size;
	uint64_t base;
	unsigned reads;
};

static int bytes_read(const struct python_reader *r, uint64_t addr, void *out, size_t n)
{
	struct bytes *b = (struct bytes *)r;

	b->reads++;
	if (addr < b->base || addr - b->base > b->size || n > b->size - (addr - b->base))
		return -EFAULT;
	memcpy(out, b->data + (addr - b->base), n);
	return 0;
}

static void as_memory(const uint8_t *data, size_t size)
{
	struct bytes b = {{bytes_read}, data, size, BASE, 0};
	struct elf_image image;
	struct elf_symbol s;
	uint32_t version;

	if (elf_image_open(&b.reader, BASE, &image) < 0)
		return;
	if (image.nparts == 0 || image.nparts > ELF_PARTS || image.start > image.end)
		abort();
	if (elf_symbol_find(&image, "_PyRuntime", &s) == 0 &&
	    (s.addr < image.start || s.addr >= image.end))
		abort();
	/* No chain of a hash table may be endless. */
	if (b.reads > 20000)
		abort();
	(void)scan_version(&image, &version);
}

static void as_file(const uint8_t *data, size_t size)
{
	static const char *const names[] = {"_PyRuntime", "PyCode_Type"};
	struct bytes b = {{bytes_read}, data, size, 0, 0};
	struct elf_symbol symbols[2] = {{0}};
	struct elf_sections sections;

	if (elf_sections_read(&b.reader, &sections) == 0)
		elf_sections_symbols(&b.reader, &sections, names, 2, symbols);
}

static void as_maps(const char *text, size_t size)
{
	const char *at = text, *end = text + size;
	struct map_line m;

	while (maps_next(&at, end, &m)) {
		if (m.start >= m.end || at > end || m.path < text || m.path + m.path_len > end)
			abort();
		if (m.path_len && memchr(m.path, '\n', m.path_len))
			abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* A copy of exactly this size: a sanitizer sees every step outside. */
	uint8_t *copy = malloc(size ? size : 1);
	uint32_t version;

	if (!copy)
		return 0;
	memcpy(copy, data, size);
	as_memory(copy, size);
	as_file(copy, size);
	as_maps((const char *)copy, size);
	if (version_find((const char *)copy, size, &version) && version >> 24 != 2 &&
	    version >> 24 != 3)
		abort();
	free(copy);
	return 0;
}
