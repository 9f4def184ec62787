/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What each call site does, from the blocks that were alive when the last step ended.
 *
 * 1. Blocks that were allocated in step 2 or later are listed, in the order of their sites.
 * 2. Of a site's, the lost ones are older, in steps, than any block of the site that was freed.
 * 3. The site grows if these come from two steps or more, and if it still goes on: both the steps
 *    of the lost blocks and the levels of the site (how many blocks it never fell below again) go
 *    up to now, measured by the distance between them so far.
 */
#include <stdlib.h>

#include "base/mem.h"
#include "memory/analysis/leaks/leaks_impl.h"
#include "wire/record.h"

#define SHORT_JOB_STEPS 4

static bool is_carved(const struct block *b)
{
	return b->own[OWN_FLAGS] & (LEAK_CARVED | LEAK_RESERVED);
}

/* --- what was there at the last step end --- */

/* The held blocks of one device. */
struct held {
	struct block_list *list;
	const struct leak_process *process;
	uint64_t carved_bytes; /* of the driver's memory that pools were cut from */
	uint64_t created_bytes; /* of memory without an address */
};

static void take_held(struct held *h, struct block *b)
{
	if (b->state == BLOCK_LEFT && b->free_ns < h->process->end_ns)
		return;
	b->own[OWN_FLAGS] &= ~(uint64_t)LEAK_RESERVED;
	if (is_carved(b))
		h->carved_bytes += b->bytes;
	if (b->own[OWN_FLAGS] & LEAK_CREATED)
		h->created_bytes += b->bytes;
	if (!b->shadow && b->step >= 2 && b->step <= h->process->last_step)
		block_list_add(h->list, b);
}

/*
 * Physical memory behind handles has no address, so it cannot be seen whether a pool was cut from
 * it. It was, if the pools have taken at least as much as there is of it.
 */
static void assign_created(struct block_device *d, const struct held *h, size_t from)
{
	uint64_t reserved = 0;

	for (size_t i = 0; i < d->process->npools; i++) {
		const struct block_pool *pool = d->process->pools[i];
		const struct leak_pool *own = pool->own;

		if (pool->device == d && own && !blocks_is_driver(pool->type))
			reserved += own->reserved_at_end;
	}
	if (!h->created_bytes || reserved < h->carved_bytes ||
	    reserved - h->carved_bytes < h->created_bytes)
		return;
	for (size_t i = from; i < h->list->n; i++)
		if (h->list->at[i]->own[OWN_FLAGS] & LEAK_CREATED)
			h->list->at[i]->own[OWN_FLAGS] |= LEAK_RESERVED;
}

static void list_held(struct leaks *l, struct block_list *out)
{
	for (size_t i = 0; i < l->base.blocks->nprocesses; i++) {
		struct block_process *p = l->base.blocks->processes[i];
		const struct leak_process *own = p->own;

		if (!own || !own->ends)
			continue;
		for (size_t k = 0; k < p->ndevices; k++) {
			struct held h = {.list = out, .process = own};
			size_t from = out->n;

			struct block_walk w = {.held = p->devices[k]};
			for (struct block *b; (b = blocks_next(&w));)
				take_held(&h, b);
			assign_created(p->devices[k], &h, from);
		}
	}
}

static int by_site(const void *pa, const void *pb)
{
	const struct block *a = *(struct block *const *)pa, *b = *(struct block *const *)pb;

	return ORDER(leak_site_of(a)->number, leak_site_of(b)->number)
		       ?: ORDER(is_carved(a), is_carved(b))
		       ?: ORDER(a->seq, b->seq);
}

/* --- one call site --- */

void leak_finding_sum(struct leak_finding *finding, struct block **list, size_t n)
{
	finding->list = list;
	finding->blocks = n;
	finding->bytes = 0;
	finding->steps = 0;
	finding->block_bytes = list[0]->bytes;
	for (size_t i = 0; i < n; i++) {
		finding->bytes += list[i]->bytes;
		finding->steps += !i || list[i]->step != list[i - 1]->step;
		if (list[i]->bytes != list[0]->bytes)
			finding->block_bytes = 0;
	}
	finding->first_step = list[0]->step;
	finding->last_step = list[n - 1]->step;
}

/* Did `n` steps from first to last come so that the next one is not overdue now? */
static bool goes_on(uint64_t n, uint32_t first, uint32_t last, uint32_t now)
{
	uint64_t patience = n < 6 ? n : 6;

	if (n < 2)
		return false;
	return now <= last || 2 * (uint64_t)(now - last) * (n - 1) <= patience * (last - first);
}

