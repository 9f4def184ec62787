/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Inside of clocks.h: clocks.c knows hosts and solves, clocks_read.c reads files for it. */
#ifndef SONDE_TIMELINE_CLOCKS_IMPL_H
#define SONDE_TIMELINE_CLOCKS_IMPL_H

#include "formats/clock_file.h"
#include "timeline/clocks.h"
#include "timeline/collectives.h"
#include "timeline/sources.h"

#define HOST_UNKNOWN UINT32_MAX

struct clock_source {
	char *path;
	enum source_kind kind;
	const char *given, *own; /* names of its host, interned; NULL */
	uint32_t host;
};

struct timeline_clocks {
	struct clock_source *sources;
	size_t nsources, cap_sources;
	struct timeline_clock *hosts;
	const char **own_names; /* of hosts: what their files say; NULL */
	size_t nhosts;
	bool several;
	struct clock_trips trips;
	struct collectives *collectives;
};

/* The name of the host that a file is of, as the file says; NULL: it does not say. */
const char *clocks_own_name(const char *path, enum source_kind kind);

/* When the file's host has recorded, and its collectives. */
int clocks_read_source(struct timeline_clocks *c, const struct clock_source *s, const char *beside,
		       struct err *err);

#endif
