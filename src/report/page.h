/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A page of everything that some files say: recordings and dumps of memory, files of activities, traces
 * of steps, profiles of stacks.
 *
 *	r = page_new(&options);
 *	page_add(r, path, err); …
 *	page_write(r, "report.html", &written, err);
 *	page_free(r);
 */
#ifndef SONDE_REPORT_PAGE_H
#define SONDE_REPORT_PAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/containers/buf.h"
#include "base/err.h"

struct input_choice;

struct page_options {
	bool redact;
	bool keep_own; /* redacted, but with the names of the user's own functions */
	bool flame; /* flame graphs alone */
	const char *title; /* NULL: the names of what is in it */
	unsigned wait_s; /* for a recorder that is still finishing its files */
	struct input_choice *choice; /* of processes of recordings; NULL: all */
};

struct page_written {
	uint64_t bytes;
	uint64_t rows; /* of memory */
	unsigned memories, activities, profiles;
	bool several_traces; /* of processes, of which only one can have its memory shown */
};

struct page;

struct page *page_new(const struct page_options *o);
/* A file, or a directory in which everything is looked for. -ENOENT: there is nothing of that kind. */
int page_add(struct page *r, const char *path, struct err *err);
/* The file is replaced in one step; a pipe is written as it is. */
int page_write(struct page *r, const char *path, struct page_written *out, struct err *err);
void page_free(struct page *r);

#endif
