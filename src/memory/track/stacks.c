/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Call stacks of a process: as they come, and as rows have them. */
#include "memory/track/track_impl.h"

#include "base/mem.h"
#include "wire/ring.h"

#include <stdlib.h>
#include <string.h>

#define STACK_COST 64
#define WORD_COST (3 * sizeof(uint64_t)) /* with its part of maps; analyses keep it once more */
#define SHOWN 256u /* a power of two */
#define LONG_TEXT (64u << 10)
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
	size_t before = p->frames.n, most = (size_t)depth * WORD_COST, used;

	if (hmap_get(&p->stacks, id) != HMAP_NONE)
		return;
	if (!budget_take(p, STACK_COST + most)) {
		p->refused--; /* its events are there */
		p->refused_stacks++;
		return;
	}
	hmap_put(&p->stacks, id, chains_put(&p->frames, pc, depth));
	used = (p->frames.n - before) * WORD_COST;
	if (used < most)
		budget_give_back(p->track, most - used);
}

uint32_t callstacks_words(const struct proc *p, uint64_t frames, uint64_t *out)
{
	const uint64_t *words;
	uint32_t depth = 0;
	size_t n;

	for (uint32_t at = (uint32_t)frames; (words = chains_next(&p->frames, &at, &n));
	     depth += (uint32_t)n)
		memcpy(out + depth, words, n * sizeof(words[0]));
	return depth;
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
static uint32_t resolve_native(struct proc *p, const uint64_t *pc, uint32_t depth, struct buf *out)
{
	uint32_t from = 0, n = 0;

	if (!p->symbols)
		p->symbols = symbolizer_new();
	for (;;) {
		while (n < depth && is_native(pc[n]))
			n++;
		symbolizer_stack(p->symbols, pc + from, n - from, out);
		if (n + 1 >= depth || pc[n] != STACK_CUT || !is_native(pc[n + 1]))
			return n;
		buf_add_str(out, "...\n"); /* as frames.h reads it */
		from = ++n;
	}
}

/* Native addresses come first, places in Python code behind them. */
static void resolve_stack(struct proc *p, uint64_t frames, struct stack_text *out)
{
	uint64_t pc[ARENA_MAX_DEPTH];
	uint32_t depth = callstacks_words(p, frames, pc);
	uint32_t native = resolve_native(p, pc, depth, &out->text);

	drop_own_frames(&out->text);
	for (uint32_t i = native; i < depth; i++) {
		const char *place = omap_get(&p->places, pc[i] & ~STACK_PYTHON);

		if (pc[i] == STACK_CUT)
			place = "...\n";
		buf_add_str(&out->python, place ? place : "?(0): ?\n");
	}
}

static void forget_text(struct stack_text *s)
{
	if (s->text.cap > LONG_TEXT)
		buf_release(&s->text);
	if (s->python.cap > LONG_TEXT)
		buf_release(&s->python);
	buf_clear(&s->text);
	buf_clear(&s->python);
}

/* The text of all of them would be gigabytes: that of the last ones is kept. */
static const struct stack_text *find_text(struct proc *p, uint32_t id, uint64_t frames)
{
	if (!p->shown)
		p->shown = xcalloc(SHOWN, sizeof(*p->shown));
	struct stack_text *s = &p->shown[(id ^ id >> 8) & (SHOWN - 1)];

	if (s->id == id)
		return s;
	forget_text(s);
	s->id = id;
	if (frames)
		resolve_stack(p, frames, s);
	else
		buf_add_str(&s->text, UNKNOWN_STACK);
	return s;
}

void rows_put_stack(struct proc *p, struct row *row, uint32_t id)
{
	uint64_t frames = id ? hmap_get(&p->stacks, id) : HMAP_NONE;

	if (!p->track->sink.row || !id) /* names cost more than all the rest */
		return;
	/* One that was in a damaged part of the recording: not the same as none. */
	if (frames == HMAP_NONE && p->track->damage.places && budget_take(p, STACK_COST)) {
		hmap_put(&p->stacks, id, 0);
		p->unknown_stacks++;
		frames = 0;
	}
	if (frames == HMAP_NONE)
		return;
	const struct stack_text *s = find_text(p, id, frames);

	row->c_stack = s->text.data;
	row->c_stack_len = s->text.len;
	row->py_stack = s->python.data;
	row->py_stack_len = s->python.len;
}

void callstacks_release(struct proc *p)
{
	for (unsigned i = 0; p->shown && i < SHOWN; i++) {
		buf_release(&p->shown[i].text);
		buf_release(&p->shown[i].python);
	}
	free(p->shown);
	hmap_release(&p->stacks);
	chains_release(&p->frames);
	omap_release_values(&p->places, free);
	symbolizer_free(p->symbols);
}
