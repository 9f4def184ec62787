/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The inside of the analysis of refused requests: oom.c follows the rows, state.c takes the state
 * of the moment, verdict.c finds the reason, report.c writes text and JSON.
 */
#ifndef SONDE_MEMORY_ANALYSIS_OOM_OOM_IMPL_H
#define SONDE_MEMORY_ANALYSIS_OOM_OOM_IMPL_H

#include "memory/analysis/common/analysis.h"
#include "memory/analysis/common/blocks.h"
#include "memory/analysis/processes/processes.h"

#define OOM_MAX_INCIDENTS 200 /* later ones are only counted */
#define OOM_MAX_LIST 100 /* blocks that are kept of each kind */
#define OOM_POOLS 8
#define OOM_FUNCTION_BYTES 32
/* Index in `own` of a driver's block and of a device: bytes in whole pages. */
#define OOM_OWN_BYTES 0

struct oom_block {
	uint64_t ptr, bytes, time_ns;
	enum row_type type;
	uint32_t stack, owner, step;
};

struct oom_list {
	struct oom_block *list;
	size_t n, cap;
};

/* A framework's pool at the moment of the request. */
struct oom_pool {
	enum row_type type;
	uint64_t blocks;
	uint64_t allocated; /* bytes of its blocks */
	uint64_t reserved; /* what it has from the driver */
	bool mapped; /* the driver's blocks around its own are known, and so are the gaps: */
	uint64_t free_bytes, largest_free, pieces;
};

struct oom_leak {
	uint64_t bytes, blocks, sites;
	uint32_t first_step, last_step;
	uint32_t stack; /* of the call site that has most */
};

struct oom_incident {
	struct block_process *process;
	uint32_t device, tid, step, stack;
	uint64_t first_ns, last_ns;
	uint64_t count;
	uint64_t last_requested; /* of the newest try */
	uint64_t requested;
	char function[OOM_FUNCTION_BYTES];
	uint64_t limit; /* bytes that the pool may have in all; 0: not known */
	/* As the driver of the process says it, at that moment: of a process with a share of the
	 * device (vGPU, MPS) that is less than there is. 0; UINT64_MAX: not known. */
	uint64_t driver_total, driver_free;
	/* Host memory: in use of what is limited (else of address space), memory and swap of the
	 * machine; 0: not known. */
	uint64_t space_bytes, machine_bytes;
	bool open; /* the thread has not allocated anything since */
	bool granted;
	uint64_t given_back; /* bytes that went back to the driver in between */
	/* The state at the last of its requests. */
	bool has_blocks; /* it comes from live blocks, not from the rows that list some */
	uint64_t own_bytes; /* the driver's blocks of this process on the device */
	bool has_others;
	uint64_t others_bytes;
	uint64_t job_bytes; /* of them, by other processes of this job */
	bool has_outside; /* what this process has besides: context, libraries */
	uint64_t outside_bytes;
	uint64_t kept_bytes; /* by pools of CUDA's driver, beside what they have handed out */
	struct oom_pool pools[OOM_POOLS];
	unsigned npools;
	struct oom_leak leak;
	struct oom_list largest, recent;
};

struct oom_sample {
	bool known;
	uint64_t bytes, time_ns;
};

/* What rows say about the use of a device by others than a process. */
struct oom_view {
	struct block_process *process;
	uint32_t device;
	struct oom_sample others; /* the driver reported who has what */
	uint64_t job_bytes; /* of others, by processes of this job */
	struct oom_sample rest; /* in use, but not by the driver's blocks of this process */
};

struct oom {
	struct analysis base;
	struct oom_incident **incidents;
	size_t nincidents, incidents_cap;
	uint64_t requests;
	uint64_t dropped; /* incidents beyond the limit */
	struct hmap totals; /* device: bytes it has */
	uint64_t any_total; /* of a device that no row names */
	struct oom_view *views;
	size_t nviews, views_cap;
};

/* state.c: takes the state of this moment into the incident. */
void oom_take_state(struct oom *o, struct oom_incident *i);
/* Keeps the best of each kind, best first. */
bool oom_is_larger(const struct oom_block *a, const struct oom_block *b);
bool oom_is_newer(const struct oom_block *a, const struct oom_block *b);
void oom_list_offer(struct oom_list *l, const struct oom_block *b,
		    bool (*better)(const struct oom_block *a, const struct oom_block *b));

/* Processes that the kernel killed because their control group had no more memory. */
size_t oom_group_kills(const struct oom *o);

/* host.c: requests for host memory. */
bool oom_host_is_oversized(const struct oom_incident *i); /* the machine has less in all */
void oom_host_reason(const struct oom *o, const struct oom_incident *i, struct buf *out);
void oom_host_advice(const struct oom *o, const struct oom_incident *i, struct buf *out);

/* verdict.c */
enum oom_verdict {
	OOM_LEAK,
	OOM_FRAGMENTATION,
	OOM_OTHER_PROCESS,
	OOM_EXHAUSTION,
	OOM_OVERSIZED,
	OOM_VERDICTS,
};

struct oom_answer {
	enum oom_verdict verdict;
	bool has_total, has_free;
	bool limited; /* the process may not use all of it: total_bytes is what it may */
	uint64_t total_bytes, free_bytes; /* of the device, now */
	const struct oom_pool *pool; /* OOM_FRAGMENTATION: of which; NULL: the device itself */
};

struct oom_answer oom_answer(const struct oom *o, const struct oom_incident *i);
bool oom_is_cuda(const struct oom_incident *i); /* torch on CUDA */
bool oom_is_context(const struct oom_incident *i); /* CUDA's own beginnings on a device */
const char *oom_verdict_name(enum oom_verdict v);
/* Sentences: the numbers behind the verdict, and what to do next. */
void oom_reason(const struct oom *o, const struct oom_incident *i, const struct oom_answer *a,
		struct buf *out);
void oom_advice(const struct oom *o, const struct oom_incident *i, const struct oom_answer *a,
		struct buf *out);

/* The two kinds of answer. */
void oom_text(struct analysis *a, const struct analysis_style *style, struct buf *out);
json_t *oom_json(struct analysis *a, unsigned top);

static inline const struct stacks *oom_stacks(const struct oom *o)
{
	return &o->base.blocks->stacks;
}

static inline uint64_t oom_less(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

static inline uint64_t oom_sum(uint64_t a, uint64_t b)
{
	return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

#endif
