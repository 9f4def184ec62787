/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Where a block is kept:
 *
 *	alive, or left at the end	in the map of its process (left ones are in a list, too)
 *	ended, but held			in the list of its device
 *	ended just now			b->gone, until the next row
 */
#include "memory/analysis/common/blocks.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/mem.h"
#include "memory/analysis/common/block_steps.h"
#include "memory/analysis/common/frames.h"
#include "wire/record.h"

#define SLAB 512 /* blocks that are allocated at once */

/* A pool and what only this file knows of it. */
struct pool_node {
	struct block_pool pool;
	struct block *left; /* blocks with a FREE that was made up */
	uint64_t left_ns; /* time of the newest */
};

struct block_process_state {
	struct hmap by_key; /* struct block */
	struct hmap by_pool; /* device and type: struct pool_node */
	struct hmap by_device; /* struct block_device */
	size_t pools_cap, devices_cap;
	struct pool_node *last_pool;
	uint64_t order_ns; /* of the newest row that has to be in order */
	bool named;
	uint64_t newest_id; /* of its blocks; they count up */
	struct block_steps steps;
};

struct blocks *blocks_new(void)
{
	struct blocks *b = xcalloc(1, sizeof(*b));

	b->first_ns = UINT64_MAX;
	return b;
}

static void process_free(struct block_process *p)
{
	for (size_t i = 0; i < p->npools; i++)
		free(p->pools[i]);
	for (size_t i = 0; i < p->ndevices; i++)
		free(p->devices[i]);
	hmap_release(&p->state->by_key);
	hmap_release(&p->state->by_pool);
	hmap_release(&p->state->by_device);
	free(p->pools);
	free(p->devices);
	free(p->command);
	free(p->step_name);
	free(p->state);
	free(p);
}

void blocks_free(struct blocks *b)
{
	if (!b)
		return;
	for (size_t i = 0; i < b->nprocesses; i++)
		process_free(b->processes[i]);
	for (size_t i = 0; i < b->nslabs; i++)
		free(b->slabs[i]);
	hmap_release(&b->by_pid);
	text_numbers_release(&b->owners);
	text_numbers_release(&b->layers);
	free(b->parts);
	stacks_release(&b->stacks);
	free(b->processes);
	free(b->slabs);
	free(b);
}

/* --- blocks --- */

static struct block *block_new(struct blocks *b)
{
	struct block *block = b->unused;

	if (!block) {
		b->slabs = xgrow(b->slabs, &b->slabs_cap, b->nslabs + 1, sizeof(struct block *));
		block = xmalloc(SLAB * sizeof(*block));
		b->slabs[b->nslabs++] = block;
		for (size_t i = 0; i < SLAB; i++)
			block[i].next = i + 1 < SLAB ? &block[i + 1] : NULL;
	}
	b->unused = block->next;
	memset(block, 0, sizeof(*block));
	block->seq = b->next_seq++;
	return block;
}

static void block_release(struct blocks *b, struct block *block)
{
	block->next = b->unused;
	b->unused = block;
}

/* A block that is in no map any more. */
static void block_ended(struct blocks *b, struct block *block, uint64_t time_ns)
{
	struct block_device *d = block->pool->device;

	block->state = BLOCK_FREED;
	block->free_ns = time_ns;
	if (block->seq < d->hold_seq) {
		block->next = d->held;
		d->held = block;
	} else {
		block->next = b->gone;
		b->gone = block;
	}
}

static void count_alive(struct block *block, bool more)
{
	struct block_pool *pool = block->pool;
	struct block_device *d = pool->device;
	bool driver = blocks_is_driver(pool->type);
	uint64_t *sum = driver ? &d->driver_bytes : &d->pool_bytes;
	uint64_t *most = driver ? &d->most_driver_bytes : &d->most_pool_bytes;

	/* Sums may wrap with foreign sizes; they come back the same way. */
	*sum += more ? block->bytes : -block->bytes;
	if (*sum > *most)
		*most = *sum;
	pool->live_bytes += more ? block->bytes : -block->bytes;
	pool->live_blocks += more ? 1 : -1ull;
}

