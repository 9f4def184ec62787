/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Shares of memory added up by owner, level by level: PTA over PTA@weight and PTA@ops, CANN over
 * CANN@HCCL. Nodes have the bytes of everything below them; their own are those of blocks with
 * exactly this owner. What is free inside a pool is a node below the pool's source.
 */
#ifndef SONDE_MEMORY_ANALYSIS_OWNERS_TREE_H
#define SONDE_MEMORY_ANALYSIS_OWNERS_TREE_H

#include <jansson.h>

#include "base/containers/buf.h"
#include "memory/analysis/common/breakdown.h"

struct owner_node {
	const char *path; /* borrowed; the last name_len bytes are its name */
	size_t path_len, name_len;
	bool is_free; /* free inside the pool that path names */
	unsigned depth; /* 0: all */
	size_t parent;
	uint64_t bytes, blocks;
	uint64_t own_bytes, own_blocks;
	size_t first, nchildren; /* their numbers stand in order[] */
};

struct owner_tree {
	struct owner_node *nodes; /* the first is all of it */
	size_t n, cap;
	size_t *order; /* children of a node, those with the most bytes first */
};

void owner_tree_build(struct owner_tree *t, struct breakdown *c, const struct breakdown_shares *s);
void owner_tree_release(struct owner_tree *t);

/* The table for people; at most `top` below each. */
void owner_tree_text(const struct owner_tree *t, unsigned top, struct buf *out);
json_t *owner_tree_json(const struct owner_tree *t, unsigned top);

/*
 * "60 % weights (PTA@weight), 25 % free inside the PTA pool, 5 % CANN@HCCL": the largest leaves.
 * `ops`, "tensors of operators", is named only where nothing else is known of them.
 */
void owner_tree_answer(const struct owner_tree *t, struct buf *out);
/* Is nearly all of it of one source (HOST, PTA), and nothing more known of that? */
bool owner_tree_is_one_source(const struct owner_tree *t);

#endif
