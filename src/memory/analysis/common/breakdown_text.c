/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/analysis/common/breakdown_text.h"

#include <string.h>

#include "formats/json_value.h"
#include "memory/analysis/common/fields.h"
#include "memory/analysis/processes/programs.h"

static bool has_other(struct breakdown *c, const struct block_process *p)
{
	struct blocks *b = c->blocks;

	for (size_t i = 0; i < b->nprocesses; i++)
		if (b->processes[i]->ndevices && b->processes[i]->pid != p->pid)
			return true;
	return false;
}

/* Has it been another program, before exec() or after it, with memory worth a word? */
static bool has_other_program(struct breakdown *c, const struct block_process *p)
{
	struct blocks *b = c->blocks;

	for (size_t i = 0; i < b->nprocesses; i++)
		for (size_t k = 0; k < b->processes[i]->ndevices; k++) {
			const struct block_device *d = b->processes[i]->devices[k];

			if (b->processes[i] != p && b->processes[i]->pid == p->pid &&
			    (d->most_driver_bytes >= HELPER_BYTES ||
			     d->most_pool_bytes >= HELPER_BYTES))
				return true;
		}
	return false;
}

/* The first word of its command line, without the directories. */
static void describe_program(const struct block_process *p, struct buf *out)
{
	size_t len = p->command ? strcspn(p->command, " ") : 0;
	const char *slash = len ? memrchr(p->command, '/', len) : NULL;
	struct buf name = {0};

	if (slash) {
		len -= (size_t)(slash + 1 - p->command);
		buf_add(&name, slash + 1, len);
	} else if (len) {
		buf_add(&name, p->command, len);
	}
	if (len)
		add_text(out, ", as {}", PRINTABLE(buf_str(&name)));
	buf_release(&name);
}

void breakdown_describe_device(struct breakdown *c, const struct block_device *d,
			       bool begins_sentence, struct buf *out)
{
	words_device(out, d->device, begins_sentence);
	bool programs = has_other_program(c, d->process);

	if (programs || has_other(c, d->process))
		add_text(out, " of process {}", NUMBER(d->process->pid));
	if (programs)
		describe_program(d->process, out);
}

static uint64_t after_start(struct breakdown *c, const struct breakdown_moment *m)
{
	uint64_t first = c->blocks->first_ns;

	return m->time_ns > first ? m->time_ns - first : 0;
}

bool breakdown_is_after_steps(const struct block_process *p, uint32_t step)
{
	return p->by_call && step && step == p->step && step == p->step_ended + 1;
}

void breakdown_describe_when(struct breakdown *c, struct block_device *d, bool at_end,
			     struct buf *out)
{
	const struct breakdown_moment *m = breakdown_moment(c, d);

	if (at_end) {
		add_text(out, " at the end");
		return;
	}
	if (after_start(c, m))
		add_text(out, " {} after the start", DURATION(after_start(c, m)));
	else
		add_text(out, " at the start");
	if (m->in_step && breakdown_is_after_steps(d->process, m->step))
		add_text(out, ", after step {}", NUMBER(m->step - 1));
	else if (m->in_step || m->step)
		add_text(out, m->in_step ? ", in step {}" : ", after step {}", NUMBER(m->step));
}

void breakdown_describe_outside(const struct block_device *d, const struct breakdown_shares *s,
				const struct report *r)
{
	struct buf t = {0};

	if (!s->outside_bytes)
		return;
	if (d->has_driver)
		add_text(&t,
			 "{} of this lie in no driver memory that was recorded, so the whole is "
			 "more "
			 "than the driver's bytes.",
			 BYTES(s->outside_bytes));
	else
		add_text(&t, "The driver's memory was not recorded: this is what pools say.");
	report_paragraph(r, 0, &t);
}

void breakdown_end_answer(size_t n, struct buf *text, const struct report *r)
{
	size_t more = n > BREAKDOWN_MAX_ANSWERS ? n - BREAKDOWN_MAX_ANSWERS : 0;

	if (!n)
		add_text(text, "No allocation of memory was recorded.");
	if (more && !r->style->console)
		add_text(text, " {} more {} below.", NUMBER(more), TEXT(more == 1 ? "is" : "are"));
	report_paragraph(r, 0, text);
}

void breakdown_remarks(struct breakdown *c, size_t n, const struct programs *programs,
		       const struct report *r)
{
	struct buf t = {0};

	if (n > BREAKDOWN_MAX_DEVICES)
		report_add(r, "\n{} more are in the JSON.\n", NUMBER(n - BREAKDOWN_MAX_DEVICES));
	if (programs_helpers(programs)) {
		report_add(r, "\n");
		programs_describe_helpers(programs, "held", r->out);
		report_add(r, " (JSON has all)\n");
	}
	if (n && !breakdown_has_owners(c))
		add_text(&t, "No owners are known: record with --analysis=decompose to see modules "
			     "of PyTorch, weights, gradients and labels.\n");
	if (c->blocks->unordered)
		add_text(&t, "The rows were not in the order of time, so this is not exact.\n");
	report_remarks(r, &t);
}

static json_t *pools_json(const struct breakdown_moment *m)
{
	json_t *list = json_array();

	for (size_t i = 0; i < m->npools; i++) {
		const struct breakdown_pool *p = &m->pools[i];
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

json_t *breakdown_device_json(struct breakdown *c, struct block_device *d,
			      const struct breakdown_shares *s)
{
	const struct breakdown_moment *m = breakdown_moment(c, d);
	json_t *o = json_object();
	uint64_t free_bytes = 0;

	for (size_t i = 0; i < s->n; i++)
		free_bytes += s->list[i].block ? 0 : s->list[i].bytes;
	put_number(o, "pid", d->process->pid);
	put_device(o, d->device);
	put_number(o, "time_ns", m->time_ns);
	put_number(o, "after_ns", after_start(c, m));
	bool after = m->in_step && breakdown_is_after_steps(d->process, m->step);
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
