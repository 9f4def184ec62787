/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What the writers of text and JSON ask of a summary. */
#ifndef SONDE_MEMORY_ANALYSIS_SUMMARY_QUERY_H
#define SONDE_MEMORY_ANALYSIS_SUMMARY_QUERY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/containers/buf.h"
#include "memory/analysis/summary/summary_impl.h"

/* A call stack and what its blocks hold. */
struct summary_place {
	struct stack stack;
	uint32_t number; /* of the stack */
	bool before; /* none, since they were there when recording began */
	struct summary_held held;
};

void summary_count(const struct summary_process *p, struct summary_counts *out);
void summary_count_all(const struct summary *s, struct summary_counts *out);
void summary_loss_all(const struct summary *s, struct summary_loss *out);
struct summary_held summary_alive(const struct summary_pool *pool);
/* Has MALLOC rows, but not one FREE row. */
bool summary_frees_missing(const struct summary_counts *c);

/* The peak of a device, or of a process' part of it. */
const struct summary_tally *summary_device_peak(const struct summary_device *d);
/* The same over all processes; *out_exact false: at least that. */
struct summary_tally summary_whole_peak(const struct summary *s, const struct summary_device *d,
					bool *out_exact);

/* The pool's places, largest first, at its peak or at the end. Gives an array. */
struct summary_place *summary_places(const struct summary *s, const struct summary_pool *pool,
				     bool at_peak, size_t *out_n);

/* Puts those that read the same together; returns how many are left, the largest first. */
size_t summary_merge_places(struct summary_place *places, size_t n);

/* The pools of a process by device and type. Gives an array of npools. */
struct summary_pool **summary_pools(const struct summary_process *p);

/* memory/analysis/summary/answer.c: the sentences at the head of the text, in one line. */
void summary_answer(struct summary *s, struct buf *out);
/* "1,234 calls of Python functions were traced, of 2 threads: see …" */
void summary_say_calls(const struct summary *s, struct buf *out);

/* What a GPU has in use: used = pool + process + others + not_told. */
struct summary_share {
	uint64_t time_ns;
	uint64_t total; /* 0: not known */
	uint64_t used, pool, tensors; /* tensors: of pool */
	bool has_others;
	uint64_t process, others, not_told;
};

/* Of a process, by its CUDA pool; false where nothing is known, or for another pool. */
bool summary_use(const struct summary_pool *pool, struct summary_share *out);
void summary_use_text(const struct summary *s, const struct summary_pool *pool, struct buf *out);

#endif
