/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/analysis/common/breakdown_text.h"

#include "base/text/plain_words.h"
#include "formats/json_value.h"
#include "memory/analysis/common/json.h"
#include "memory/analysis/common/memory_words.h"

static size_t processes_with_rows(struct census *c)
{
	struct blocks *b = census_blocks(c);
	size_t n = 0;

	for (size_t i = 0; i < blocks_nprocesses(b); i++)
		n += blocks_process_at(b, i)->ndevices > 0;
	return n;
}

void census_say_device(struct census *c, const struct block_device *d, bool begins_sentence,
		       struct buf *out)
{
	words_device(out, d->device, begins_sentence);
	if (processes_with_rows(c) > 1)
		buf_addf(out, " of process %u", d->process->pid);
}

static uint64_t after_start(struct census *c, const struct census_moment *m)
{
	uint64_t first = blocks_first_ns(census_blocks(c));

	return m->time_ns > first ? m->time_ns - first : 0;
}

bool census_is_after_steps(const struct block_process *p, uint32_t step)
{
	return p->by_call && step && step == p->step && step == p->step_ended + 1;
}

void census_say_when(struct census *c, struct block_device *d, bool at_end, struct buf *out)
{
	const struct census_moment *m = census_moment(c, d);

	if (at_end) {
		buf_add_str(out, " at the end");
		return;
	}
	if (after_start(c, m)) {
		buf_add_char(out, ' ');
		words_time(out, after_start(c, m));
		buf_add_str(out, " after the start");
	} else {
		buf_add_str(out, " at the start");
	}
	if (m->in_step && census_is_after_steps(d->process, m->step))
		buf_addf(out, ", after step %u", m->step - 1);
	else if (m->in_step)
		buf_addf(out, ", in step %u", m->step);
	else if (m->step)
		buf_addf(out, ", after step %u", m->step);
}

void census_say_outside(const struct block_device *d, const struct census_shares *s,
			const struct page *g)
{
	struct buf t = {0};

	if (!s->outside_bytes)
		return;
	if (d->has_driver) {
		words_bytes(&t, s->outside_bytes);
		buf_add_str(&t, " of this lie in no driver memory that was recorded, so the whole "
				"is more than the driver's bytes.");
	} else {
		buf_add_str(&t, "The driver's memory was not recorded: this is what pools say.");
	}
	page_paragraph(g, 0, &t);
}

void census_doubts(struct census *c, bool any, const struct page *g)
{
	struct buf t = {0};

	if (any && !census_has_owners(c))
		buf_add_str(&t, "Owners were not recorded: record with --analysis=decompose to see "
				"modules, weights, gradients and labels.\n");
	if (blocks_unordered(census_blocks(c)))
		buf_add_str(&t, "The rows were not in the order of time, so this is not exact.\n");
	page_remarks(g, &t);
}

static json_t *pools_json(const struct census_moment *m)
{
	json_t *list = json_array();

	for (size_t i = 0; i < m->npools; i++) {
		const struct census_pool *p = &m->pools[i];
		json_t *o = json_object();

		put_pool(o, p->pool->type);
		put_number(o, "allocated_bytes", p->live_bytes);
		put_number(o, "blocks", p->live_blocks);
		if (!blocks_is_driver(p->pool->type))
			put_number(o, "reserved_bytes", p->reserved);
		json_array_append_new(list, o);
	}
	return list;
}

json_t *census_device_json(struct census *c, struct block_device *d, const struct census_shares *s)
{
	const struct census_moment *m = census_moment(c, d);
	json_t *o = json_object();
	uint64_t free_bytes = 0;

	for (size_t i = 0; i < s->n; i++)
		free_bytes += s->list[i].block ? 0 : s->list[i].bytes;
	put_number(o, "pid", d->process->pid);
	put_device(o, d->device);
	put_number(o, "time_ns", m->time_ns);
	put_number(o, "after_ns", after_start(c, m));
	bool after = m->in_step && census_is_after_steps(d->process, m->step);
	put_number(o, "step", after ? m->step - 1 : m->step);
	put_bool(o, "in_step", m->in_step && !after);
	put_number(o, "bytes", s->bytes);
	put_number(o, "driver_bytes", m->driver_bytes);
	put_number(o, "allocated_in_pools_bytes", m->pool_bytes);
	put_number(o, "free_in_pools_bytes", free_bytes);
	put_number(o, "outside_bytes", s->outside_bytes);
	json_object_set_new(o, "pools", pools_json(m));
	return o;
}
