/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "unwind/remote/find/sections.h"

#include <elf.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define MAX_SECTIONS 4096
#define MAX_NAMES (1u << 20) /* bytes of the sections' names */
#define MAX_STRINGS (256u << 20)
#define MAX_SYMBOLS (8u << 20)
#define BLOCK 1024 /* symbols read at a time */

/* All bytes of a range, NUL-terminated; NULL if they cannot be read. The caller frees. */
static char *read_range(const struct python_reader *file, uint64_t offset, uint64_t bytes,
			uint64_t most)
{
	char last;

	/* Sizes come from the file: the last byte must be there before memory is taken for all, and
	 * too little memory is a reason to give up on the file, not to end. */
	if (bytes == 0 || bytes > most || python_read(file, offset + bytes - 1, &last, 1) < 0)
		return NULL;
	char *data = malloc(bytes + 1);
	if (!data)
		return NULL;
	data[bytes] = 0;
	if (python_read(file, offset, data, bytes) < 0) {
		free(data);
		return NULL;
	}
	return data;
}

static int read_header(const struct python_reader *file, Elf64_Ehdr *out)
{
	int r = python_read(file, 0, out, sizeof(*out));

	if (r < 0)
		return r;
	if (memcmp(out->e_ident, ELFMAG, SELFMAG) != 0 || out->e_ident[EI_CLASS] != ELFCLASS64 ||
	    out->e_ident[EI_DATA] != ELFDATA2LSB || out->e_shentsize != sizeof(Elf64_Shdr) ||
	    out->e_shnum == 0 || out->e_shnum > MAX_SECTIONS || out->e_shstrndx >= out->e_shnum)
		return -ENOEXEC;
	return 0;
}

static void take_symbols(const Elf64_Shdr *all, unsigned n, const Elf64_Shdr *table,
			 struct elf_sections *out)
{
	if (table->sh_link >= n || table->sh_entsize != sizeof(Elf64_Sym))
		return;
	out->symbols = (struct elf_range){table->sh_offset, table->sh_size};
	out->strings =
		(struct elf_range){all[table->sh_link].sh_offset, all[table->sh_link].sh_size};
}

int elf_sections_read(const struct python_reader *file, struct elf_sections *out)
{
	struct elf_sections found = {0};
	Elf64_Shdr *all = NULL;
	char *names = NULL;
	Elf64_Ehdr e;
	int r = read_header(file, &e);

	if (r < 0)
		return r;
	r = -ENOEXEC;
	all = (Elf64_Shdr *)read_range(file, e.e_shoff, e.e_shnum * sizeof(*all),
				       MAX_SECTIONS * sizeof(*all));
	if (!all)
		goto out;
	const Elf64_Shdr *strings = &all[e.e_shstrndx];
	names = read_range(file, strings->sh_offset, strings->sh_size, MAX_NAMES);
	if (!names)
		goto out;
	for (unsigned i = 1; i < e.e_shnum; i++) {
		if (all[i].sh_type == SHT_SYMTAB)
			take_symbols(all, e.e_shnum, &all[i], &found);
		else if (all[i].sh_name < strings->sh_size &&
			 strcmp(names + all[i].sh_name, ".PyRuntime") == 0)
			found.runtime = all[i].sh_addr;
	}
	*out = found;
	r = 0;
out:
	free(names);
	free(all);
	return r;
}

struct wanted {
	const char *const *names;
	unsigned n;
	struct elf_symbol *out;
	const char *strings;
	uint64_t strings_bytes;
};

static void match(const struct wanted *w, const Elf64_Sym *s)
{
	if (s->st_shndx == SHN_UNDEF || s->st_name == 0 || s->st_name >= w->strings_bytes)
		return;
	for (unsigned i = 0; i < w->n; i++)
		if (strcmp(w->strings + s->st_name, w->names[i]) == 0)
			w->out[i] = (struct elf_symbol){s->st_value, s->st_size};
}

void elf_sections_symbols(const struct python_reader *file, const struct elf_sections *s,
			  const char *const *names, unsigned n, struct elf_symbol *out)
{
	uint64_t left = s->symbols.bytes / sizeof(Elf64_Sym), at = s->symbols.offset;
	char *strings = read_range(file, s->strings.offset, s->strings.bytes, MAX_STRINGS);
	struct wanted w = {names, n, out, strings, s->strings.bytes};
	Elf64_Sym *block = xmalloc(BLOCK * sizeof(*block));

	if (left > MAX_SYMBOLS)
		left = MAX_SYMBOLS;
	while (strings && left > 0) {
		size_t count = left < BLOCK ? (size_t)left : BLOCK;

		if (python_read(file, at, block, count * sizeof(*block)) < 0)
			break;
		for (size_t i = 0; i < count; i++)
			match(&w, &block[i]);
		left -= count;
		at += count * sizeof(*block);
	}
	free(block);
	free(strings);
}