static bool levels_go_on(const struct leak_site *s, uint32_t now)
{
	size_t base = s->nlevels && s->levels[0].step <= 1;

	return s->nlevels > base && goes_on(s->nlevels - base, s->levels[base].step,
					    s->levels[s->nlevels - 1].step, now);
}

/* A short job: two steps are all it had, and the blocks of the last one are still there. */
static bool grows_in_short_job(const struct leak_site *s, struct block **list, size_t n,
			       uint32_t last_step)
{
	return last_step <= SHORT_JOB_STEPS && !s->freed_at_end && list[n - 1]->step == last_step &&
	       s->first_step * 2 <= last_step + 2;
}

static void judge_site(struct leak_site *s, struct block **list, size_t n, struct leak_finding *out)
{
	const struct leak_process *p = s->pool->process->own;
	uint32_t last = p->last_step,
		 newest = last > s->life_at_end ? last - s->life_at_end - 1 : 0;
	size_t lost = 0;

	while (lost < n && list[lost]->step <= newest)
		lost++;
	if (!lost) {
		out->kind = LEAK_ROLLING;
		for (; lost < n && list[lost]->step < last;)
			lost++;
	} else {
		leak_finding_sum(out, list, lost);
		bool steps = out->steps > 1
				     ? goes_on(out->steps, out->first_step, out->last_step, newest)
				     : grows_in_short_job(s, list, n, last);
		out->kind = steps && levels_go_on(s, last) ? LEAK_GROWTH
			    : out->steps > 1		   ? LEAK_STOPPED
							   : LEAK_ONCE;
	}
	if (!lost)
		return;
	leak_finding_sum(out, list, lost);
	out->span_steps = newest >= out->first_step ? newest - out->first_step + 1 : 1;
	out->bytes_per_step = out->bytes / out->span_steps;
}

static void put_finding(const struct leak_finding *finding, struct leak_answer *out)
{
	if (finding->blocks) /* else all are of the last step */
		out->findings[out->nfindings++] = *finding;
}

/* Driver memory of the pools; that of the last step may be a passing need. */
static void add_carved(struct block **list, size_t n, struct leak_answer *out)
{
	struct leak_finding finding = {.site = leak_site_of(list[0]), .kind = LEAK_OF_POOL};
	const struct leak_process *p = finding.site->pool->process->own;

	while (n && list[n - 1]->step == p->last_step)
		n--;
	if (n)
		leak_finding_sum(&finding, list, n);
	put_finding(&finding, out);
}

/*
 * Blocks of one size without a call stack are a call site of their own only if it grows. Else they
 * are judged once more together with similar sizes: leaks may differ in size.
 */
static void add_finding(struct leak_site *s, struct block_list list, struct block_list *others,
			struct leak_answer *out)
{
	struct leak_finding finding = {.site = s};

	leak_site_settle(s);
	judge_site(s, list.at, list.n, &finding);
	if (!others || (!s->parent && !s->is_parent) ||
	    (s->parent && finding.kind == LEAK_GROWTH)) {
		put_finding(&finding, out);
		return;
	}
	for (size_t i = 0; i < list.n; i++)
		block_list_add(others, list.at[i]);
}

static int by_kind(const void *pa, const void *pb)
{
	const struct leak_finding *a = pa, *b = pb;

	return ORDER(a->kind, b->kind) ?: ORDER(b->bytes, a->bytes)
	       ?: ORDER(a->site->number, b->site->number);
}

static struct leak_site *parent_of(const struct block *b)
{
	struct leak_site *s = leak_site_of(b);

	return s->parent ? s->parent : s;
}

static int by_parent(const void *pa, const void *pb)
{
	const struct block *a = *(struct block *const *)pa, *b = *(struct block *const *)pb;

	return ORDER(parent_of(a)->number, parent_of(b)->number) ?: ORDER(a->seq, b->seq);
}

static void judge_others(struct block_list *list, struct leak_answer *out)
{
	size_t end;

	out->others = list->at;
	SORT(list->at, list->n, by_parent);
	for (size_t i = 0; i < list->n; i = end) {
		struct leak_site *s = parent_of(list->at[i]);

		for (end = i + 1; end < list->n && parent_of(list->at[end]) == s; end++)
			;
		add_finding(s, (struct block_list){.at = &list->at[i], .n = end - i}, NULL, out);
	}
}