/* The pool goes on after made-up frees: those blocks were not there at the end of anything. */
static void pool_resume(struct blocks *b, struct pool_node *node)
{
	struct hmap *by_key = &node->pool.process->state->by_key;
	struct block *block = node->left, *next;

	for (; block; block = next) {
		next = block->next;
		/* A block with the same key may have come after it. */
		if (hmap_get_ptr(by_key, block->key) == block)
			hmap_remove(by_key, block->key);
		block_ended(b, block, block->free_ns);
	}
	node->left = NULL;
	node->left_ns = 0;
}

void blocks_hold(struct blocks *b, struct block_device *d)
{
	struct block *block = d->held, *next;

	for (; block; block = next) {
		next = block->next;
		block_release(b, block);
	}
	d->held = NULL;
	d->hold_seq = b->next_seq;
}

static struct block *next_in_map(struct block_walk *w, const struct block_process *p)
{
	uint64_t key, value;

	return hmap_next(&p->state->by_key, &w->at, &key, &value) ? (struct block *)(uintptr_t)value
								  : NULL;
}

static struct block *next_held(struct block_walk *w)
{
	struct block *b = NULL;

	while (!w->map_done && (b = next_in_map(w, w->held->process)))
		if (b->pool->device == w->held && b->seq < w->held->hold_seq)
			return b;
	b = w->map_done ? w->ended : w->held->held;
	w->map_done = true;
	w->ended = b ? b->next : NULL;
	return b;
}

struct block *blocks_next(struct block_walk *w)
{
	if (w->held)
		return next_held(w);
	for (; w->i < w->blocks->nprocesses; w->i++, w->at = 0) {
		struct block_process *p = w->blocks->processes[w->i];
		struct block *b = w->process && w->process != p ? NULL : next_in_map(w, p);

		if (b)
			return b;
	}
	return NULL;
}

/* --- processes, devices, pools --- */

static struct block_process *process_new(struct blocks *b, uint32_t pid)
{
	struct block_process *p = xcalloc(1, sizeof(*p));

	p->pid = pid;
	p->first_ns = UINT64_MAX;
	p->state = xcalloc(1, sizeof(*p->state));
	LIST_ADD(b->processes, b->nprocesses, b->processes_cap, p);
	hmap_put_ptr(&b->by_pid, pid, p);
	b->last_process = p;
	return p;
}

static struct block_process *process_of(struct blocks *b, uint32_t pid)
{
	struct block_process *p = b->last_process;

	if (p && p->pid == pid)
		return p;
	p = hmap_get_ptr(&b->by_pid, pid);
	if (!p)
		return process_new(b, pid);
	b->last_process = p;
	return p;
}

void blocks_process(struct blocks *b, uint32_t pid, const char *command)
{
	struct block_process *p = hmap_get_ptr(&b->by_pid, pid);

	if (!p || (p->state->named && p->first_ns != UINT64_MAX))
		p = process_new(b, pid);
	p->state->named = true;
	free(p->command);
	p->command = command && *command ? xstrdup(command) : NULL;
}

static struct block_device *device_of(struct block_process *p, uint32_t device)
{
	struct block_device *d = hmap_get_ptr(&p->state->by_device, device);

	if (d)
		return d;
	d = xcalloc(1, sizeof(*d));
	d->process = p;
	d->device = device;
	LIST_ADD(p->devices, p->ndevices, p->state->devices_cap, d);
	hmap_put_ptr(&p->state->by_device, device, d);
	return d;
}

static struct pool_node *pool_new(struct blocks *b, struct block_process *p, uint32_t device,
				  enum row_type type)
{
	struct pool_node *node = xcalloc(1, sizeof(*node));
	struct block_pool *pool = &node->pool;

