/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * An ELF file as the symbolizer needs it: its symbols in order, its debug information by address.
 * Opened once, shared by all processes, kept until symbol_files_drop(). Part of symbolize.c.
 */
#ifndef SONDE_UNWIND_SYMBOLS_SYMBOLIZE_FILE_H
#define SONDE_UNWIND_SYMBOLS_SYMBOLIZE_FILE_H

#include <elfutils/libdw.h>
#include <stdbool.h>
#include <stdint.h>

struct symbol_file;

struct symbol {
	uint64_t addr;
	uint64_t size;
	const char *name; /* borrowed from the file */
	uint8_t rank; /* of equals the lower one counts */
};

/* The file behind an absolute path; NULL if there is none that is usable. */
struct symbol_file *symbol_file_get(const char *path);

/* Do the file's segments cover these addresses? If not, another file was mapped. */
bool symbol_file_covers(const struct symbol_file *f, uint64_t lo, uint64_t hi);

/* The function at an address of the file; NULL if unknown. */
const struct symbol *symbol_file_find(const struct symbol_file *f, uint64_t addr);

/* The compilation unit at an address of the file; false without debug information. */
bool symbol_file_unit(const struct symbol_file *f, uint64_t addr, Dwarf_Die *out);

void symbol_files_drop(void);

#endif
