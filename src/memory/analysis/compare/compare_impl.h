/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The inside of a comparison: compare.c makes sequences of calls and pairs them, csv.c and report.c
 * write the result.
 */
#ifndef SONDE_MEMORY_ANALYSIS_COMPARE_COMPARE_IMPL_H
#define SONDE_MEMORY_ANALYSIS_COMPARE_COMPARE_IMPL_H

#include "base/containers/hmap.h"
#include "base/containers/names.h"
#include "memory/analysis/compare/align.h"
#include "memory/analysis/compare/compare.h"
#include "memory/analysis/compare/sites.h"
#include "memory/analysis/processes/loss.h"
#include "memory/input/input.h"
#include "memory/options/asked.h"

#define SIDES 2

/* A row that matters, kept where a side has to be sorted. */
struct compare_item {
	uint64_t time_ns, id;
	int64_t size;
	uint64_t order; /* of arrival */
	uint32_t name;
	uint8_t what; /* enum compare_what */
};

enum compare_what { ITEM_OPERATOR, ITEM_KERNEL, ITEM_FRAMEWORK, ITEM_ATB };

/* Sizes of the calls, filled up to `done`; those behind it are 0. Dumps of 2025 have negative ones in
 * FREE rows: they count as they stand. */
struct compare_sizes {
	int64_t *list;
	size_t done, cap;
};

/* The calls of one device of one side. */
struct compare_calls {
	uint32_t device;
	uint32_t *names;
	uint8_t *kernel; /* 1: a kernel, 0: an operator */
	size_t count, names_cap, kernel_cap;
	struct compare_sizes framework, atb;
	uint64_t last_time_ns, last_id;
	struct compare_item *items;
	size_t nitems, items_cap;
};

struct compare_input {
	struct compare_calls *devices;
	size_t ndevices, cap;
	struct hmap by_device; /* index in devices */
	size_t last; /* used last */
	bool unordered, sorting;
	uint64_t framework_rows, atb_rows;
	struct mem_asked asked;
	struct loss loss;
};

/* What was read of a side. */
struct compare_source {
	struct input_paths files;
	bool from_directory; /* it was chosen, as the newest below a directory */
	bool recording; /* else a dump */
	bool has_newer;
	struct buf newer; /* a recording that was not read */
};

struct compare_counts {
	uint64_t base, compare; /* calls */
	uint64_t both, only_base, only_compare;
	uint64_t changed; /* of both: other memory */
	int64_t base_bytes, compare_bytes; /* these stop at the largest number */
	int64_t both_base_bytes, both_compare_bytes;
};

/* One device of both sides. */
struct compare_pair {
	uint32_t device;
	const struct compare_calls *side[SIDES];
	struct align align;
	struct compare_counts counts;
};

struct compare {
	unsigned level;
	struct compare_sites *sites; /* with COMPARE_SITES, instead of the rest */
	struct compare_input input[SIDES];
	struct names names;
	enum row_type framework; /* TYPE_END: none met so far */
	bool mixed; /* PTA and MindSpore */
	bool use_atb;
	struct compare_pair *pairs; /* by device */
	size_t npairs;
	struct compare_counts counts;
	struct compare_counts *by_name;
	struct buf notes; /* a line each */
	struct compare_source source[SIDES];
};

/* --- source.c --- */

/* Takes the files over, whose kind is known; recording is the newest that the path may stand for, or NULL. */
void compare_source_set(struct compare_source *s, struct input_paths *files, const char *recording);
void compare_source_release(struct compare_source *s);

/* One line of the result. */
struct compare_line {
	const struct compare_pair *pair;
	enum align_kind kind;
	size_t call[SIDES]; /* where kind says that it is there */
	int64_t size[SIDES]; /* 0 where it is not */
	uint32_t name;
	bool kernel;
};

/* The lines of a pair in order: zero-initialise, set `pair`. */
struct compare_walk {
	const struct compare *compare;
	const struct compare_pair *pair;
	struct align_walk align;
};
bool compare_next(struct compare_walk *w, struct compare_line *out);

/* Does it belong to the differences? */
bool compare_line_differs(const struct compare_line *line);

static inline uint64_t compare_distance(uint64_t a, uint64_t b)
{
	return a > b ? a - b : b - a;
}

/* The same of numbers that may be negative. */
static inline uint64_t compare_signed_distance(int64_t a, int64_t b)
{
	return a > b ? (uint64_t)a - (uint64_t)b : (uint64_t)b - (uint64_t)a;
}

static inline const char *compare_noun(const struct compare *c)
{
	return c->sites			       ? "site"
	       : c->level == COMPARE_OPERATORS ? "operator"
	       : c->level == COMPARE_KERNELS   ? "kernel"
					       : "call";
}

/* NULL: none */
static inline const char *compare_framework(const struct compare *c)
{
	enum row_type type = c->use_atb ? TYPE_ATB : c->framework;

	return type == TYPE_END ? NULL : row_type_text(type, ROW_SEED);
}

#endif
