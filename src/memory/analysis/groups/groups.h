/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The memory of a moment in groups: by module of a model, by call site or by type, each divided into
 * types (weights, gradients, …). The groups of the first level, what belongs to none and what is
 * free inside the pools add up to the bytes of the moment.
 */
#ifndef SONDE_MEMORY_ANALYSIS_GROUPS_GROUPS_H
#define SONDE_MEMORY_ANALYSIS_GROUPS_GROUPS_H

#include <jansson.h>

#include "memory/analysis/common/breakdown.h"
#include "memory/analysis/common/report.h"

#define GROUPS_MAX_MODULES 65536 /* that are told apart */
#define GROUPS_OTHER_MODULES "(other modules)" /* the others, which have none around them */

enum groups_by { GROUPS_BY_OWNER, GROUPS_BY_MODULE, GROUPS_BY_LINE, GROUPS_BY_TYPE };
extern const char *const groups_by_names[]; /* ended by NULL */

struct groups_options {
	unsigned by; /* enum groups_by; those of owners are a tree of its own (owners/tree.h) */
	unsigned depth; /* parts of a module's path; 0: as many as tell something */
	bool lines; /* of modules: also from which lines their memory comes */
};

/* What memory is for, by its owner. Rounding is what an allocator adds to tensors. */
struct group_types {
	uint64_t weight, buffer, gradient, optimizer_state, kv_cache, activation, temporary;
	uint64_t backward, optimizer, other, rounding, free_in_pools;
};
#define GROUP_TYPES (sizeof(struct group_types) / sizeof(uint64_t))

union group_sums {
	struct group_types of;
	uint64_t each[GROUP_TYPES];
};

/* What comes from one call site. */
struct group_line {
	uint32_t place; /* its number in `places` */
	uint64_t bytes;
};

struct group {
	char *name; /* a path with * for equal modules, a call site, a type */
	bool is_rest; /* of no module or call site, or free: stands behind the others */
	uint32_t depth; /* 1: not inside another group */
	uint32_t stack; /* of a call site: that of its largest part */
	uint64_t count; /* equal modules that it stands for */
	uint64_t least_bytes, most_bytes; /* of one of them */
	uint64_t bytes, blocks;
	union group_sums sums;
	struct group_line *lines; /* of a module, if asked for: the largest first */
	size_t nlines, cap_lines;
};

struct groups {
	struct groups_options options;
	struct group *list; /* those inside a group follow it; the largest first */
	size_t n, cap;
	uint64_t bytes; /* of all */
	bool has_modules;
	uint64_t rest_imports; /* bytes of no group that imports of Python allocated */
	uint64_t modules_left_out; /* paths that count for the module around them: too many */
	struct text_numbers places; /* "train_step (train.py:18) via Linear.forward" */
};

/* types.c */
void group_add_share(struct group *g, const struct blocks *b, const struct breakdown_share *s);
/* What a module has of a block that it shares with others; and what nobody has of that block. */
void group_add_part(struct group *g, const struct blocks *b, const struct block *block,
		    uint64_t bytes);
void group_add_rounding(struct group *g, uint64_t bytes);
const char *group_type_words(size_t type); /* "weights", "optimizer states", … */
const char *group_type_title(size_t type); /* of a column */
const char *group_type_key(size_t type); /* in JSON */

/* modules.c: adds the groups of modules. */
void groups_add_modules(struct groups *g, const struct blocks *b, const struct breakdown_shares *s);
struct group *groups_add(struct groups *g, const char *name);
void group_merge(struct group *to, const struct group *from);

void groups_build(struct groups *g, const struct groups_options *o, const struct blocks *b,
		  const struct breakdown_shares *s);
void groups_release(struct groups *g);

/* The innermost module that has nearly all of what modules have; NULL: none, or they have little. */
const struct group *groups_main_module(const struct groups *g);
/* The line that most of a module's memory comes from; NULL: no line has half of it. */
const char *groups_main_line(const struct groups *g, const struct group *one);
/* Is nearly all of a whole a part of it? */
bool group_is_nearly_all(uint64_t part, uint64_t whole);
/* "67 % train (t.py:7), 12 % Model.forward (t.py:20), and 89 more lines"; false: nothing is known. */
bool groups_describe_shares(const struct groups *g, struct buf *out);
/* "12 x 168 MiB", "12 x 100 KiB to 168 MiB"; nothing for a single one. */
void group_describe_each(const struct group *g, struct buf *out);

/* "transformer.h.* holds 1.97 GiB of the peak of 3.10 GiB on device 0, 12 x 168 MiB: …" */
void groups_describe(const struct groups *g, struct breakdown *c, struct block_device *d,
		     const char *moment, struct buf *out);
void groups_print(const struct groups *g, const struct report *r);
/* Puts "by" and the list of groups into an answer. */
void groups_put(json_t *o, const struct groups *g, const struct stacks *stacks, unsigned top);

#endif
