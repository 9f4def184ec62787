/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Call stacks of a report, of all its pictures: frames, each once, and a tree of nodes, callers above
 * what they call. Zero-initialise with a pack; tree_put() writes both into it.
 */
#ifndef SONDE_REPORT_TREE_H
#define SONDE_REPORT_TREE_H

#include "formats/profile/profile.h"
#include "report/pack.h"

#define TREE_ROOT 0u

struct tree {
	struct pack *pack;
	struct hmap frame_of, node_of;
	struct column name, file, line, kind; /* of frames */
	struct column parent, frame; /* of nodes; the first is the root */
	uint32_t nframes, nnodes;
	struct tree_link { /* of each node, for those who write other files */
		uint32_t parent;
		struct profile_frame frame; /* interned */
	} * links;
	size_t cap_links;
};

enum tree_kind {
	TREE_LIBRARY, /* of frameworks, systems, ours */
	TREE_USERS, /* the user's own code */
	TREE_WORDS, /* no code: an owner, a process, what stands for others */
};

void tree_init(struct tree *t, struct pack *pack);
/* Frames of Python's import system have no nodes: those around them say who imported what. */
bool tree_is_import_system(const struct profile_frame *f);
/* The node below `parent` for a frame. */
uint32_t tree_node(struct tree *t, uint32_t parent, enum tree_kind kind,
		   const struct profile_frame *frame);
void tree_put(struct tree *t);
void tree_release(struct tree *t);

#endif