	pool->process = p;
	pool->device = device_of(p, device);
	pool->type = type;
	pool->number = b->npools++;
	if (blocks_is_driver(type))
		pool->device->has_driver = true;
	LIST_ADD(p->pools, p->npools, p->state->pools_cap, pool);
	return node;
}

static struct pool_node *pool_of(struct blocks *b, struct block_process *p, const struct row *row)
{
	enum row_type type = (unsigned)row->type < TYPE_END ? row->type : TYPE_END;
	struct pool_node *node = p->state->last_pool;

	if (node && node->pool.device->device == row->device && node->pool.type == type)
		return node;
	uint64_t key = (uint64_t)row->device << 16 | type;
	node = hmap_get_ptr(&p->state->by_pool, key);
	if (!node) {
		node = pool_new(b, p, row->device, type);
		hmap_put_ptr(&p->state->by_pool, key, node);
	}
	p->state->last_pool = node;
	return node;
}

/* --- rows --- */

/* What the attributes of a MALLOC, FREE or ACCESS row say. */
struct facts {
	bool has_id, shadow, carried;
	uint64_t id, bytes;
	const struct attr *owner, *total, *alloc_type;
};

static void read_facts(const struct row *row, struct facts *f)
{
	*f = (struct facts){0};
	for (unsigned i = 0; i < row->nattrs; i++) {
		const struct attr *a = &row->attrs[i];

		switch (a->key) {
		case ATTR_ALLOCATION_ID:
			f->has_id = a->kind == ATTR_NUMBER;
			f->id = a->number;
			break;
		case ATTR_SIZE:
			f->bytes = a->kind == ATTR_NUMBER ? a->number : 0;
			break;
		case ATTR_SHADOW:
			f->shadow = true;
			break;
		case ATTR_CARRIED:
			f->carried = true;
			break;
		case ATTR_OWNER:
			f->owner = a;
			break;
		case ATTR_TOTAL:
			f->total = a;
			break;
		case ATTR_ALLOC_TYPE:
			f->alloc_type = a;
			break;
		default:
			break;
		}
	}
}

static uint64_t key_of(const struct row *row, const struct facts *f)
{
	if (f->has_id)
		return f->id & ~BLOCKS_KEY_BY_ADDRESS;
	return blocks_address_key(row);
}

static void apply_owner(struct blocks *b, struct block *block, const struct facts *f)
{
	if (f->owner && f->owner->text)
		block->owner = text_numbers_find(&b->owners, f->owner->text, f->owner->text_len,
						 UINT32_MAX);
}

static void apply_layer(struct blocks *b, struct block *block, const struct row *row)
{
	if (row->layer) {
		block->layer =
			text_numbers_find(&b->layers, row->layer, strlen(row->layer), UINT32_MAX);
		block->tensor_bytes = row->tensor_bytes;
		blocks_put_parts(b, block, row);
	}
	block->temporary = row->temporary;
}

static void note_reserved(struct block_pool *pool, const struct facts *f)
{
	if (f->total && f->total->kind == ATTR_NUMBER)
		pool->reserved = f->total->number;
}

/* Is the row of the teardown? An id that is not new is another process' of the same pid. */
static bool is_torn_down(struct block_process *p, const struct row *row, const struct facts *f)
{
	if (p->torn_down && row->event == ROW_MALLOC && f->has_id && f->id <= p->state->newest_id)
		p->torn_down = false;
	return p->torn_down && row->device == DEV_HOST;
}

