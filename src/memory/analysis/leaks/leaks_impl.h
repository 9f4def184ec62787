/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The inside of the leak analysis. follow.c follows the rows and keeps a leak_site for every call
 * site; judge.c takes the blocks of the last step end and finds out what each call site does;
 * places.c adds up those of one line; report.c and report_left.c write text, json.c JSON.
 */
#ifndef SONDE_MEMORY_ANALYSIS_LEAKS_LEAKS_IMPL_H
#define SONDE_MEMORY_ANALYSIS_LEAKS_LEAKS_IMPL_H

#include "memory/analysis/common/blocks.h"
#include "memory/analysis/leaks/leaks.h"

/* What block->own holds. */
enum { OWN_SITE, OWN_FLAGS };
enum leak_block_flags {
	LEAK_COUNTED = 1 << 0, /* in the site's `live` */
	LEAK_CARVED = 1 << 1, /* a pool has cut blocks from it */
	LEAK_CREATED = 1 << 2, /* halMemCreate(): its ptr is a handle and no address */
	LEAK_RESERVED = 1 << 3, /* such a one, and the pools must have it (judge.c) */
};

#define GROWTH_WINDOWS 24

/* Windows of time of a process; see growth.c. */
struct growth_windows {
	uint64_t end_ns; /* of the one that runs */
	uint64_t length_ns; /* 0: none has begun */
	uint32_t n; /* that have ended */
	uint32_t merges; /* how often two have become one */
};

/* What a site held in them. */
struct growth {
	uint64_t bytes, low; /* now; the least in the window that runs */
	uint32_t n, merges; /* as far as `floors` is known */
	uint64_t floors[GROWTH_WINDOWS];
};

/* From the end of `step` on, the site never held fewer than `live` blocks at the end of a step. */
struct leak_level {
	uint64_t live;
	uint32_t step;
};

struct leak_site {
	struct block_pool *pool;
	uint32_t number; /* of all sites, from 0 */
	uint32_t stack;
	uint64_t size; /* without a call stack: of each block */
	struct leak_site *parent; /* of such a site: the one for all sizes up to a power of two */
	bool is_parent;
	bool before; /* all that was there when recording began and has no call stack */
	bool pinned;
	bool mapping; /* lives by rules of its own: an arena stays while one object does */
	uint32_t first_step; /* that had a block of it; 0: none yet */
	uint32_t ends; /* step ends of the process that the values below know of */
	uint32_t changed_step; /* of its newest block */
	uint64_t live; /* blocks now; neither shadows nor carved ones */
	uint64_t freed, freed_at_end; /* so far, and at the last step end */
	uint32_t life, life_at_end; /* steps that the longest lived of them had seen */
	uint64_t base; /* never fewer since the warm-up */
	struct leak_level *levels; /* above that, rising */
	size_t nlevels, levels_cap;
	struct growth *growth; /* until a step has ended; NULL: no block yet */
};

struct leak_process {
	uint32_t ends; /* steps that have ended */
	uint32_t last_step; /* the number of the last one */
	uint64_t end_ns;
	struct growth_windows windows; /* until a step has ended */
};

struct leak_pool {
	uint64_t reserved_at_end; /* what the pool had taken from the driver at the last step end */
};

struct report; /* memory/analysis/common/report.h */

struct leaks {
	struct analysis base;
	uint64_t min_bytes;
	enum leaks_by by;
	struct leak_site **sites;
	size_t nsites, sites_cap;
	size_t nsizes; /* of the sites: one size without a call stack */
	struct hmap by_key;
	uint32_t *stacks; /* of each call stack: the first one that means the same */
	size_t nstacks, stacks_cap;
	struct hmap by_stack;
	bool dumped; /* a row of a block was asked for, not only for the analyses */
};

static inline struct leak_site *leak_site_of(const struct block *b)
{
	return (struct leak_site *)(uintptr_t)b->own[OWN_SITE];
}

/* Brings the values of a site up to the last step end; needed before it changes and is judged. */
void leak_site_settle(struct leak_site *s);

/* --- judge.c --- */

enum leak_kind { LEAK_GROWTH, LEAK_ONCE, LEAK_STOPPED, LEAK_ROLLING, LEAK_OF_POOL };

/* What a call site does. */
struct leak_finding {
	const struct leak_site *site;
	enum leak_kind kind;
	bool ignored; /* grows, but too little for min_bytes */
	uint64_t blocks, bytes;
	uint64_t block_bytes; /* of each; 0: they differ */
	uint32_t steps; /* distinct ones in which the blocks were allocated */
	uint32_t first_step, last_step;
	uint32_t span_steps; /* steps from the first one on whose blocks would be among these */
	uint64_t bytes_per_step;
	struct block **list; /* the blocks, in order of allocation */
	uint32_t place; /* of those that grow: which of the places */
};

/* A line of the program, and the call stacks through which it grows. */
struct leak_place {
	struct leak_finding sum; /* of all of them; its site is that of the largest */
	const struct leak_finding *stacks; /* the largest first */
	size_t nstacks;
	bool mixed; /* they called different things, so that none is named */
};

