/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The inside of the analysis of inefficient memory. calls.c keeps the clocks, inefficient.c has the
 * rules and adds up what they hit, report.c writes text and JSON.
 *
 *	clock	of a pool (block_pool.own): the calls, the newest MALLOC and FREE, the peak
 *	use	of a block (block.own): where its last event was
 *	mark	of a block that a rule has hit: the useless times
 *	site	a call stack that made findings of one kind in one pool
 *
 * What a kind costs at the peak is found without a list of events: the pool numbers its peaks, a
 * block remembers the number at its last event, and when its next event ends a useless time in
 * which the number changed, the newest peak lies inside.
 */
#ifndef SONDE_MEMORY_ANALYSIS_INEFFICIENT_INEFFICIENT_IMPL_H
#define SONDE_MEMORY_ANALYSIS_INEFFICIENT_INEFFICIENT_IMPL_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/containers/hmap.h"
#include "memory/analysis/common/blocks.h"
#include "memory/analysis/inefficient/inefficient.h"

#define KINDS INEFFICIENT_KINDS
#define MIN_CALLS 10 /* a shorter wait is not worth a change */
#define MAX_NESTING 64
#define MAX_NESTED 65536 /* operators inside one: more have lost the END of the outer one */
#define MAX_THREADS 65536 /* of a process, with an open operator */
#define MAX_NAMES 100000
#define EXAMPLES 3

/* What one kind, or all together, have in a pool or everywhere. */
struct waste {
	uint64_t blocks, bytes, at_peak_bytes;
};

struct clock {
	struct block_pool *pool;
	uint32_t calls; /* the newest; stays at the greatest number */
	uint32_t last_malloc, last_free; /* 0: none yet */
	uint32_t last_op; /* name */
	bool has_ops; /* an operator has run on the device */
	uint32_t peak; /* number of the newest, from 1 */
	uint64_t peak_bytes, peak_ns;
	uint64_t accesses;
	uint64_t marked_blocks[KINDS], marked_bytes[KINDS];
	struct waste unseen; /* ended without any ACCESS */
	size_t waste; /* its number in struct verdict */
};

/* The operators that are open on a thread, of one family. */
struct thread_ops {
	unsigned depth;
	unsigned nested; /* starts since the outermost */
	struct clock *clock; /* of the call that is open, or was last; NULL: not known yet */
	uint32_t call; /* 0: none is open */
	bool has_malloc, has_free;
	uint32_t names[MAX_NESTING];
};

enum use_flags {
	USE_FOLLOWED = 1 << 0, /* the block belongs to a pool that is judged */
	USE_ACCESSED = 1 << 1, /* the last event was an ACCESS */
	USE_LEFT_CALL = 1 << 2, /* had an ACCESS in another call than the MALLOC */
	USE_COMPUTED = 1 << 3, /* by the operator that allocated it */
	USE_SET_UP = 1 << 4, /* allocated before any operator of its pool */
};

/* Fits into struct block.own. */
struct use {
	uint32_t malloc_call, malloc_peak; /* and the number of the newest peak before it */
	uint32_t last_call, last_peak; /* the same of its last event */
	uint32_t malloc_op, last_op; /* names */
	uint32_t mark; /* number, 0: none */
	uint32_t flags;
};

/* A useless time. */
struct wait {
	uint32_t calls; /* 0: none */
	uint32_t peak; /* number of the peak in it, 0: none */
	uint32_t before, after; /* names of operators at its ends */
};

struct mark {
	struct wait wait[KINDS];
	uint32_t next; /* of unused ones */
};

struct example {
	uint64_t key, ptr, bytes, time_ns;
	struct wait wait;
};

struct site {
	struct block_pool *pool;
	uint32_t stack;
	enum inefficient_kind kind;
	uint64_t blocks, bytes;
	uint64_t at_peak_bytes; /* of peak number at_peak */
	uint32_t at_peak;
	uint32_t longest_calls;
	double weight; /* bytes times calls */
	struct example examples[EXAMPLES];
};

