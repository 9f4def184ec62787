/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What a GPU has in use, taken apart: what torch's pool has from the driver, what else the process
 * has there (context, libraries), and what others have. Snapshots say how much is in use at their
 * very moment; samples, which blocks carry along, say how much of it is the process' own.
 */
#include "memory/analysis/summary/summary_impl.h"
#include "wire/record.h"

static uint64_t less(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

static struct summary_moment moment_now(const struct summary_device *d, const struct row *row)
{
	return (struct summary_moment){
		.time_ns = row->time_ns,
		.blocks = d->driver.live_bytes,
		.tensors = d->pools.live_bytes,
		.kept = d->kept,
	};
}

static void take_moment(struct summary_device *d, const struct summary_moment *m, uint64_t used)
{
	d->use.known = true;
	d->use.used = used;
	d->use.then = *m;
}

void summary_use_block(struct summary_device *d, const struct row *row)
{
	const struct summary_moment before = d->newest;
	uint64_t all, mine, has, blocks, job;

	if (row->type == TYPE_CUDA && row_number(row, ATTR_TOTAL, &has) &&
	    row_number(row, ATTR_USED, &blocks))
		d->kept = less(has, blocks);
	d->newest = moment_now(d, row);
	if ((row->type != TYPE_CUDA && row->type != TYPE_TORCH) ||
	    !row_number(row, ATTR_DEVICE_USED, &all))
		return;
	bool known = row_number(row, ATTR_PROCESS_USED, &mine);
	if (known) {
		d->use.has_others = true;
		d->use.others = less(all, mine);
		d->use.job = row_number(row, ATTR_JOB_USED, &job) ? job : 0;
	}
	/* It was taken before the first row that has it. */
	if (d->sampled == all || d->use.exact || !before.blocks)
		return;
	d->sampled = all;
	if (before.blocks <= (known ? mine : all))
		take_moment(d, &before, all);
}

void summary_use_snapshot(struct summary_device *d, const struct row *row)
{
	uint64_t total, unused;

	/* The short words of 26.0 mean the same here. */
	if ((!row_number(row, ATTR_TOTAL_MEM, &total) && !row_number(row, ATTR_TOTAL, &total)) ||
	    !total ||
	    (!row_number(row, ATTR_FREE_MEM, &unused) && !row_number(row, ATTR_FREE, &unused)) ||
	    less(total, unused) < d->driver.live_bytes)
		return;
	const struct summary_moment now = moment_now(d, row);
	d->use.exact = true;
	d->use.total = total;
	take_moment(d, &now, less(total, unused));
}

bool summary_use(const struct summary_pool *pool, struct summary_share *out)
{
	const struct summary_device *d = pool->own;
	uint64_t rest = less(d->use.used, d->use.then.blocks);
	uint64_t kept = d->use.then.kept < rest ? d->use.then.kept : rest;

	if (pool->type != TYPE_CUDA || !d->use.known)
		return false;
	*out = (struct summary_share){
		.total_bytes = d->use.total,
		.used_bytes = d->use.used,
		.pool_bytes = d->use.then.blocks,
		.tensor_bytes = d->use.then.tensors,
		.kept_bytes = kept,
		.time_ns = d->use.then.time_ns,
		.has_others = d->use.has_others,
	};
	rest -= kept;
	if (out->has_others) {
		out->others = d->use.others < rest ? d->use.others : rest;
		out->job = d->use.job < out->others ? d->use.job : out->others;
		out->process = rest - out->others;
	} else {
		out->not_told = rest;
	}
	return true;
}
