/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The tree of a profile: profile.c makes it, text.c and pprof.c write it. */
#ifndef SONDE_FORMATS_PROFILE_PROFILE_IMPL_H
#define SONDE_FORMATS_PROFILE_PROFILE_IMPL_H

#include "base/containers/buf.h"
#include "base/containers/hmap.h"
#include "formats/profile/profile.h"

#define PROFILE_NONE UINT32_MAX

/* Things are numbered in the order in which they are first seen. Those with the same hash are
 * chained by `same_hash`. */
struct profile_function {
	const char *name, *file;
	int32_t first_line;
	bool users;
	uint32_t same_hash;
};

struct profile_place { /* a frame: a function, or a line in it */
	uint32_t function;
	int32_t line;
};

struct profile_root { /* a thread of a process */
	const char *process, *thread; /* or NULL */
	int64_t pid, tid;
	uint32_t last_node; /* of its tree; the others by profile_node.before */
	uint32_t same_hash;
};

struct profile_node { /* a stack: that of its caller, and a place */
	uint32_t caller; /* PROFILE_NONE: none */
	uint32_t place;
	uint32_t root;
	uint32_t before; /* the node made before it in the same tree */
	uint64_t count; /* samples that ended here, or the main one of its values */
};

struct profile {
	struct profile_options o;
	struct profile_function *functions;
	struct profile_place *places;
	struct profile_root *roots;
	struct profile_node *nodes;
	uint64_t (*values)[PROFILE_MAX_VALUES]; /* of each node, if o.values */
	size_t functions_cap, places_cap, roots_cap, nodes_cap, values_cap;
	uint32_t nfunctions, nplaces, nroots, nnodes;
	struct hmap function_of; /* hash to the last function that has it */
	struct hmap place_of; /* function and line */
	struct hmap root_of; /* hash to the last root that has it */
	struct hmap node_of; /* caller (or the root, see profile.c) and place */
};

struct profile_stack {
	uint32_t *places; /* outermost first */
	uint32_t n;
	size_t cap;
};

/* The places of a node and of its callers. Free `places` in the end. */
void profile_stack_of(const struct profile *p, uint32_t node, struct profile_stack *out);

void profile_collapsed(const struct profile *p, struct buf *out);
void profile_speedscope(const struct profile *p, struct buf *out);
void profile_pprof(const struct profile *p, struct buf *out);
void profile_flame(const struct profile *p, struct buf *out);

#endif