static void on_malloc(struct blocks *b, const struct row *row, struct block_change *c)
{
	struct block_process *p = c->process;
	struct pool_node *node = pool_of(b, p, row);
	struct facts f;

	read_facts(row, &f);
	if (is_torn_down(p, row, &f))
		return;
	if (f.id > p->state->newest_id)
		p->state->newest_id = f.id;
	if (node->left && !f.shadow && row->time_ns > node->left_ns)
		pool_resume(b, node);
	struct block *block = block_new(b);
	block->key = key_of(row, &f);
	block->ptr = row->ptr;
	block->bytes = f.bytes;
	block->time_ns = row->time_ns;
	block->row = row->id;
	block->kernels = p->kernels;
	block->pool = &node->pool;
	block->stack = stacks_of(&b->stacks, row);
	block->step = p->step;
	block->shadow = f.shadow;
	block->carried = f.carried;
	block->mapping = f.alloc_type && node->pool.type == TYPE_HOST;
	apply_owner(b, block, &f);
	apply_layer(b, block, row);
	uint64_t old = hmap_put(&p->state->by_key, block->key, (uintptr_t)block);
	if (old != HMAP_NONE) { /* its free was not seen */
		struct block *former = (struct block *)(uintptr_t)old;
		if (former->state == BLOCK_ALIVE) {
			count_alive(former, false);
			block_ended(b, former, row->time_ns);
		} /* else it stays in the list of left ones */
	}
	count_alive(block, true);
	node->pool.mallocs += !f.carried;
	note_reserved(&node->pool, &f);
	*c = (struct block_change){
		.what = BLOCKS_ALLOC, .process = p, .pool = &node->pool, .block = block};
}

/* Takes a block that is alive out of the map; one that was left is found, but stays. */
static struct block *take_alive(struct hmap *by_key, uint64_t key)
{
	uint64_t found = hmap_remove(by_key, key);

	if (found == HMAP_NONE)
		return NULL;
	struct block *block = (struct block *)(uintptr_t)found;
	if (block->state != BLOCK_ALIVE)
		hmap_put(by_key, key, found);
	return block;
}

static void on_free(struct blocks *b, const struct row *row, struct block_change *c)
{
	struct block_process *p = c->process;
	struct hmap *by_key = &p->state->by_key;
	struct facts f;

	read_facts(row, &f);
	uint64_t key = key_of(row, &f);
	bool torn_down = is_torn_down(p, row, &f), left = f.shadow || torn_down;
	struct block *block = left ? hmap_get_ptr(by_key, key) : take_alive(by_key, key);
	if (torn_down && !block) /* of a block that was allocated then, too */
		return;
	struct pool_node *node = block ? (struct pool_node *)block->pool : pool_of(b, p, row);
	c->what = left ? BLOCKS_LEFT : BLOCKS_FREE;
	c->pool = &node->pool;
	if (!f.shadow) {
		node->pool.frees += !f.carried;
		note_reserved(&node->pool, &f);
	}
	if (!block || block->state != BLOCK_ALIVE) {
		node->pool.unmatched_frees += !f.shadow;
		return;
	}
	c->block = block;
	apply_owner(b, block, &f);
	apply_layer(b, block, row);
	count_alive(block, false);
	if (left) {
		block->state = BLOCK_LEFT;
		block->free_ns = row->time_ns;
		block->next = node->left;
		node->left = block;
		if (row->time_ns > node->left_ns)
			node->left_ns = row->time_ns;
		return;
	}
	block_ended(b, block, row->time_ns);
}

static void on_access(struct blocks *b, const struct row *row, struct block_change *c)
{
	struct facts f;

	read_facts(row, &f);
	c->what = BLOCKS_ACCESS;
	if (!f.has_id)
		return;
	struct block *block = hmap_get_ptr(&c->process->state->by_key, key_of(row, &f));
	if (!block || block->state != BLOCK_ALIVE)
		return;
	apply_owner(b, block, &f);
	c->block = block;
	c->pool = block->pool;
}

static bool is_ordered_event(const struct row *row)
{
	return row->event == ROW_MALLOC || row->event == ROW_FREE || row->event == ROW_ACCESS ||
	       row->event == ROW_OP_LAUNCH || row->event == ROW_MSTX ||
	       (row->event == ROW_SYSTEM && row->type == TYPE_STEP);
}

