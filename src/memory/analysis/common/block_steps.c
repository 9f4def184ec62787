/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/analysis/common/block_steps.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "formats/json_value.h"
#include "memory/analysis/common/frames.h"
#include "memory/analysis/common/memory_words.h"
#include "wire/record.h"

bool row_is_step_range(const struct row *row)
{
	struct frame_line name = frame_trim(row->name, row->name_len);

	return name.len == strlen("step start") && !memcmp(name.text, "step start", name.len);
}

static void step_ends(struct block_process *p, struct block_change *c)
{
	if (!p->in_step)
		return;
	p->in_step = false;
	p->step_ended = p->step;
	c->step_ended = p->step;
}

static void step_begins(struct block_process *p, uint32_t number, struct block_change *c)
{
	step_ends(p, c);
	p->step = number;
	p->in_step = true;
	c->step_begun = number;
}

/* What was detected so far was no step. */
static void count_anew(struct block_process *p, struct block_change *c)
{
	if (!steps_are_detected(p->steps_by))
		return;
	free(p->step_name);
	p->step_name = NULL;
	p->steps_by = STEPS_UNKNOWN;
	p->step = p->step_ended = 0;
	p->in_step = p->by_call = false;
	c->steps_anew = true;
}

/*
 * Rows of a dump do not have the id of a range that starts. Ids are given in the order of starts,
 * so the number of the start is the id, less those that are not in this file: an end with a greater
 * id than expected shows how many these are.
 */
void block_steps_range(struct block_steps *s, struct block_process *p, const struct row *row,
		       struct block_change *c)
{
	if (row->type == TYPE_RANGE_START) {
		s->range_starts++;
		if (p->steps_by == STEPS_BY_CALL || !row_is_step_range(row))
			return;
		count_anew(p, c);
		p->steps_by = STEPS_BY_RANGE;
		s->step_start = s->range_starts;
		s->step_range = row->range;
		step_begins(p, row->step ? row->step : p->step + 1, c);
		return;
	}
	if (row->range > s->range_starts + s->range_offset)
		s->range_offset = row->range - s->range_starts;
	uint64_t id = s->step_range ? s->step_range : s->step_start + s->range_offset;
	if (p->steps_by == STEPS_BY_RANGE && row->range && row->range == id)
		step_ends(p, c);
}

/* "3 AdamW": the number, and the name of what steps. */
static uint64_t read_step(const struct row *row, const char **name, size_t *len)
{
	uint64_t n = 0;
	size_t i = 0;

	for (; i < row->name_len && row->name[i] >= '0' && row->name[i] <= '9'; i++)
		n = n * 10 + (uint64_t)(row->name[i] - '0');
	*name = row->name + i;
	*len = row->name_len - i;
	return n;
}

static void note_source(struct block_process *p, enum step_source by, const char *name, size_t len)
{
	p->steps_by = by;
	if (steps_are_detected(by) && !p->step_name && len > 1 && name[0] == ' ')
		p->step_name = xstrndup(name + 1, len - 1);
}

void block_steps_call(struct block_process *p, const struct row *row, struct block_change *c)
{
	enum step_source by = !row->hidden		   ? STEPS_BY_CALL
			      : row->range == STEP_FORWARD ? STEPS_BY_FORWARD
							   : STEPS_BY_OPTIMIZER;
	const char *name;
	size_t len;
	uint64_t n = read_step(row, &name, &len);

	if (p->steps_by == STEPS_BY_RANGE ||
	    (steps_are_detected(by) && p->steps_by == STEPS_BY_CALL))
		return;
	if (by != p->steps_by || (n == 1 && row->hidden))
		count_anew(p, c);
	note_source(p, by, name, len);
	p->by_call = true;
	if (!n || n >= UINT32_MAX)
		n = p->step + !p->in_step;
	p->step = (uint32_t)n;
	p->in_step = true;
	step_begins(p, (uint32_t)n + 1, c);
}

/* --- how they are known --- */

static const struct block_process *most_steps(const struct blocks *b)
{
	const struct block_process *most = NULL;

	for (size_t i = 0; i < b->nprocesses; i++) {
		const struct block_process *p = b->processes[i];

		if (p->step_ended && (!most || p->step_ended > most->step_ended))
			most = p;
	}
	return most;
}

void steps_describe(const struct blocks *b, struct buf *out)
{
	const struct block_process *p = most_steps(b);

	if (!p || !steps_are_detected(p->steps_by))
		return;
	add_text(out, " Steps were detected from {}",
		 TEXT(p->steps_by == STEPS_BY_FORWARD ? "calls of the model" : "the optimizer"));
	if (p->step_name)
		add_text(out, " ({})", PRINTABLE(p->step_name));
	add_text(out, ".");
}

json_t *steps_json_of(const struct block_process *p)
{
	static const char *const sources[] = {[STEPS_UNKNOWN] = "explicit",
					      [STEPS_BY_RANGE] = "range",
					      [STEPS_BY_CALL] = "explicit",
					      [STEPS_BY_OPTIMIZER] = "optimizer",
					      [STEPS_BY_FORWARD] = "forward"};
	json_t *o;

	if (!p || !p->step_ended)
		return json_null();
	o = json_object();
	put_text(o, "source", sources[p->steps_by]);
	put_text(o, "name", p->step_name);
	return o;
}

json_t *steps_json(const struct blocks *b)
{
	return steps_json_of(most_steps(b));
}