static void judge_sites(struct leaks *l, struct leak_answer *out)
{
	struct block_list list = {0}, others = {0};
	size_t end;

	list_held(l, &list);
	out->blocks = list.at;
	SORT(list.at, list.n, by_site);
	out->findings = xcalloc(2 * l->nsites + 1, sizeof(*out->findings));
	for (size_t i = 0; i < list.n; i = end) {
		struct block **first = &list.at[i];
		struct leak_site *s = leak_site_of(*first);

		for (end = i + 1; end < list.n && leak_site_of(list.at[end]) == s &&
				  is_carved(list.at[end]) == is_carved(*first);
		     end++)
			;
		if (is_carved(*first))
			add_carved(first, end - i, out);
		else
			add_finding(s, (struct block_list){.at = first, .n = end - i}, &others,
				    out);
	}
	judge_others(&others, out);
	SORT(out->findings, out->nfindings, by_kind);
	leaks_group_places(l, out);
}

/* --- what was left at the end --- */

int leak_left_order(const void *pa, const void *pb)
{
	const struct leak_left *a = pa, *b = pb;

	return ORDER(b->bytes, a->bytes) ?: ORDER(a->site->number, b->site->number);
}

/* Who holds the most comes first: a job may have dozens of helpers that hold next to nothing. */
static int larger_rest_first(const void *pa, const void *pb)
{
	const struct leak_rest *a = pa, *b = pb;

	return ORDER(b->bytes, a->bytes) ?: ORDER(a->process->first_ns, b->process->first_ns);
}

static void count_left(struct leak_rest *rest, const struct block *b)
{
	if (b->mapping && is_carved(b)) /* what counts is what Python has cut from it */
		return;
	rest->blocks++;
	rest->bytes += b->bytes;
	rest->running |= b->state == BLOCK_ALIVE;
	if (!blocks_is_device(b->pool->type))
		return;
	struct leak_held *held = is_carved(b) ? &rest->carved : &rest->driver;
	held->blocks++;
	held->bytes += b->bytes;
}

static void count_rest(struct leaks *l, struct block_process *p, struct leak_rest *out)
{
	struct block_list list = {0};
	struct leak_left *last = NULL;
	struct block_walk w = {.blocks = l->base.blocks, .process = p};

	*out = (struct leak_rest){.process = p};
	for (struct block *b; (b = blocks_next(&w));)
		block_list_add(&list, b);
	if (!list.n)
		return;
	SORT(list.at, list.n, by_site);
	out->list = xcalloc(list.n, sizeof(*out->list));
	for (size_t i = 0; i < list.n; i++) {
		const struct block *b = list.at[i];

		if (!last || last->site != leak_site_of(b) || last->carved != is_carved(b)) {
			last = &out->list[out->n++];
			last->site = leak_site_of(b);
			last->carved = is_carved(b);
		}
		last->blocks++;
		last->bytes += b->bytes;
		count_left(out, b);
	}
	SORT(out->list, out->n, leak_left_order);
	free(list.at);
}

const struct leak_rest *leak_rest_of(const struct leak_answer *a, const struct leak_site *s)
{
	for (size_t i = 0; i < a->nrests; i++)
		if (a->rests[i].process == s->pool->process)
			return &a->rests[i];
	return NULL;
}

struct leak_held leak_left_at_end(const struct leak_answer *a, const struct leak_site *s)
{
	const struct leak_rest *rest = leak_rest_of(a, s);
	struct leak_held held = {0};

	for (size_t i = 0; rest && i < rest->n; i++) {
		const struct leak_left *left = &rest->list[i];

		if (left->carved || (left->site != s && left->site->parent != s))
			continue;
		held.blocks += left->blocks;
		held.bytes += left->bytes;
	}
	return held;
}

void leaks_judge(struct leaks *l, struct leak_answer *out)
{
	size_t n = l->base.blocks->nprocesses;

	*out = (struct leak_answer){0};
	judge_sites(l, out);
	out->rests = xcalloc(n + 1, sizeof(*out->rests));
	for (size_t i = 0; i < n; i++) {
		struct block_process *p = l->base.blocks->processes[i];

		out->judged |= p->step_ended >= LEAKS_MIN_STEPS;
		if (p->npools)
			count_rest(l, p, &out->rests[out->nrests++]);
	}
	SORT(out->rests, out->nrests, larger_rest_first);
	growth_judge(l, out);
}

void leak_answer_release(struct leak_answer *a)
{
	for (size_t i = 0; i < a->nrests; i++)
		free(a->rests[i].list);
	free(a->rests);
	free(a->findings);
	free(a->places);
	free(a->grouped);
	free(a->blocks);
	free(a->others);
	free(a->growths);
	*a = (struct leak_answer){0};
}
