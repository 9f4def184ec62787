/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Call stacks of a process: as they come, and as rows have them. */
#include "memory/track/track_impl.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define STACK_COST 128
#define TEXT_SHARE 4
#define UNKNOWN_STACK "unknown, damaged in the recording\n"

void callstacks_module(struct proc *p, const struct rec_module *r)
{
	size_t len;
	const char *text = rec_text(&r->head, &len);

	if (!p->symbols)
		p->symbols = symbolizer_new();
	symbolizer_add_module(p->symbols, r->start, r->end, r->bias, text, len);
}

/* "file(line): function", as dumps have it. */
void callstacks_python(struct proc *p, const struct rec_python *r)
{
	size_t len;
	const char *name = rec_text(&r->head, &len);
	size_t name_len = strnlen(name, len);
	struct buf text = {0};

	if (omap_get(&p->places, r->id))
		return;
	if (name_len < len)
		buf_add(&text, name + name_len + 1, len - name_len - 1);
	buf_addf(&text, "(%u): ", r->line);
	buf_add(&text, name, name_len);
	buf_add_char(&text, '\n');
	for (size_t i = 0; i + 1 < text.len; i++)
		if ((unsigned char)text.data[i] < ' ')
			text.data[i] = '?';
	omap_put(&p->places, r->id, xstrndup(text.data, text.len));
	buf_release(&text);
}

void callstacks_add(struct proc *p, uint32_t id, const uint64_t *pc, uint32_t depth)
{
	if (omap_get(&p->stacks, id))
		return;
	if (!budget_take(p, STACK_COST + depth * sizeof(pc[0]))) {
		p->refused--; /* its events are there */
		p->refused_stacks++;
		return;
	}
	struct stack_text *s = xcalloc(1, sizeof(*s) + depth * sizeof(pc[0]));
	s->depth = depth;
	memcpy(s->pc, pc, depth * sizeof(pc[0]));
	omap_put(&p->stacks, id, s);
}

/* Where host memory is recorded, a function of ours calls main() (guest/interpose/program_end.c). */
static void drop_own_frames(struct buf *text)
{
	static const char own[] = "/libleaks_ascend_hal_hook.so(";
	size_t kept = 0;

	if (!text->len || !memmem(text->data, text->len, own, sizeof(own) - 1))
		return;
	for (char *at = text->data, *end = at + text->len, *next; at < end; at = next) {
		char *newline = memchr(at, '\n', (size_t)(end - at));

		next = newline ? newline + 1 : end;
		if (memmem(at, (size_t)(next - at), own, sizeof(own) - 1))
			continue;
		memmove(text->data + kept, at, (size_t)(next - at));
		kept += (size_t)(next - at);
	}
	text->len = kept;
}

static bool is_native(uint64_t word)
{
	return (word & STACK_PYTHON) != STACK_PYTHON;
}

/* Returns how many of the words are of C. */
static uint32_t resolve_native(struct proc *p, struct stack_text *s)
{
	uint32_t from = 0, n = 0;

	if (!p->symbols)
		p->symbols = symbolizer_new();
	for (;;) {
		while (n < s->depth && is_native(s->pc[n]))
			n++;
		symbolizer_stack(p->symbols, s->pc + from, n - from, &s->text);
		if (n + 1 >= s->depth || s->pc[n] != STACK_CUT || !is_native(s->pc[n + 1]))
			return n;
		buf_add_str(&s->text, "...\n"); /* as frames.h reads it */
		from = ++n;
	}
}

/* Native addresses come first, places in Python code behind them. */
static void resolve_stack(struct proc *p, struct stack_text *s)
{
	uint32_t native = resolve_native(p, s);

	drop_own_frames(&s->text);
	for (uint32_t i = native; i < s->depth; i++) {
		const char *place = omap_get(&p->places, s->pc[i] & ~STACK_PYTHON);

		if (s->pc[i] == STACK_CUT)
			place = "...\n";
		buf_add_str(&s->python, place ? place : "?(0): ?\n");
	}
	s->resolved = true;
	/* Names are longer than addresses, and real stacks have them: they count for less. */
	if (!budget_take(p, (s->text.cap + s->python.cap) / TEXT_SHARE)) {
		p->refused--;
		p->refused_stacks++;
		buf_release(&s->text);
		buf_release(&s->python);
	}
}

/* One that was in a damaged part of the recording: not the same as none. */
static struct stack_text *add_unknown_stack(struct proc *p, uint32_t id)
{
	if (!budget_take(p, STACK_COST))
		return NULL;
	struct stack_text *s = xcalloc(1, sizeof(*s));
	s->resolved = true;
	buf_add_str(&s->text, UNKNOWN_STACK);
	omap_put(&p->stacks, id, s);
	p->unknown_stacks++;
	return s;
}

void rows_put_stack(struct proc *p, struct row *row, uint32_t id)
{
	struct stack_text *s = id ? omap_get(&p->stacks, id) : NULL;

	if (!p->track->sink.row) /* names cost more than all the rest */
		return;
	if (!s && id && p->track->damage.places)
		s = add_unknown_stack(p, id);
	if (!s)
		return;
	if (!s->resolved)
		resolve_stack(p, s);
	row->c_stack = s->text.data;
	row->c_stack_len = s->text.len;
	row->py_stack = s->python.data;
	row->py_stack_len = s->python.len;
}

static void free_stack(void *value)
{
	struct stack_text *s = value;

	buf_release(&s->text);
	buf_release(&s->python);
	free(s);
}

void callstacks_release(struct proc *p)
{
	omap_release_values(&p->stacks, free_stack);
	omap_release_values(&p->places, free);
	symbolizer_free(p->symbols);
}