static void check_order(struct blocks *b, struct block_process *p, const struct row *row)
{
	if (!is_ordered_event(row))
		return;
	if (row->time_ns < p->state->order_ns)
		b->unordered = true;
	p->state->order_ns = row->time_ns;
}

static void note_times(struct blocks *b, struct block_process *p, const struct row *row)
{
	b->rows++;
	if (row->time_ns < b->first_ns)
		b->first_ns = row->time_ns;
	if (row->time_ns > b->last_ns)
		b->last_ns = row->time_ns;
	if (row->time_ns < p->first_ns)
		p->first_ns = row->time_ns;
	if (row->time_ns > p->last_ns)
		p->last_ns = row->time_ns;
}

/* All that is alive was allocated before the first step. */
static void forget_steps(struct blocks *b, struct block_process *p)
{
	struct block_walk w = {.blocks = b, .process = p};

	for (struct block *block; (block = blocks_next(&w));)
		block->step = 0;
}

enum block_what blocks_add(struct blocks *b, const struct row *row, struct block_change *out)
{
	struct block_process *p = process_of(b, row->pid);

	for (struct block *next; b->gone; b->gone = next) {
		next = b->gone->next;
		block_release(b, b->gone);
	}
	note_times(b, p, row);
	check_order(b, p, row);
	*out = (struct block_change){.process = p};
	if (row_is_file(row))
		return BLOCKS_OTHER;
	switch (row->event) {
	case ROW_MALLOC:
		on_malloc(b, row, out);
		break;
	case ROW_FREE:
		on_free(b, row, out);
		break;
	case ROW_ACCESS:
		on_access(b, row, out);
		break;
	case ROW_KERNEL_LAUNCH:
		p->kernels += row->type == TYPE_KERNEL_LAUNCH;
		break;
	case ROW_MSTX:
		if (row->type == TYPE_RANGE_START || row->type == TYPE_RANGE_END)
			block_steps_range(&p->state->steps, p, row, out);
		break;
	case ROW_SYSTEM:
		if (row->type == TYPE_STEP)
			block_steps_call(p, row, out);
		p->finalized |= row->type == TYPE_ACL_FINI;
		p->torn_down |= row->type == TYPE_EXIT;
		break;
	default:
		break;
	}
	if (out->steps_anew)
		forget_steps(b, p);
	return out->what;
}

/* --- reading it --- */

static const struct block_device *find_host(const struct blocks *b, uint32_t pid)
{
	const struct block_process *p = hmap_get_ptr(&b->by_pid, pid);

	return p ? hmap_get_ptr(&p->state->by_device, DEV_HOST) : NULL;
}

uint64_t blocks_most_of_host(const struct blocks *b, uint32_t pid)
{
	const struct block_device *d = find_host(b, pid);

	return !d ? 0 : d->has_driver ? d->most_driver_bytes : d->most_pool_bytes;
}

bool blocks_of_host(const struct blocks *b, uint32_t pid, uint64_t *bytes, uint64_t *blocks,
		    uint32_t *steps, bool *torn_down)
{
	const struct block_device *d = find_host(b, pid);
	const struct block_process *p = d ? d->process : NULL;

	*blocks = 0;
	if (!d)
		return false;
	*bytes = d->has_driver ? d->driver_bytes : d->pool_bytes;
	*steps = p->step_ended;
	*torn_down = p->torn_down;
	for (size_t i = 0; i < p->npools; i++)
		if (p->pools[i]->device == d && p->pools[i]->type == TYPE_HOST)
			*blocks += p->pools[i]->live_blocks;
	return true;
}

void analysis_blocks_process(struct analysis *a, uint32_t pid, const char *command)
{
	blocks_process(a->blocks, pid, command);
}

bool analysis_blocks_unordered(const struct analysis *a)
{
	return a->blocks->unordered;
}
