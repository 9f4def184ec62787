/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Files of the kernel that are read again and again: opened once, read from the start each time.
 * And the little that their texts have in common.
 */
#ifndef SONDE_DEVICE_HOST_METRICS_FILE_H
#define SONDE_DEVICE_HOST_METRICS_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/containers/buf.h"

struct kernel_file {
	char *path;
	int fd; /* negative: to be opened */
	struct buf text; /* of the last read, ended by NUL */
};

void kernel_file_init(struct kernel_file *f, const char *root, const char *path);
void kernel_file_release(struct kernel_file *f);

/* The whole text, valid until the next read; NULL if there is none. */
const char *kernel_file_read(struct kernel_file *f);

/* The same for a file that is read once; gives what free() takes, or NULL. */
char *kernel_text(const char *root, const char *path);

/* Takes a decimal number, with blanks before it, off *at; false, and *at stays, if there is none or
 * it does not fit. */
bool kernel_number(const char **at, uint64_t *out);

/* The next line of a text, without its newline: moves *at behind it. NULL at the end. */
const char *kernel_line(const char **at, size_t *out_len);

/* "0-3,8": calls fn for each number below `max`. */
void kernel_list_each(const char *list, unsigned max, void (*fn)(void *arg, unsigned n), void *arg);

/* What was added to a counter; 0 when it was reset or went back. */
static inline uint64_t kernel_counted(uint64_t now, uint64_t before)
{
	return now > before ? now - before : 0;
}

/* Counters by name, of this round and of the one before: a disk, a network interface. */
struct kernel_row {
	char name[32];
	uint64_t counts[8];
	bool skip; /* by whoever added it; not looked at here */
};
struct kernel_rows {
	struct kernel_row *list;
	size_t n, cap;
};
struct kernel_rounds {
	struct kernel_rows before, now;
};

/* The rows of this round become those before; there are none yet of this one. */
void kernel_rounds_begin(struct kernel_rounds *r);
void kernel_rounds_add(struct kernel_rounds *r, const struct kernel_row *row);
/* The row of that name in the round before; NULL: there was none. at: its index now, where it
 * nearly always was before. */
const struct kernel_row *kernel_rounds_before(const struct kernel_rounds *r, const char *name,
					      size_t at);
void kernel_rounds_release(struct kernel_rounds *r);

#endif
