/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The functions and source lines of one ELF object. The only symboliser there is: recordings come
 * with a path (symbolize.h), live processes with what libdwfl has opened (remote/native/symbol.c).
 *
 * Addresses are those that the file itself names; who asks subtracts the bias. Files are
 * foreign: cut short, replaced, hostile. Not thread-safe.
 */
#ifndef SONDE_UNWIND_SYMBOLS_SYMBOL_FILE_H
#define SONDE_UNWIND_SYMBOLS_SYMBOL_FILE_H

#include <elfutils/libdw.h>
#include <gelf.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

struct symbol_file;

struct symbol {
	uint64_t addr;
	uint64_t size; /* 0: up to the next one */
	const char *name; /* borrowed from the file */
	uint8_t rank; /* of several at one address the least is shown */
};

/* A place in the source. file NULL: not known; line 0: not known. */
struct source_line {
	const char *file; /* borrowed from the file */
	int line;
};

/* --- by path: opened once, shared, kept until symbol_files_drop() --- */

/* The file behind an absolute path; NULL if there is none that is usable. */
struct symbol_file *symbol_file_get(const char *path);
/* Do the file's segments cover these addresses? If not, another file was mapped. */
bool symbol_file_covers(const struct symbol_file *f, uint64_t lo, uint64_t hi);
/* Symbolizers that still exist must not be used afterwards. */
void symbol_files_drop(void);

/* --- by what somebody else has opened --- */

struct symbol_file *symbol_file_new(void);
void symbol_file_free(struct symbol_file *f); /* f may be NULL */
/* Keeps it if it is a function's. `name` must live as long as f. */
void symbol_file_add(struct symbol_file *f, const GElf_Sym *s, uint64_t addr, const char *name);
/* After the last one: in order, one per address. */
void symbol_file_sort(struct symbol_file *f);
/* Has it line tables that libdw may be trusted with, and no more debug information than this? */
bool symbol_elf_has_lines(Elf *elf, uint64_t max_bytes);
/* Borrowed: it must live as long as f. */
void symbol_file_use_dwarf(struct symbol_file *f, Dwarf *dwarf);

/* The separate debug file of the distribution, by build id: a descriptor, or -1. Never the network,
 * and never a file of more than max_bytes. */
int symbol_debug_open(const void *id, ssize_t len, off_t max_bytes, struct stat *out_st);

/* --- questions --- */

/* The function at an address; NULL if unknown. */
const struct symbol *symbol_file_find(const struct symbol_file *f, uint64_t addr);
/* The compilation unit at an address; false without debug information. */
bool symbol_file_unit(const struct symbol_file *f, uint64_t addr, Dwarf_Die *out);
struct source_line symbol_unit_line(Dwarf_Die *unit, uint64_t addr);
/* The file relative to the directory of the compilation, as projects name their files. */
const char *symbol_unit_file(Dwarf_Die *unit, const char *file);

#endif