/* Blocks that were left at the end of their process, of one call site. */
struct leak_left {
	const struct leak_site *site;
	bool carved;
	uint64_t blocks, bytes;
};

struct leak_held {
	uint64_t blocks, bytes;
};

struct leak_rest {
	struct block_process *process;
	struct leak_left *list; /* the largest first */
	size_t n;
	uint64_t blocks, bytes; /* all of them */
	struct leak_held driver, carved; /* of HAL: not cut by pools, and cut by them */
	bool running; /* blocks are alive, so the end of the process was not seen */
};

/* A call site of a process without steps that grew over time. */
struct growth_finding {
	const struct leak_site *site;
	bool likely; /* a leak; else possibly one */
	uint32_t windows, rose; /* that are compared with the one before; that had more */
	uint64_t bytes, bytes_per_minute, span_ns;
};

struct leak_answer {
	struct leak_finding *findings; /* by kind, then the largest first */
	size_t nfindings;
	size_t growing; /* of them: the first ones, which grow and count */
	struct leak_place
		*places; /* of those that grow: those that count, then the largest first */
	size_t nplaces, losing; /* all of them; that count */
	struct block **grouped; /* what sums of places point into */
	bool judged; /* some process has ended enough steps */
	size_t ignored; /* places that do not count */
	struct leak_rest *rests; /* of each process that has pools, the largest first */
	size_t nrests;
	struct block **blocks, **others; /* what the findings point into */
	struct growth_finding *growths; /* the likely ones, then the fastest first */
	size_t ngrowths, growths_cap;
};

#define LEAKS_MIN_STEPS 3 /* with fewer, nothing is known */

void leaks_judge(struct leaks *l, struct leak_answer *out);
void leak_answer_release(struct leak_answer *a);
/* Fills in what its blocks say, which are in order of allocation. */
void leak_finding_sum(struct leak_finding *finding, struct block **list, size_t n);
int leak_left_order(const void *pa, const void *pb); /* for qsort(): the largest first */

/* What was left in all at the end of its process of what a call site had allocated; of a site that
 * stands for several sizes, all of them. */
const struct leak_rest *leak_rest_of(const struct leak_answer *a, const struct leak_site *s);
struct leak_held leak_left_at_end(const struct leak_answer *a, const struct leak_site *s);

static inline bool leak_has_steps(const struct leak_rest *rest)
{
	const struct leak_process *own = rest->process->own;

	return own && own->ends;
}

/* Is it listed: not what pools were cut from, and of the driver where only that is asked for? */
static inline bool leak_is_listed(const struct leak_left *left, bool driver)
{
	return !left->carved && (!driver || blocks_is_device(left->site->pool->type));
}

static inline const struct stacks *leaks_stacks(const struct leaks *l)
{
	return &l->base.blocks->stacks;
}

/* --- places.c --- */

/* The findings that grow, which come first, by place; decides which of them count. */
void leaks_group_places(struct leaks *l, struct leak_answer *out);
/* What was left at the end of what the call stacks of a place had allocated. */
struct leak_held leak_place_left(const struct leak_answer *a, const struct leak_place *p);

/* --- growth.c --- */

void growth_advance(struct growth_windows *w, uint64_t time_ns);
/* The site has these bytes more, or less. */
void growth_count(struct leak_site *s, const struct growth_windows *w, int64_t bytes);
/* Are there enough windows? */
bool growth_is_known(const struct leak_process *p);
bool growth_is_judged(const struct leaks *l); /* in any process */
void growth_judge(struct leaks *l, struct leak_answer *out);
/* What the sentences about growth follow: no process has steps; a sentence about the steps of
 * others; one that they go on with. */
enum growth_context { GROWTH_ALONE, GROWTH_FOLLOWS, GROWTH_GOES_ON };
void growth_describe(const struct leaks *l, const struct leak_answer *a,
		     enum growth_context context, struct buf *out);
json_t *growth_json(const struct leaks *l, const struct leak_answer *a);

/* --- grouped.c --- */

/* The module of a model that nearly all blocks of a finding belong to, as h.*.mlp; free() it. NULL:
 * there is none. */
char *leak_module(const struct leaks *l, const struct leak_finding *f);
/* Do several places lose activations, and nothing else to speak of? So it is where the graph of every
 * step is kept. */
bool leaks_keep_activations(const struct leaks *l, const struct leak_answer *a);
bool leaks_know_modules(const struct leak_answer *a); /* of anything that grows */
/* "h.*.mlp holds 2.10 GiB of device 0 more than before step 2, …"; false: nothing is known of them, or
 * nearly all belongs to none. */
bool leaks_describe_groups(const struct leaks *l, const struct leak_answer *a, struct buf *out);
void leaks_print_groups(const struct leaks *l, const struct leak_answer *a, const struct report *r);
json_t *leaks_groups_json(const struct leaks *l, const struct leak_answer *a, unsigned top);

/* --- literal.c --- */

void leaks_print_literal(const struct leak_answer *a, const struct report *r);

/* --- report.c, json.c --- */

void leaks_text(struct analysis *a, const struct analysis_style *style, struct buf *out);
json_t *leaks_json(struct analysis *a, unsigned top);

#endif
