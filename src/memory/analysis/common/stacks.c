/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/analysis/common/stacks.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/containers/intern.h"
#include "base/mem.h"
#include "memory/analysis/common/analysis.h"
#include "memory/analysis/common/frames.h"

#define MAX_WRAPPERS 8
#define SEVERAL (1ull << 63)

static struct frame_line trim_text(const char *data, size_t len)
{
	struct frame_line t = frame_trim(data, len);

	if (t.len > STACKS_MAX_BYTES)
		t.len = STACKS_MAX_BYTES;
	return t;
}

static uint32_t put_lines(struct stacks *s, struct frame_line text)
{
	char *copy = xstrndup(text.text, text.len);
	const char *at = copy;
	struct frame_line line;
	uint64_t *words = NULL;
	size_t n = 0, cap = 0;

	while (frame_next(&at, &line))
		LIST_ADD(words, n, cap, (uintptr_t)intern(line.text, line.len));
	uint32_t number = chains_put(&s->lines, words, n);
	free(words);
	free(copy);
	return number;
}

static uint32_t add_stack(struct stacks *s, uint64_t check, struct frame_line c,
			  struct frame_line py)
{
	if (!s->count)
		s->count = 1; /* number 0 is none */
	s->list = xgrow(s->list, &s->cap, s->count + 1, sizeof(*s->list));
	s->list[0] = (struct kept_stack){0};
	s->list[s->count] = (struct kept_stack){
		.check = check,
		.c = c.len ? put_lines(s, c) : 0,
		.py = py.len ? put_lines(s, py) : 0,
	};
	return (uint32_t)s->count++;
}

/* Texts are distinguished by 128 bits of hash: comparing them too would read each twice. */
uint32_t stacks_of(struct stacks *s, const struct row *row)
{
	if (!row->c_stack_len && !row->py_stack_len)
		return 0;
	struct frame_line c = trim_text(row->c_stack, row->c_stack_len);
	struct frame_line py = trim_text(row->py_stack, row->py_stack_len);
	if (!c.len && !py.len)
		return 0;
	XXH128_hash_t h = XXH3_128bits(c.len ? c.text : "", c.len);
	if (py.len) {
		XXH128_hash_t more = XXH3_128bits_withSeed(py.text, py.len, h.low64);
		h.low64 ^= more.low64;
		h.high64 += more.high64;
	}
	for (;; h.low64++) {
		uint64_t found = hmap_get(&s->by_hash, h.low64);

		if (found == HMAP_NONE)
			break;
		if (s->list[found].check == h.high64)
			return (uint32_t)found;
	}
	uint32_t number = add_stack(s, h.high64, c, py);
	hmap_put(&s->by_hash, h.low64, number);
	return number;
}

static const char *add_lines(const struct stacks *s, uint32_t number, struct buf *out)
{
	const uint64_t *words;
	size_t n;

	buf_clear(out);
	while ((words = chains_next(&s->lines, &number, &n)))
		for (size_t i = 0; i < n; i++) {
			if (out->len)
				buf_add_char(out, '\n');
			buf_add_str(out, (const char *)(uintptr_t)words[i]);
		}
	return out->len ? buf_str(out) : NULL;
}

static struct stack put_together(const struct stacks *s, uint32_t number, struct shown_stack *out)
{
	out->number = number;
	return (struct stack){add_lines(s, s->list[number].c, &out->c),
			      add_lines(s, s->list[number].py, &out->py)};
}

struct stack stacks_get(const struct stacks *s, uint32_t number)
{
	struct stacks *known = (struct stacks *)s; /* what is shown is a cache */

	if (!number || number >= s->count)
		return (struct stack){0};
	for (unsigned i = 0; i < STACKS_SHOWN; i++) {
		const struct shown_stack *it = &s->shown[i];

		if (it->number == number)
			return (struct stack){it->c.len ? it->c.data : NULL,
					      it->py.len ? it->py.data : NULL};
	}
	return put_together(s, number, &known->shown[known->nshown++ % STACKS_SHOWN]);
}

