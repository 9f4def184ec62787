/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "memory/analysis/processes/programs.h"

#include "memory/analysis/common/memory_words.h"

void programs_add(struct programs *p, const void *program, uint32_t pid, uint64_t bytes)
{
	uint64_t before = hmap_get(&p->by_pid, pid);
	uint64_t own = hmap_get(&p->by_program, (uintptr_t)program);

	if (bytes == HMAP_NONE) /* foreign sums may be anything */
		bytes--;
	if (own == HMAP_NONE || bytes > own)
		hmap_put(&p->by_program, (uintptr_t)program, bytes);
	if (before == HMAP_NONE) {
		p->processes++;
		p->small++;
	}
	if (before != HMAP_NONE && bytes <= before)
		return;
	hmap_put(&p->by_pid, pid, bytes);
	p->small -= bytes >= HELPER_BYTES && (before == HMAP_NONE || before < HELPER_BYTES);
}

bool programs_is_helper(const struct programs *p, const void *program)
{
	uint64_t bytes = hmap_get(&p->by_program, (uintptr_t)program);

	return p->small < p->processes && bytes != HMAP_NONE && bytes < HELPER_BYTES;
}

size_t programs_helpers(const struct programs *p)
{
	return p->small < p->processes ? p->small : 0;
}

bool programs_describe_helpers(const struct programs *p, const char *did, struct buf *out)
{
	size_t n = programs_helpers(p);

	if (n)
		add_text(out, "and {} helper process{} that {} less than {}", NUMBER(n),
			 TEXT(n == 1 ? "" : "es"), TEXT(did), BYTES(HELPER_BYTES));
	return n;
}

void programs_release(struct programs *p)
{
	hmap_release(&p->by_program);
	hmap_release(&p->by_pid);
	*p = (struct programs){0};
}
