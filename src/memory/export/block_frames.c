/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/export/block_frames.h"

#include <stdlib.h>
#include <string.h>

#include "base/containers/intern.h"
#include "base/mem.h"
#include "memory/analysis/common/frames.h"

static void add_frame(struct stack_frames *s, const char *name, size_t len,
		      const struct frame_parts *parts, bool users)
{
	s->list = xrealloc(s->list, (s->n + 1) * sizeof(*s->list));
	s->list[s->n++] = (struct profile_frame){
		.name = intern(name, len),
		.file = intern(parts->file.text ? parts->file.text : "", parts->file.len),
		.line = (int32_t)parts->line,
		.users = users,
	};
}

static void take_apart(const struct stack *stack, struct stack_frames *out)
{
	struct frame_list joined = {0};
	struct buf name = {0};

	frames_join(stack->py, stack->c, FRAMES_ALL, &joined);
	for (size_t i = 0; i < joined.n; i++) {
		const struct shown_frame *f = &joined.list[i];
		struct frame_parts parts = {0};

		buf_clear(&name);
		if (f->cut)
			buf_add_str(&name, "...");
		else
			frame_take_apart(&f->line, f->python, &name, &parts);
		bool users = !f->cut && frame_origin(&f->line, f->python) == FRAME_USER;
		add_frame(out, name.data, name.len, &parts, users);
	}
	buf_release(&name);
	frame_list_release(&joined);
}

const struct stack_frames *block_frames_stack(struct block_frames *f, const struct stacks *stacks,
					      uint32_t stack)
{
	static const struct stack_frames none;

	if (!stack)
		return &none;
	if (stack >= f->n) {
		f->list = xgrow(f->list, &f->cap, stack + 1u, sizeof(*f->list));
		memset(f->list + f->n, 0, (stack + 1u - f->n) * sizeof(*f->list));
		f->n = stack + 1u;
	}
	if (!f->list[stack].n) {
		struct stack text = stacks_get(stacks, stack);
		take_apart(&text, &f->list[stack]);
	}
	return &f->list[stack];
}

/* "PTA@model@weight": the innermost part is the last. */
static void split_owner(const char *owner, struct stack_frames *out)
{
	static const struct frame_parts nowhere;
	const char *end = owner + strlen(owner);

	for (const char *p = end; p >= owner; p--) {
		if (p > owner && p[-1] != '@')
			continue;
		add_frame(out, p, (size_t)(end - p), &nowhere, false);
		end = p - 1;
	}
}

const struct stack_frames *block_frames_of(struct block_frames *f, const struct blocks *blocks,
					   const struct block *b)
{
	static const struct frame_parts nowhere;
	static const char none[] = "no call stack recorded", before[] = "before the recording";
	const char *owner = text_numbers_text(&blocks->owners, b->owner);

	if (b->stack)
		return block_frames_stack(f, &blocks->stacks, b->stack);
	f->made_up.n = 0;
	if (*owner)
		split_owner(owner, &f->made_up);
	else if (b->shadow)
		add_frame(&f->made_up, before, strlen(before), &nowhere, false);
	else
		add_frame(&f->made_up, none, strlen(none), &nowhere, false);
	return &f->made_up;
}

void block_frames_release(struct block_frames *f)
{
	for (size_t i = 0; i < f->n; i++)
		free(f->list[i].list);
	free(f->list);
	free(f->made_up.list);
}
