/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Collectives of each rank, in order of time; collectives_match.c finds out which belong together. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/mem.h"
#include "timeline/collectives_impl.h"

struct collectives *collectives_new(void)
{
	return xcalloc(1, sizeof(struct collectives));
}

void collectives_free(struct collectives *c)
{
	if (!c)
		return;
	for (size_t i = 0; i < c->nseries; i++)
		free(c->series[i].list);
	for (size_t i = 0; i < c->nranks; i++)
		free(c->ranks[i].steps);
	free(c->series);
	free(c->ranks);
	hmap_release(&c->by_group);
	free(c);
}

size_t collectives_begin_rank(struct collectives *c, unsigned host)
{
	c->rank = c->nranks;
	*XPUSH(c->ranks, c->nranks, c->cap_ranks) = (struct rank){.host = host};
	return c->rank;
}

void collectives_go_on_with_rank(struct collectives *c, size_t rank)
{
	c->rank = rank;
}

/* "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "hcom_allReduce_", "all_gather_into_tensor" */
bool collectives_is_one(const char *name)
{
	static const char *const words[] = {"allreduce", "allgather", "reducescatter", "barrier"};
	char plain[64];
	size_t n = 0;

	for (; *name && n < sizeof(plain) - 1; name++)
		if (*name != '_')
			plain[n++] = (char)tolower((unsigned char)*name);
	plain[n] = '\0';
	for (unsigned i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (strstr(plain, words[i]))
			return true;
	return false;
}

static struct series *find_series(struct collectives *c, const char *group)
{
	const uint64_t key[] = {c->rank, (uintptr_t)group};
	uint64_t hash = XXH3_64bits(key, sizeof(key)), at = hmap_get(&c->by_group, hash);

	if (at != HMAP_NONE)
		return &c->series[at];
	hmap_put(&c->by_group, hash, c->nseries);
	struct series *s = XPUSH(c->series, c->nseries, c->cap_series);
	*s = (struct series){.group = group, .rank = c->rank, .keep = 1};
	return s;
}

/*
 * Only so many are kept of a rank: those of every second, fourth, … stretch of time. Stretches are
 * long, so that hosts whose clocks are some seconds apart keep the same ones.
 */
static bool is_kept(const struct series *s, uint64_t start_ns)
{
	return start_ns / STRETCH_NS % s->keep == 0;
}

static void thin_out(struct series *s)
{
	size_t kept = 0;

	s->keep *= 2;
	for (size_t i = 0; i < s->n; i++)
		if (is_kept(s, s->list[i].start_ns))
			s->list[kept++] = s->list[i];
	s->n = kept;
}

void collectives_add(struct collectives *c, const struct collective *x)
{
	struct series *s = find_series(c, x->group);
	const uint64_t what[] = {(uintptr_t)x->name, x->size};

	if (x->end_ns < x->start_ns || x->end_ns > TIME_MAX || !is_kept(s, x->start_ns))
		return;
	if (s->n >= KEPT_MAX && s->keep < 1u << 20)
		thin_out(s);
	if (s->n >= KEPT_MAX)
		return;
	*XPUSH(s->list, s->n, s->cap) =
		(struct item){x->start_ns, x->end_ns, (uint32_t)XXH3_64bits(what, sizeof(what))};
}

void collectives_add_step(struct collectives *c, uint64_t number, uint64_t start_ns,
			  uint64_t end_ns)
{
	struct rank *r = &c->ranks[c->rank];

	if (r->nsteps < STEPS_MAX && end_ns > start_ns && end_ns <= TIME_MAX)
		*XPUSH(r->steps, r->nsteps, r->cap_steps) =
			(struct rank_step){number, start_ns, end_ns};
}

/* False: that is no time any more. */
static bool shift_times(uint64_t *start_ns, uint64_t *end_ns, int64_t by_ns)
{
	*start_ns += (uint64_t)by_ns;
	*end_ns += (uint64_t)by_ns;
	return *start_ns <= *end_ns && *end_ns <= TIME_MAX;
}

void collectives_shift_rank(struct collectives *c, int64_t by_ns)
{
	struct rank *r = &c->ranks[c->rank];
	size_t kept = 0;

	for (size_t i = 0; i < c->nseries; i++) {
		struct series *s = &c->series[i];

		if (s->rank != c->rank)
			continue;
		kept = 0;
		for (size_t k = 0; k < s->n; k++)
			if (shift_times(&s->list[k].start_ns, &s->list[k].end_ns, by_ns))
				s->list[kept++] = s->list[k];
		s->n = kept;
	}
	kept = 0;
	for (size_t k = 0; k < r->nsteps; k++)
		if (shift_times(&r->steps[k].start_ns, &r->steps[k].end_ns, by_ns))
			r->steps[kept++] = r->steps[k];
	r->nsteps = kept;
}
