/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Call stacks, each kept once, and the groups of blocks that came from one of them. */
#include <string.h>
#include <xxhash.h>

#include "analyze/summary_impl.h"
#include "base/mem.h"

struct frame_line summary_trim(const char *data, size_t len)
{
	struct frame_line t = {data, data ? len : 0};

	while (t.len && strchr("\" \n\r", t.text[0])) {
		t.text++;
		t.len--;
	}
	while (t.len && strchr("\" \n\r", t.text[t.len - 1]))
		t.len--;
	if ((t.len == 2 && !memcmp(t.text, "NA", 2)) || (t.len == 3 && !memcmp(t.text, "N/A", 3)))
		t.len = 0;
	if (t.len > SUMMARY_MAX_STACK_BYTES)
		t.len = SUMMARY_MAX_STACK_BYTES;
	return t;
}

static uint32_t new_stack(struct summary *s, uint64_t check, struct frame_line c,
			  struct frame_line py)
{
	s->stacks = xgrow(s->stacks, &s->stacks_cap, s->nstacks + 1, sizeof(*s->stacks));
	s->stacks[s->nstacks] = (struct summary_stack){
		.check = check,
		.c = c.len ? xstrndup(c.text, c.len) : NULL,
		.py = py.len ? xstrndup(py.text, py.len) : NULL,
	};
	return (uint32_t)s->nstacks++;
}

/* Texts are told apart by 128 bits of hash: comparing them too would read each twice. */
uint32_t summary_stack_of(struct summary *s, const struct row *row)
{
	struct frame_line c = summary_trim(row->c_stack, row->c_stack_len);
	struct frame_line py = summary_trim(row->py_stack, row->py_stack_len);

	if (!c.len && !py.len)
		return 0;
	XXH128_hash_t h = XXH3_128bits(c.len ? c.text : "", c.len);
	if (py.len) {
		XXH128_hash_t more = XXH3_128bits_withSeed(py.text, py.len, h.low64);
		h.low64 ^= more.low64;
		h.high64 += more.high64;
	}
	for (;; h.low64++) {
		uint64_t found = hmap_get(&s->by_stack, h.low64);

		if (found == HMAP_NONE)
			break;
		if (s->stacks[found].check == h.high64)
			return (uint32_t)found;
	}
	uint32_t number = new_stack(s, h.high64, c, py);
	hmap_put(&s->by_stack, h.low64, number);
	return number;
}

uint32_t summary_group_of(struct summary *s, struct summary_pool *pool, uint32_t stack)
{
	if (pool->last_group != SUMMARY_NIL && pool->last_stack == stack)
		return pool->last_group;
	uint64_t key = (uint64_t)pool->number << 32 | stack;
	uint64_t found = hmap_get(&s->by_group, key);
	if (found == HMAP_NONE) {
		s->groups = xgrow(s->groups, &s->groups_cap, s->ngroups + 1, sizeof(*s->groups));
		found = s->ngroups++;
		s->groups[found] =
			(struct summary_group){.pool = pool, .stack = stack, .next = pool->groups};
		pool->groups = (uint32_t)found;
		hmap_put(&s->by_group, key, found);
	}
	pool->last_stack = stack;
	pool->last_group = (uint32_t)found;
	return pool->last_group;
}
