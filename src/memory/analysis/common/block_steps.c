/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/analysis/common/block_steps.h"

#include <string.h>

#include "memory/analysis/common/frames.h"

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
		if (s->source == STEPS_BY_CALL || !row_is_step_range(row))
			return;
		s->source = STEPS_BY_RANGE;
		s->step_start = s->range_starts;
		s->step_range = row->range;
		step_begins(p, row->step ? row->step : p->step + 1, c);
		return;
	}
	if (row->range > s->range_starts + s->range_offset)
		s->range_offset = row->range - s->range_starts;
	uint64_t id = s->step_range ? s->step_range : s->step_start + s->range_offset;
	if (s->source == STEPS_BY_RANGE && row->range && row->range == id)
		step_ends(p, c);
}

void block_steps_call(struct block_steps *s, struct block_process *p, const struct row *row,
		      struct block_change *c)
{
	uint64_t n = 0;

	if (s->source == STEPS_BY_RANGE)
		return;
	s->source = STEPS_BY_CALL;
	p->by_call = true;
	for (size_t i = 0; i < row->name_len && row->name[i] >= '0' && row->name[i] <= '9'; i++)
		n = n * 10 + (uint64_t)(row->name[i] - '0');
	if (!n || n >= UINT32_MAX)
		n = p->step + !p->in_step;
	p->step = (uint32_t)n;
	p->in_step = true;
	step_begins(p, (uint32_t)n + 1, c);
}
