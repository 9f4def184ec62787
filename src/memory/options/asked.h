/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What a recording was asked for, to separate what was left out from what never happened; and why
 * there is nothing in one.
 */
#ifndef SONDE_MEMORY_OPTIONS_ASKED_H
#define SONDE_MEMORY_OPTIONS_ASKED_H

#include <stdbool.h>

#include "base/containers/buf.h"
#include "memory/options/config.h"

/* By what it was started with, or by what its processes have said since. Zero-initialise. */
struct mem_asked {
	bool known; /* it is a recording */
	bool own; /* a process has said so itself, when it began */
	bool memory; /* allocations and frees, in the dump */
	bool host; /* those of the host, too */
	bool operators, accesses; /* and who uses memory */
	bool db; /* as a database */
	bool steps; /* only some */
	bool deferred; /* from the moment the job asks for it */
	enum mem_program program;
};

/* own: of a process; such settings count instead of those of the session. */
void mem_asked_add(struct mem_asked *a, const struct mem_config *cfg, bool own);

/* Adds one or more sentences: why nothing was recorded of this job, and what to try. Nothing, if
 * it is not known what was asked for. */
void mem_asked_why_empty(const struct mem_asked *a, struct buf *out);

#endif
