/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The inside of the analysis of watched memory: watch.c follows rows and samples, changes.c
 * keeps what they come to, csv.c reads the file of checksums, report.c writes text and JSON. */
#ifndef SONDE_MEMORY_ANALYSIS_WATCH_WATCH_IMPL_H
#define SONDE_MEMORY_ANALYSIS_WATCH_WATCH_IMPL_H

#include "base/containers/omap.h"
#include "memory/analysis/common/analysis.h"
#include "memory/analysis/common/stacks.h"
#include "memory/analysis/watch/watch.h"
#include "memory/dump/row.h"

#define WATCH_MAX_FINDINGS 10000u /* more are counted only */
#define WATCH_MAX_RANGES 256u /* that one operator writes; more are not kept */
#define WATCH_MAX_DEPTH 256u /* operators inside operators */

/* An operator while it runs. */
struct watch_range {
	uint64_t addr, size_bytes;
};
struct watch_op {
	uint64_t serial; /* never used twice */
	uint32_t stack; /* where it was called, as in `stacks` */
	char *name;
	struct watch_range *writes;
	size_t nwrites, cap_writes;
};

struct watch_thread {
	struct watch_op *ops; /* the innermost last */
	size_t n, cap;
};

/* An operator at one of its edges, as a sample has it. */
struct watch_edge {
	char *op; /* as people write it; NULL: there was no sample */
	uint32_t call;
	uint32_t tid;
	uint32_t stack; /* where the operator was called, 0: not known */
	bool after;
};

/* Which memory is watched. */
struct watch_target {
	uint32_t pid, device;
	uint64_t time_ns; /* of what happened to it */
	uint64_t addr, size_bytes;
	char *name; /* of the operator, or what the program called it */
	uint32_t output, call;
};

/* What has been found out about a block that is watched. */
struct watch_block {
	struct watch_target target;
	uint64_t allocation; /* id of the block of its pool, 0 where it is not known */
	uint32_t stack; /* of that allocation */
	enum row_type pool; /* TYPE_END where it is not known */
	bool written; /* since the last sample, by an operator that says so */
	uint64_t checksum;
	uint32_t seq;
	struct watch_edge last;
};

enum watch_verdict {
	WATCH_PENDING, /* operators that were running may still say that they write it */
	WATCH_CORRUPTED, /* nobody may have written it */
	WATCH_UNJUDGED, /* what operators write is not known */
	WATCH_ANNOUNCED, /* all is well */
};

struct watch_finding {
	enum watch_verdict verdict;
	struct watch_target target;
	uint64_t allocation;
	uint32_t stack; /* of that allocation */
	enum row_type pool;
	uint64_t before, after; /* checksums */
	uint32_t missed; /* samples in between that were lost */
	struct watch_edge from, to;
	char *inside; /* the operator around both, NULL without */
	uint64_t suspect; /* serial of the operator that ran, 0: none did */
	bool has_neighbour; /* the suspect writes these bytes, close to the block */
	struct watch_range neighbour;
	uint64_t *waits; /* serials of operators that may still speak */
	size_t nwaits, cap_waits;
};

/* A watch that used up its samples while its block lived on. */
struct watch_ended {
	struct watch_target target;
	uint32_t watch; /* its number */
	uint32_t looks;
	struct watch_edge last;
};

struct watch_process {
	uint32_t pid;
	struct omap threads; /* tid: struct watch_thread */
	struct omap blocks; /* number of the watch: struct watch_block */
	struct omap allocations; /* address: struct watch_allocation */
	uint64_t accesses;
};

struct watch {
	struct analysis base;
	struct stacks stacks; /* of operators and of allocations */
	struct watch_process **processes;
	size_t nprocesses, cap_processes;
	struct watch_finding *findings; /* ANNOUNCED ones are taken out */
	size_t nfindings, cap_findings;
	uint64_t too_many;
	struct watch_ended *ended;
	size_t nended, cap_ended; /* at most WATCH_MAX_FINDINGS are kept */
	uint64_t serials;
	uint64_t blocks, samples, announced, failed, missed;
	uint64_t unwritten; /* contents that no file could take */
	int unwritten_errno; /* the first reason */
	uint32_t error; /* of the first sample that failed */
	bool from_csv;
	uint64_t bad_lines, first_bad_line;
};

/* The newest of that number. */
struct watch_process *watch_process_of(struct watch *w, uint32_t pid);

static inline bool watch_overlap(uint64_t a, uint64_t na, uint64_t b, uint64_t nb)
{
	return a - b < nb || b - a < na;
}

/* What is PENDING comes to this if no operator announces a write any more. */
enum watch_verdict watch_verdict_without(const struct watch_process *p,
					 const struct watch_finding *f);
/* An operator can announce nothing any more. */
void watch_op_ended(struct watch *w, const struct watch_process *p, const struct watch_op *op);
/* A write was announced by an operator of this thread: changes that were waiting for it are well. */
void watch_withdraw(struct watch *w, struct watch_process *p, const struct watch_thread *t,
		    const struct watch_range *r);
void watch_remove_announced(struct watch *w);
void watch_finding_release(struct watch_finding *f);
struct watch_edge watch_edge_copy(const struct watch_edge *e);
struct watch_target watch_target_copy(const struct watch_target *t);

/* As things stand: what is PENDING counts as if nobody spoke any more. */
enum watch_verdict watch_verdict_of(struct watch *w, const struct watch_finding *f);
size_t watch_count_of(struct watch *w, enum watch_verdict v);

void watch_text(struct analysis *a, const struct analysis_style *style, struct buf *out);
json_t *watch_json(struct analysis *a, unsigned top);

/* A change of a block, from its last sample to this edge; both take copies. */
void watch_edge_set(struct watch_edge *e, const char *op, size_t len, uint32_t call, uint32_t tid,
		    bool after);
struct watch_finding *watch_change(struct watch *w, const struct watch_block *b,
				   const struct watch_edge *to);
struct watch_block *watch_block_new(const char *name, size_t len);
void watch_block_free(struct watch_block *b);

#endif
