/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The processes of a summary, their devices and pools, and what is known of them besides rows. */
#include "memory/analysis/summary/summary.h"

#include <stdlib.h>

#include "base/mem.h"
#include "memory/analysis/processes/processes.h"
#include "memory/analysis/summary/summary_impl.h"
#include "wire/record.h"

/* --- processes, devices and pools --- */

struct summary_process *summary_new_process(struct summary *s, uint32_t pid)
{
	struct summary_process *p = xcalloc(1, sizeof(*p));

	p->pid = pid;
	p->first_ns = UINT64_MAX;
	LIST_ADD(s->processes, s->nprocesses, s->processes_cap, p);
	hmap_put_ptr(&s->by_pid, pid, p);
	s->last_process = p;
	return p;
}

struct summary_process *summary_process_of(struct summary *s, uint32_t pid)
{
	struct summary_process *p = s->last_process;

	if (p && p->pid == pid)
		return p;
	p = hmap_get_ptr(&s->by_pid, pid);
	if (!p)
		return summary_new_process(s, pid);
	s->last_process = p;
	return p;
}

static struct summary_device *whole_device(struct summary *s, uint32_t device)
{
	struct summary_device *d = hmap_get_ptr(&s->by_device, device);

	if (d)
		return d;
	d = xcalloc(1, sizeof(*d));
	d->device = device;
	total_keep_course(&d->driver_total);
	total_keep_course(&d->pools_total);
	LIST_ADD(s->devices, s->ndevices, s->devices_cap, d);
	hmap_put_ptr(&s->by_device, device, d);
	return d;
}

static struct summary_device *own_device(struct summary *s, struct summary_process *p,
					 uint32_t device)
{
	struct summary_device *d = hmap_get_ptr(&p->devices, device);

	if (d)
		return d;
	d = xcalloc(1, sizeof(*d));
	d->device = device;
	hmap_put_ptr(&p->devices, device, d);
	whole_device(s, device)->users++;
	return d;
}

static struct summary_pool *new_pool(struct summary *s, struct summary_process *p, uint32_t device,
				     enum row_type type)
{
	struct summary_pool *pool = xcalloc(1, sizeof(*pool));

	pool->process = p;
	pool->number = s->npools++;
	pool->device = device;
	pool->type = type;
	pool->own = own_device(s, p, device);
	pool->all = whole_device(s, device);
	pool->ended_list = SUMMARY_NIL;
	pool->groups = SUMMARY_NIL;
	pool->last_group = SUMMARY_NIL;
	if (blocks_is_driver(type))
		pool->own->has_driver = pool->all->has_driver = true;
	LIST_ADD(p->pool_list, p->npools, p->pools_cap, pool);
	return pool;
}

struct summary_pool *summary_pool_of(struct summary *s, struct summary_process *p,
				     const struct row *row)
{
	enum row_type type = (unsigned)row->type < TYPE_END ? row->type : TYPE_END;
	struct summary_pool *pool = p->last_pool;

	if (pool && pool->device == row->device && pool->type == type)
		return pool;
	uint64_t key = (uint64_t)row->device << 16 | type;
	pool = hmap_get_ptr(&p->pools, key);
	if (!pool) {
		pool = new_pool(s, p, row->device, type);
		hmap_put_ptr(&p->pools, key, pool);
	}
	p->last_pool = pool;
	return pool;
}

/* --- what the caller knows besides rows --- */

void summary_process(struct summary *s, uint32_t pid, const char *cmdline)
{
	struct summary_process *p = summary_process_of(s, pid);

	if (p->named && p->seen.rows)
		p = summary_new_process(s, pid);
	p->named = true;
	free(p->cmdline);
	p->cmdline = cmdline ? xstrdup(cmdline) : NULL;
}

void summary_lost(struct summary *s, uint32_t pid, uint64_t lost_events, uint64_t lost_stacks,
		  uint64_t damaged_bytes)
{
	if (!lost_events && !lost_stacks && !damaged_bytes)
		return;
	struct summary_process *p = summary_process_of(s, pid);
	p->lost.events += lost_events;
	p->lost.stacks += lost_stacks;
	p->lost.damaged_bytes += damaged_bytes;
}

void summary_missing(struct summary *s, const struct loss *missing)
{
	s->missing = *missing;
}

void summary_note(struct summary *s, const char *text)
{
	LIST_ADD(s->notes, s->nnotes, s->notes_cap, xstrdup(text));
}

void summary_processes(struct summary *s, const struct processes *processes)
{
	s->facts = processes;
}

bool summary_host(struct summary *s, uint32_t pid, struct process_blocks *out)
{
	const struct summary_process *p = hmap_get_ptr(&s->by_pid, pid);
	const struct summary_device *d = p ? hmap_get_ptr(&p->devices, DEV_HOST) : NULL;

	if (!d)
		return false;
	*out = (struct process_blocks){
		.bytes = d->has_driver ? d->driver.live_bytes : d->pools.live_bytes,
		.most_bytes = d->has_driver ? d->driver.peak_bytes : d->pools.peak_bytes,
		.steps = (uint32_t)(p->seen.steps + p->seen.detected_steps),
		.torn_down = p->torn_down,
	};
	for (size_t i = 0; i < p->npools; i++)
		if (p->pool_list[i]->own == d && p->pool_list[i]->type == TYPE_HOST)
			out->blocks += p->pool_list[i]->live.blocks;
	return true;
}

bool summary_unordered(const struct summary *s)
{
	return s->unordered;
}

void summary_calls(struct summary *s, uint64_t calls, uint64_t threads, bool db)
{
	s->calls = calls;
	s->call_threads = threads;
	s->calls_in_db = db;
}

void summary_asked(struct summary *s, const struct mem_asked *asked)
{
	s->asked = *asked;
}
