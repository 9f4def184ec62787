/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What a GPU has in use, taken apart: what torch's pool has from the driver, what else the process
 * has there (context, libraries), and what others have. Snapshots tell how much is in use at their
 * very moment; samples, which blocks carry along, tell how much of it is the process' own.
 */
#include "base/text/plain_words.h"
#include "memory/analysis/common/blocks.h"
#include "memory/analysis/summary/query.h"
#include "wire/record.h"

static bool number_of(const struct row *row, enum attr_key key, enum attr_key short_key,
		      uint64_t *out)
{
	const struct attr *a = row_attr(row, key);

	if (!a)
		a = row_attr(row, short_key);
	if (a && a->kind != ATTR_TEXT)
		*out = a->number;
	return a && a->kind != ATTR_TEXT;
}

static uint64_t less(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

static void take_moment(struct summary_device *d, const struct row *row, uint64_t used)
{
	d->use.known = true;
	d->use.time_ns = row->time_ns;
	d->use.used = used;
	d->use.pool = d->driver.live_bytes;
	d->use.tensors = d->pools.live_bytes;
}

void summary_use_block(struct summary_device *d, const struct row *row)
{
	uint64_t all, mine;

	if ((row->type != TYPE_CUDA && row->type != TYPE_TORCH) ||
	    !number_of(row, ATTR_DEVICE_USED, ATTR_DEVICE_USED, &all))
		return;
	bool told = number_of(row, ATTR_PROCESS_USED, ATTR_PROCESS_USED, &mine);
	if (told) {
		d->use.has_others = true;
		d->use.others = less(all, mine);
	}
	/* A sample that is older than what the pool took since is of no use. */
	if (!d->use.exact && d->driver.live_bytes <= (told ? mine : all))
		take_moment(d, row, all);
}

void summary_use_snapshot(struct summary_device *d, const struct row *row)
{
	uint64_t total, unused;

	if (!number_of(row, ATTR_TOTAL_MEM, ATTR_TOTAL, &total) || !total ||
	    !number_of(row, ATTR_FREE_MEM, ATTR_FREE, &unused) ||
	    less(total, unused) < d->driver.live_bytes)
		return;
	d->use.exact = true;
	d->use.total = total;
	take_moment(d, row, less(total, unused));
}

bool summary_use(const struct summary_pool *pool, struct summary_share *out)
{
	const struct summary_device *d = pool->own;
	uint64_t rest = less(d->use.used, d->use.pool);

	if (pool->type != TYPE_CUDA || !d->use.known)
		return false;
	*out = (struct summary_share){
		.total = d->use.total,
		.used = d->use.used,
		.pool = d->use.pool,
		.tensors = d->use.tensors,
		.time_ns = d->use.time_ns,
		.has_others = d->use.has_others,
	};
	if (out->has_others) {
		out->others = d->use.others < rest ? d->use.others : rest;
		out->process = rest - out->others;
	} else {
		out->not_told = rest;
	}
	return true;
}

void summary_use_text(const struct summary *s, const struct summary_pool *pool, struct buf *out)
{
	struct summary_share u;
	char dev[16];

	if (!summary_use(pool, &u))
		return;
	buf_addf(out, "Of device %s ", blocks_device_name(pool->device, dev));
	words_bytes(out, u.used);
	if (u.total) {
		buf_add_str(out, " of ");
		words_bytes(out, u.total);
	}
	buf_add_str(out, " were in use ");
	words_time(out, less(u.time_ns, s->first_ns));
	buf_addf(out, " after the start: the pool of process %u had ", pool->process->pid);
	words_bytes(out, u.pool);
	buf_add_str(out, " (its tensors ");
	words_bytes(out, u.tensors);
	buf_add_str(out, "), ");
	if (u.has_others) {
		buf_add_str(out, "its context and libraries ");
		words_bytes(out, u.process);
		buf_add_str(out, ", other processes and the driver ");
		words_bytes(out, u.others);
		buf_add_str(out, ".");
	} else {
		words_bytes(out, u.not_told);
		buf_add_str(out, " were its context and libraries, other processes and the driver "
				 "(nobody tells them apart here).");
	}
}
