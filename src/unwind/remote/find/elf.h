/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A program or library as it lies in memory: segments and exported symbols, found through the ELF
 * header and the dynamic section alone, so that neither the file nor its section headers need to be
 * there. Every number is doubted; what makes no sense is an error or is not found. Bounded work.
 */
#ifndef SONDE_UNWIND_REMOTE_FIND_ELF_H
#define SONDE_UNWIND_REMOTE_FIND_ELF_H

#include <stdbool.h>
#include <stdint.h>

#include "unwind/python/layout.h"
#include "unwind/python/reader.h"

#define ELF_PARTS 16

/* One loaded segment. */
struct elf_part {
	uint64_t addr;
	uint64_t bytes;
	bool writable;
};

struct elf_image {
	const struct python_reader *reader; /* borrowed */
	uint64_t start, end; /* all loaded segments lie in here */
	uint64_t bias; /* what is added to the addresses that the file names */
	enum python_arch arch;
	struct elf_part parts[ELF_PARTS];
	unsigned nparts;
	/* Where the dynamic section says they are; 0: not there. */
	uint64_t symbols, strings, gnu_hash, hash;
};

struct elf_symbol {
	uint64_t addr;
	uint64_t bytes; /* 0 if unknown */
};

/*
 * The image whose ELF header is at base. -ENOEXEC if there is none, -ENOTSUP for 32 bits, another
 * byte order or another processor; else what the reader says.
 */
int elf_image_open(const struct python_reader *reader, uint64_t base, struct elf_image *out);

/* An exported symbol that is defined in the image; -ENOENT if there is none. */
int elf_symbol_find(const struct elf_image *image, const char *name, struct elf_symbol *out);

/*
 * A binary as it lies in its file: section headers and the full symbol table, which are not in the
 * memory of the process. Needed only where the interpreter's symbols are not exported. The reader's
 * addresses are offsets in the file. Addresses that come out are those that the file names: the
 * caller adds the bias. Every number is doubted; bounded work.
 */

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