/* The frames that matter: Python's where there are any. */
static size_t pick_frames(const struct stack *stack, struct frame_line *out)
{
	if (stack->py)
		return frames_pick(stack->py, true, out, MAX_WRAPPERS);
	return stack->c ? frames_pick(stack->c, false, out, MAX_WRAPPERS) : 0;
}

/* Of the function alone, without its line: goes on from the hash of the frames inside. */
static uint64_t hash_function(const struct frame_line *line, uint64_t inner)
{
	struct frame_line function = frame_function(line, false);

	return XXH3_64bits_withSeed(function.text, function.len, inner);
}

/* For frames from the innermost on: the hash with their only caller, SEVERAL if there are more. */
static void learn_callers(struct stacks *s, const struct stack *stack)
{
	struct frame_line lines[MAX_WRAPPERS];
	size_t n = stack->py ? 0 : pick_frames(stack, lines);
	uint64_t hash = 0;

	/* The last one may have been called by anybody: stacks are cut at the depth asked for. */
	for (size_t i = 0; i + 1 < n; i++) {
		hash = hash_function(&lines[i], hash);
		uint64_t caller = hash_function(&lines[i + 1], hash) >> 1;
		uint64_t known = hmap_get(&s->callers, hash);
		if (known == HMAP_NONE)
			hmap_put(&s->callers, hash, caller);
		else if (known != caller)
			hmap_put(&s->callers, hash, SEVERAL);
	}
}

static void learn_all(struct stacks *s)
{
	struct shown_stack text = {0};

	for (; s->learned < s->count; s->learned++) {
		struct stack stack = put_together(s, (uint32_t)s->learned, &text);
		learn_callers(s, &stack);
	}
	buf_release(&text.c);
	buf_release(&text.py);
}

/* The frame that names a call stack; false: there is none. */
static bool find_place(const struct stacks *s, const struct stack *stack, struct frame_line *out)
{
	struct stacks *known = (struct stacks *)s; /* what it has learned is a cache */
	struct frame_line lines[MAX_WRAPPERS];
	size_t n = pick_frames(stack, lines), i;
	uint64_t hash = 0;

	if (!n)
		return false;
	if (known->learned < s->count)
		learn_all(known);
	for (i = 0; i < n && !stack->py; i++) {
		hash = hash_function(&lines[i], hash);
		if (hmap_get(&s->callers, hash) != SEVERAL)
			break;
	}
	*out = lines[i < n ? i : 0];
	return true;
}

bool stacks_place(const struct stacks *s, uint32_t number, struct buf *out)
{
	struct stack stack = stacks_get(s, number);
	struct frame_line place;

	if (!find_place(s, &stack, &place))
		return false;
	frame_describe(&place, stack.py, out);
	return true;
}

bool stacks_via(const struct stacks *s, uint32_t number, struct buf *out)
{
	struct stack stack = stacks_get(s, number);
	struct frame_line place, via;

	if (!find_place(s, &stack, &place) || frame_origin(&place, stack.py) != FRAME_USER ||
	    !frames_via(stack.py ? stack.py : stack.c, &place, stack.py, &via))
		return false;
	frame_describe_call(&via, stack.py, out);
	return true;
}

bool stacks_where(const struct stacks *s, uint32_t number, struct buf *out)
{
	struct buf via = {0};

	if (!stacks_place(s, number, out))
		return false;
	if (stacks_via(s, number, &via)) {
		buf_add_str(out, " via ");
		buf_add(out, via.data, via.len);
	}
	buf_release(&via);
	return true;
}

void stacks_release(struct stacks *s)
{
	for (unsigned i = 0; i < STACKS_SHOWN; i++) {
		buf_release(&s->shown[i].c);
		buf_release(&s->shown[i].py);
	}
	free(s->list);
	chains_release(&s->lines);
	hmap_release(&s->by_hash);
	hmap_release(&s->callers);
	*s = (struct stacks){0};
}
