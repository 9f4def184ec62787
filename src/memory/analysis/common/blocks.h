/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What rows say about memory, kept up to date row by row: processes, their devices and pools, the
 * blocks that are alive, and the steps. The analyses stand on this; each has a table of its own.
 *
 *	struct block_change c;
 *	switch (blocks_add(b, row, &c)) {
 *	case BLOCKS_ALLOC: …
 *
 * Rows must come in order of time within a process (`unordered` says when they do not).
 * Memory grows with blocks that are alive, or held, at once, and with distinct call stacks and
 * owners, never with rows. Not thread safe.
 *
 * A block is known by process and allocation_id, or, in dumps without one, by its pool and address.
 * A FREE row with shadow:true was made up for a block that nobody freed: such a block has been
 * LEFT and stays in the table, unless its process goes on afterwards with the same pool (then the
 * address was handed out anew and the free had not been seen).
 *
 * A program that has ended by itself (EXIT) is torn down: host memory that it frees then was there
 * at its end, so it has been LEFT, too, and what it allocates then is passed over.
 *
 * HAL is the driver: the other pools of a device carve their blocks out of it. Of the host that is
 * HOST, whose mappings CPython cuts its objects from (PYTHON). Files that are mapped are no memory of
 * the job: their rows are passed over.
 */
#ifndef SONDE_MEMORY_ANALYSIS_COMMON_BLOCKS_H
#define SONDE_MEMORY_ANALYSIS_COMMON_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/containers/hmap.h"
#include "memory/analysis/common/analysis.h"
#include "memory/analysis/common/stacks.h"
#include "memory/analysis/common/text_numbers.h"
#include "memory/dump/row.h"

/*
 * How the steps of a process are known. Ranges named "step start" and the step call are the program's
 * own: the first of these two that is seen counts. Others were detected, and count without them.
 */
enum step_source {
	STEPS_UNKNOWN,
	STEPS_BY_RANGE,
	STEPS_BY_CALL,
	STEPS_BY_OPTIMIZER,
	STEPS_BY_FORWARD,
};

/* What one process has of one device. */
struct block_device {
	struct block_process *process;
	uint32_t device; /* a number, DEV_HOST or DEV_NONE */
	bool has_driver; /* there are HAL (on the host: HOST) blocks */
	uint64_t driver_bytes; /* alive, HAL and HOST */
	uint64_t pool_bytes; /* alive, the others */
	uint64_t most_driver_bytes, most_pool_bytes; /* that were alive at any moment */
	/* blocks_hold() */
	uint64_t hold_seq;
	struct block *held;
	uint64_t own[4]; /* the analysis' own, 0 at first */
};

struct block_pool {
	struct block_process *process;
	struct block_device *device;
	enum row_type type;
	uint32_t number; /* of all pools, from 0 */
	uint64_t live_bytes, live_blocks;
	uint64_t mallocs, frees;
	uint64_t unmatched_frees; /* of the frees: no MALLOC was seen */
	uint64_t reserved; /* attribute `total` of the newest row; 0 without */
	void *own; /* the analysis' own, NULL at first; never freed here */
};

struct block_process {
	uint32_t pid; /* UINT32_MAX: not known */
	char *command; /* or NULL */
	uint64_t first_ns, last_ns; /* times of rows */
	uint32_t step; /* the step that runs, or ran last; 0 before the first */
	uint32_t step_ended; /* the last one that has ended */
	bool in_step;
	bool by_call; /* steps are ended by calls, so that one always follows */
	enum step_source steps_by;
	char *step_name; /* of detected steps: the class of what steps; or NULL */
	bool finalized; /* it has said that it is through with its devices (ACL_FINI) */
	bool torn_down; /* the program has ended (EXIT): see below */
	uint64_t kernels; /* launches so far */
	struct block_pool **pools;
	size_t npools;
	struct block_device **devices;
	size_t ndevices;
	void *own; /* the analysis' own, NULL at first; never freed here */
	struct block_process_state *state; /* blocks.c */
};

enum block_state { BLOCK_ALIVE, BLOCK_LEFT, BLOCK_FREED };

struct block {
	uint64_t key; /* allocation_id, or what stands for it */
	uint64_t ptr;
	uint64_t bytes;
	uint64_t time_ns; /* of its MALLOC row */
	uint64_t free_ns; /* of its end, once it is LEFT or FREED */
	uint64_t row; /* ID of its MALLOC row */
	uint64_t seq; /* allocations in the order of rows */
	uint64_t kernels; /* launches of its process before it */
	struct block_pool *pool;
	uint32_t stack; /* see stacks.h */
	uint32_t owner; /* its number in `owners` */
	uint32_t layer; /* its number in `layers`; 0: of no module */
	uint32_t parts; /* where its own begin in `parts`, and one; 0: it is of one module */
	uint32_t step; /* in which it was allocated */
	uint8_t state; /* enum block_state */
	bool shadow; /* was there when recording began; time_ns is that moment */
	bool carried; /* was allocated before the part that was kept of the recording */
	bool mapping; /* of host memory: was mapped, and not allocated */
	bool temporary; /* was freed in the forward pass in which it was allocated */
	uint64_t tensor_bytes; /* of a module's: what its tensors have of it, 0: not known */
	struct block *next; /* of lists in here */
	uint64_t own[4]; /* the analysis' own, 0 at first */
};

enum block_what {
	BLOCKS_OTHER, /* nothing of the below; process may be NULL */
	BLOCKS_ALLOC, /* block, pool */
	BLOCKS_FREE, /* block (good until the next row, or while held), pool; block NULL: unknown */
	BLOCKS_LEFT, /* the same for a block that nobody freed */
	BLOCKS_ACCESS, /* block, or NULL where it is not known */
};

struct block_change {
	enum block_what what;
	struct block_process *process; /* whose row it was */
	struct block_pool *pool;
	struct block *block;
	uint32_t step_ended; /* not 0: this row ended the step … */
	uint32_t step_begun; /* … and, or, began this one */
	bool steps_anew; /* what were steps up to this row was none: they count anew */
};

/* The attributes that blocks_add() reads; those of an analysis come on top. */
#define BLOCKS_ATTRS                                                                               \
	(1ull << ATTR_ALLOCATION_ID | 1ull << ATTR_SIZE | 1ull << ATTR_SHADOW |                    \
	 1ull << ATTR_CARRIED | 1ull << ATTR_OWNER | 1ull << ATTR_TOTAL | 1ull << ATTR_ALLOC_TYPE)

/* Everything that is known; others only read the first part. */
struct blocks {
	struct block_process **processes;
	size_t nprocesses;
	uint64_t rows;
	uint64_t first_ns, last_ns; /* of rows; first_ns is UINT64_MAX without any */
	bool unordered; /* a row of blocks, operators or steps was older than its predecessor */
	struct stacks stacks;
	struct text_numbers owners;
	struct text_numbers layers; /* see rec_layer */
	struct block_part {
		uint64_t bytes;
		uint32_t layer;
		uint32_t left; /* that follow, of the same block */
	} * parts; /* of blocks in which several modules have tensors */
	size_t nparts, cap_parts;
	/* blocks.c alone: */
	size_t processes_cap;
	struct hmap by_pid; /* the newest process of that pid */
	struct block_process *last_process;
	struct block *unused; /* list */
	struct block *gone;
	struct block **slabs;
	size_t nslabs, slabs_cap;
	uint64_t next_seq;
	uint32_t npools;
};

struct blocks *blocks_new(void);
void blocks_free(struct blocks *b); /* b may be NULL */

enum block_what blocks_add(struct blocks *b, const struct row *row, struct block_change *out);

/* Names a process; a second call for a pid that had rows in between begins another process. */
void blocks_process(struct blocks *b, uint32_t pid, const char *command);

/*
 * Remembers this moment of a device: blocks that are alive now stay in the table when they end,
 * until the next call for the device. This is how the blocks of a peak, or of the end of a step,
 * can still be read when it is known which moment it was. Costs what ended since the last one.
 */
void blocks_hold(struct blocks *b, struct block_device *d);

/*
 * Blocks one by one until NULL: those that are ALIVE or LEFT now, of a process or of all; or those
 * that were alive when blocks_hold() was called for a device, even if they have ended since. The
 * table must not change meanwhile.
 */
struct block_walk {
	const struct blocks *blocks;
	const struct block_process *process; /* NULL: of all */
	const struct block_device *held; /* not NULL: held ones of this device */
	/* blocks_next() alone, 0 at first: */
	size_t i, at;
	bool map_done;
	struct block *ended;
};
struct block *blocks_next(struct block_walk *w);

struct block_list {
	struct block **at; /* free() it */
	size_t n, cap;
};

static inline void block_list_add(struct block_list *l, struct block *b)
{
	LIST_ADD(l->at, l->n, l->cap, b);
}

/* What a process has of host memory now, in bytes and blocks, and how many steps have ended; false:
 * it has none. */
bool blocks_of_host(const struct blocks *b, uint32_t pid, uint64_t *bytes, uint64_t *blocks,
		    uint32_t *steps, bool *torn_down);
/* The most that it has had of it until now. */
uint64_t blocks_most_of_host(const struct blocks *b, uint32_t pid);

/* Does it begin a range named "step start"? */
bool row_is_step_range(const struct row *row);

/* Is it memory of a device that its driver handed out itself? */
static inline bool blocks_is_device(enum row_type type)
{
	return type == TYPE_HAL || type == TYPE_CUDA;
}

/* The same, and host memory. */
static inline bool blocks_is_driver(enum row_type type)
{
	return blocks_is_device(type) || type == TYPE_HOST;
}

/* What a block is known by in a dump without allocation_id, as in early 2025: where it lies. */
#define BLOCKS_KEY_BY_ADDRESS (1ull << 63)
static inline uint64_t blocks_address_key(const struct row *row)
{
	return (row->ptr ^ (uint64_t)row->device << 48 ^ (uint64_t)row->type << 56) |
	       BLOCKS_KEY_BY_ADDRESS;
}

/* The number that an attribute of the row has; false: it has none. */
static inline bool row_number(const struct row *row, enum attr_key key, uint64_t *out)
{
	const struct attr *a = row_attr(row, key);

	if (!a || a->kind == ATTR_TEXT)
		return false;
	*out = a->number;
	return true;
}

static inline bool row_attr_is(const struct row *row, enum attr_key key, const char *text)
{
	const struct attr *a = row_attr(row, key);

	return a && a->kind == ATTR_TEXT && a->text_len == strlen(text) &&
	       !memcmp(a->text, text, a->text_len);
}

/* Words for people: "Pytorch Caching memory pool", …; "0", "cpu", "N/A". */
const char *blocks_pool_name(enum row_type type);
const char *blocks_device_name(uint32_t device, char text[16]);
/* What modules have of a block that they share, as its row says. */
void blocks_put_parts(struct blocks *b, struct block *block, const struct row *row);

#endif