/* Findings by call site. */
struct sites {
	struct site *list;
	size_t n, cap;
	struct hmap by_key;
};

struct process_use {
	struct hmap tags; /* allocation_ids: kinds in the order of detection, see add_tag() */
	struct hmap threads; /* thread and family: struct thread_ops */
	struct hmap ops_before; /* device and family: operators ran before the pool was there */
	uint64_t last_key;
	struct thread_ops *last; /* of last_key */
};

struct inefficient {
	struct analysis base;
	struct inefficient_options options;
	struct mark *marks; /* number 0 is none */
	size_t nmarks, marks_cap;
	uint32_t unused_marks;
	struct sites ended; /* of blocks that have ended */
	struct text_numbers names; /* of operators */
	uint64_t operators;
	uint64_t marked;
	bool accesses_asked,
		operators_asked; /* of the recording: not having them says something of the job */
	struct block_process *last_found; /* by inefficient_of() */
	inefficient_marks marks_of; /* may be NULL */
	void *marks_arg;
	char tags[64][64]; /* texts of the attribute */
};

/* --- calls.c: the clocks --- */

enum { FAMILY_PTA, FAMILY_ATB, FAMILIES }; /* pools of torch, of ATB */
int inefficient_family(enum row_type pool); /* negative: of none of them */

/* The clock of a pool; NULL where it is not judged. */
struct clock *inefficient_clock(struct block_pool *pool);
/* The clock for rows that name no block; NULL where there is none. */
struct clock *inefficient_clock_find(const struct block_process *p, int family, uint32_t device);
/* An operator starts or ends. */
void inefficient_op(struct inefficient *a, struct block_process *p, const struct row *row);
/* No operator is open on the thread. */
void inefficient_no_op(struct block_process *p, uint32_t tid);
/* The call of a MALLOC, FREE or ACCESS, and the operator it is in or comes after. */
uint32_t inefficient_call(struct block_process *p, const struct row *row, struct clock *c,
			  uint32_t *out_op);
/* The number of a name, 0 for none, and back: NULL for none. */
uint32_t inefficient_name(struct inefficient *a, const char *text, size_t len);
/* Does the operator only make a tensor, as empty or zeros do? */
bool inefficient_makes_only(struct inefficient *a, uint32_t name);
const char *inefficient_name_text(const struct inefficient *a, uint32_t name);
void inefficient_calls_release(struct inefficient *a);

/* --- inefficient.c --- */

/* What is kept with a block. */
static inline struct use inefficient_use(const struct block *block)
{
	struct use u;

	memcpy(&u, block->own, sizeof(u));
	return u;
}

/* All findings, those of blocks that are still alive included. To be released. */
void inefficient_sites_list(struct inefficient *a, struct sites *out);
void inefficient_sites_release(struct sites *s);

/* --- verdict.c: what the report is made of --- */

struct pool_waste {
	struct block_pool *pool;
	const char *command; /* of its process, or NULL */
	uint64_t blocks, peak_bytes, peak_ns; /* of the whole pool */
	struct waste kinds[KINDS], all;
	struct waste unseen; /* without any ACCESS, the living included */
};

struct verdict {
	const struct inefficient *a;
	struct sites sites; /* the most costly first */
	struct pool_waste *pools;
	size_t npools;
	struct waste kinds[KINDS], all;
	uint64_t blocks, accesses;
};

/* What a call site has, and costs at the pool's peak. */
struct waste inefficient_site_waste(const struct site *s);
void inefficient_waste_add(struct waste *w, const struct site *s);

/* All findings, those of blocks that are still alive included. To be released. */
void inefficient_verdict(struct inefficient *a, struct verdict *out);
void inefficient_verdict_release(struct verdict *v);

/* --- report.c --- */

void inefficient_text(struct analysis *base, const struct analysis_style *style, struct buf *out);
json_t *inefficient_json(struct analysis *base, unsigned top);

#endif
