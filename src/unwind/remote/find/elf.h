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

#endif
