/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What the parts of python_find() share:
 *
 *	find.c		which binaries to try, in which order; which version it is; whether what was
 *			found holds together
 *	hidden.c	where _PyRuntime is, if no symbol says it
 */
#ifndef SONDE_UNWIND_REMOTE_FIND_FIND_IMPL_H
#define SONDE_UNWIND_REMOTE_FIND_FIND_IMPL_H

#include "base/containers/buf.h"
#include "unwind/remote/find/elf.h"
#include "unwind/remote/find/find.h"
#include "unwind/remote/find/process.h"

/* One search. `place` is filled in for the binary that is being tried, and is the answer when a
 * check succeeds; `err` has the words of the last one that was Python and could not be used. */
struct finder {
	struct remote *remote;
	struct remote_process process;
	struct buf maps;
	struct python_place place; /* being tried */
	uint32_t version; /* of a binary tried before; 0 if none reported */
	struct err err; /* of the last binary that failed and is Python */
};

/* A binary that may hold the interpreter. */
struct candidate {
	struct map_line map;
	struct elf_image image;
};

/* f->place.runtime is a guess: 0 if it is right, and f->place is complete but for the symbols.
 * -EAGAIN, -ENOTSUP and -EPROTO with words in f->err. */
int find_check(struct finder *f, const struct candidate *c);

/* The same with a layout that is known. 0, -EAGAIN if no interpreter has a thread, -EFAULT if a
 * pointer leads nowhere; no words. */
int find_check_threads(struct finder *f);

/* For a binary that does not export _PyRuntime. Fills in f->place. -ENOEXEC if it is no Python. */
int find_hidden(struct finder *f, const struct candidate *c);

int find_not_ready(struct finder *f); /* -EAGAIN */
int find_not_supported(struct finder *f, uint32_t version); /* -ENOTSUP */

#endif
