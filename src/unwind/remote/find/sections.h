/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A binary as it lies in its file: section headers and the full symbol table, which are not in the
 * memory of the process. Needed only where the interpreter's symbols are not exported. The reader's
 * addresses are offsets in the file. Addresses that come out are those that the file names: the
 * caller adds the bias. Every number is doubted; bounded work.
 */
#ifndef SONDE_UNWIND_REMOTE_FIND_SECTIONS_H
#define SONDE_UNWIND_REMOTE_FIND_SECTIONS_H

#include <stdint.h>

#include "unwind/python/reader.h"
#include "unwind/remote/find/elf.h"

struct elf_range {
	uint64_t offset, bytes;
};

struct elf_sections {
	uint64_t runtime; /* address of .PyRuntime; 0 if there is none */
	struct elf_range symbols, strings; /* .symtab and its .strtab; empty if there is none */
};

/* -ENOEXEC if it is no such file or has no section headers. */
int elf_sections_read(const struct python_reader *file, struct elf_sections *out);

/* Looks for n names at once. What is not found stays as it is. */
void elf_sections_symbols(const struct python_reader *file, const struct elf_sections *s,
			  const char *const *names, unsigned n, struct elf_symbol *out);

#endif
