/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What every analysis of memory can do. Rows go in, in order of time; an answer in plain words, or
 * JSON, comes out. The same object serves a running job, a recording and a dump file, so it never
 * asks where rows come from.
 *
 * An analysis is a struct that begins with `struct analysis`; its own header has its options and
 * its constructor. The answers may be asked for at any time, and rows may go on afterwards.
 */
#ifndef SONDE_MEMORY_ANALYSIS_COMMON_ANALYSIS_H
#define SONDE_MEMORY_ANALYSIS_COMMON_ANALYSIS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/containers/buf.h"
#include "base/mem.h"
#include "memory/analysis/common/frames.h"
#include "memory/dump/row.h"

/* How an answer for people is to look. */
struct analysis_style {
	bool colour;
	unsigned top; /* how many of each kind are listed */
	bool console; /* the report at the end of a job: findings, or a word that all is well */
	bool literal; /* with the lines of msMemScope, which scripts look for */
	struct frame_choice frames; /* of call stacks */
};

struct analysis;
struct blocks;
struct processes; /* memory/analysis/processes/processes.h */
struct mem_asked;

/* Of two numbers for qsort(): ORDER(a->x, b->x) ?: ORDER(a->y, b->y), the smaller first. */
#define ORDER(a_, b_) (((a_) > (b_)) - ((a_) < (b_)))
/* qsort() of a list that may be empty. */
#define SORT(list_, n_, order_)                                                                    \
	do {                                                                                       \
		if (n_)                                                                            \
			qsort(list_, n_, sizeof(*(list_)), order_);                                \
	} while (0)
/* Adds a value behind the n_ of a list, which grows. */
#define LIST_ADD(list_, n_, cap_, ...)                                                             \
	do {                                                                                       \
		(list_) = xgrow(list_, &(cap_), (n_) + 1, sizeof(*(list_)));                       \
		(list_)[(n_)++] = __VA_ARGS__;                                                     \
	} while (0)

struct analysis_ops {
	const char *name; /* as in --analysis=NAME */
	/*
	 * The attributes that row() reads, a bit per enum attr_key; 0: all. Those that it does
	 * not name are left out where that saves time.
	 */
	uint64_t attrs;
	void (*row)(struct analysis *a, const struct row *row); /* borrowed; copy what is kept */
	/* Optional: names a process, before its rows or after them. command may be NULL. */
	void (*process)(struct analysis *a, uint32_t pid, const char *command);
	/* Optional: what the recording was asked for, after its rows. */
	void (*asked)(struct analysis *a, const struct mem_asked *asked);
	/* Did rows go back in time, so that the answer is not exact? They come again sorted. */
	bool (*unordered)(const struct analysis *a);
	/* Optional: could the question be answered at all? Without it: yes. */
	bool (*judged)(struct analysis *a);
	/* How many findings there are: what --fail-on asks about. */
	size_t (*findings)(struct analysis *a);
	/* The answer first, then the details. */
	void (*text)(struct analysis *a, const struct analysis_style *style, struct buf *out);
	/* A new object; NULL: out of memory. */
	json_t *(*json)(struct analysis *a, unsigned top);
	void (*free)(struct analysis *a);
};

struct analysis {
	const struct analysis_ops *ops;
	struct blocks *blocks; /* NULL: of an analysis that does not stand on them */
	const struct processes *processes; /* who they are, what is covered; NULL: nobody knows */
};

/* process() and unordered() of an analysis that leaves both to its blocks. */
void analysis_blocks_process(struct analysis *a, uint32_t pid, const char *command);
bool analysis_blocks_unordered(const struct analysis *a);

static inline void analysis_free(struct analysis *a)
{
	if (a)
		a->ops->free(a);
}

#endif
