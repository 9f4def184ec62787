/* SPDX-License-Identifier: MulanPSL-2.0 */
/* From which lines the memory of modules comes. Zero-initialise and release. */
#ifndef SONDE_MEMORY_ANALYSIS_GROUPS_LINES_H
#define SONDE_MEMORY_ANALYSIS_GROUPS_LINES_H

#include "memory/analysis/groups/groups.h"

/* What one module has from one line. */
struct module_line {
	struct group_line line;
	size_t next; /* of the same module, plus 1; 0: none */
};

struct module_lines {
	struct module_line *list;
	size_t n, cap;
	struct hmap by_module; /* the last in the list of a module */
	struct hmap by_line; /* of module and line */
	struct hmap by_stack; /* the number of its line */
};

/* The number that the line of a call stack has in `places`; 0: it has none. */
uint32_t lines_place(struct module_lines *l, struct text_numbers *places,
		     const struct stacks *stacks, uint32_t stack);
void lines_add(struct module_lines *l, size_t module, uint32_t place, uint64_t bytes);
/* Adds the lines of a module to those of a group. */
void lines_merge(const struct module_lines *l, size_t module, struct group *to, struct hmap *seen);
void lines_sort(struct group *g); /* the largest first */
void lines_release(struct module_lines *l);

#endif
