/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The leaks for people: an answer, the lines that scripts look for, the places and what is left. */
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/text/plain_words.h"
#include "memory/analysis/common/memory_words.h"
#include "memory/analysis/common/report.h"
#include "memory/analysis/leaks/leaks_impl.h"
#include "wire/record.h"

#define MAX_SAID 3 /* places in the first paragraph */
#define MAX_LINES 100 /* of single blocks, for each device */
#define MIB 1048576.0

struct view {
	struct page page;
	const struct leaks *l;
	const struct leak_answer *a;
};

static void add_device(struct buf *out, const struct leak_site *s)
{
	if (s->pinned && s->pool->device->device == DEV_HOST)
		buf_add_str(out, "pinned ");
	words_device(out, s->pool->device->device, false);
}

/* What stands for the place of blocks without a call stack; block_bytes 0: their sizes differ. */
static void add_size(struct buf *out, const struct leak_site *s, uint64_t block_bytes)
{
	if (s->before) {
		buf_add_str(out, "allocated before recording began");
		return;
	}
	buf_add_str(out, block_bytes ? "blocks of " : "blocks of up to ");
	words_bytes(out, block_bytes ? block_bytes : s->size);
	buf_add_str(out, " without a call stack");
}

/* --- the answer --- */

static void say_leak(const struct view *g, const struct leak_place *place, struct buf *out)
{
	buf_addf(out, "Process %u loses ", place->site->pool->process->pid);
	if (place->steps == place->span) {
		if (!place->block_bytes)
			buf_add_str(out, "about ");
		words_bytes(out, place->bytes_per_step);
		buf_add_str(out, " of ");
		add_device(out, place->site);
		buf_add_str(out, " in every step: ");
	} else {
		words_bytes(out, place->bytes_per_step);
		buf_add_str(out, " of ");
		add_device(out, place->site);
		buf_add_str(out, " per step on average (in ");
		words_count(out, place->steps);
		buf_add_str(out, " of ");
		words_of(out, place->span, "step");
		buf_add_str(out, "): ");
	}
	if (!stacks_where(blocks_stacks(g->l->blocks), place->site->stack, out))
		add_size(out, place->site, place->block_bytes);
	buf_add_str(out, ", ");
	words_of(out, place->blocks, "block");
	buf_add_str(out, " (");
	words_bytes(out, place->bytes);
	buf_addf(out, ") since step %u.", place->first_step);
}

static void say_leaks(const struct view *g, struct buf *out)
{
	uint64_t rest = 0;

	for (size_t i = 0; i < g->a->growing; i++) {
		if (i >= MAX_SAID) {
			rest += g->a->places[i].bytes;
			continue;
		}
		if (i)
			buf_add_char(out, ' ');
		say_leak(g, &g->a->places[i], out);
	}
	if (g->a->growing <= MAX_SAID)
		return;
	buf_add_char(out, ' ');
	words_of(out, g->a->growing - MAX_SAID, "more place");
	buf_addf(out, " %s memory, too (", g->a->growing - MAX_SAID == 1 ? "loses" : "lose");
	words_bytes(out, rest);
	buf_add_str(out, " so far).");
}

/* How many processes had steps, and how many the least and the most. */
struct steps {
	size_t processes, without;
	uint32_t pid, least, most;
};

static struct steps count_steps(const struct view *g)
{
	struct steps s = {.least = UINT32_MAX};

	for (size_t i = 0; i < g->a->nrests; i++) {
		const struct block_process *p = g->a->rests[i].process;
		const struct leak_process *own = p->own;

		if (!own || !own->ends) {
			s.without += g->a->rests[i].blocks != 0;
			continue;
		}
		s.processes++;
		s.pid = p->pid;
		if (own->ends < s.least)
			s.least = own->ends;
		if (own->ends > s.most)
			s.most = own->ends;
	}
	return s;
}

static void say_no_steps(const struct view *g, struct buf *out)
{
	uint64_t blocks = 0, bytes = 0;

	for (size_t i = 0; i < g->a->nrests; i++) {
		blocks += g->a->rests[i].blocks;
		bytes += g->a->rests[i].bytes;
	}
	if (!g->a->nrests) {
		buf_add_str(out, "There is nothing to look at: no allocation was recorded.");
		return;
	}
	buf_add_str(out, "No step ended in this recording, so growth cannot be told from memory "
			 "that is kept on purpose. Mark the steps of the job: " WORDS_MARK_STEPS);
	if (!g->l->dumped)
		return;
	if (!blocks) {
		buf_add_str(out, " Everything that was allocated was freed again.");
		return;
	}
	buf_add_char(out, ' ');
	words_held(out, bytes, blocks);
	buf_addf(out, " %s left at the end.", words_was(blocks));
}

static void say_clean(const struct view *g, struct buf *out)
{
	struct steps s = count_steps(g);

	if (!s.processes) {
		say_no_steps(g, out);
		return;
	}
	if (s.most < 3) {
		buf_addf(out,
			 "No leaks are seen, but only %u step%s ended: the first is the warm-up, "
			 "and "
			 "growth shows from the third on.",
			 s.most, s.most == 1 ? "" : "s");
		return;
	}
	buf_add_str(out, "No leaks: ");
	if (s.processes == 1)
		buf_addf(out, "process %u", s.pid);
	else
		buf_addf(out, "%zu processes", s.processes);
	buf_add_str(out, " ended ");
	if (s.least != s.most) {
		words_count(out, s.least);
		buf_add_str(out, " to ");
	}
	words_of(out, s.most, "step");
	buf_add_str(out, ", and no place kept more memory from step to step.");
}

static void print_answer(const struct view *g)
{
	struct buf t = {0};

	if (g->a->growing)
		say_leaks(g, &t);
	else
		say_clean(g, &t);
	if (g->a->ignored) {
		buf_add_char(&t, ' ');
		words_of(&t, g->a->ignored, "place");
		buf_addf(&t, " that lose%s less than the limit %s left out.",
			 g->a->ignored == 1 ? "s" : "", g->a->ignored == 1 ? "is" : "are");
	}
	page_paragraph(&g->page, 0, &t);
}

/* --- the lines of each block --- */

static int by_device(const void *pa, const void *pb)
{
	const struct block *a = *(const struct block *const *)pa;
	const struct block *b = *(const struct block *const *)pb;
	const struct block_device *x = a->pool->device, *y = b->pool->device;

	if (x->process->pid != y->process->pid)
		return x->process->pid > y->process->pid ? 1 : -1;
	if (x->device != y->device)
		return x->device > y->device ? 1 : -1;
	if (x != y) /* a process id that was used again */
		return x->process->first_ns > y->process->first_ns ? 1 : -1;
	if (a->step != b->step)
		return a->step > b->step ? 1 : -1;
	return (a->seq > b->seq) - (a->seq < b->seq);
}

static void print_device(const struct view *g, const struct block **list, size_t n)
{
	uint64_t bytes = 0;
	char device[16];

	buf_addf(g->page.out, "\n====== ERROR: Detected memory leaks on device %s ======\n",
		 blocks_device_name(list[0]->pool->device->device, device));
	for (size_t i = 0; i < n; i++) {
		const struct block *b = list[i];

		bytes += b->bytes;
		if (i >= MAX_LINES)
			continue;
		buf_addf(g->page.out,
			 "Direct %s leak of %f Mb(s) at 0x%llx in kernel_%llu at step %u.\n",
			 blocks_pool_name(b->pool->type), (double)b->bytes / MIB,
			 (unsigned long long)b->ptr, (unsigned long long)b->kernels, b->step);
	}
	if (n > MAX_LINES)
		buf_addf(g->page.out, "... and %zu more.\n", n - MAX_LINES);
	buf_addf(g->page.out, "====== SUMMARY: %g Mb(s) leaked in %zu allocation(s) ======\n",
		 (double)bytes / MIB, n);
}

static void print_blocks(const struct view *g)
{
	const struct block **list = NULL;
	size_t n = 0, cap = 0, end;

	for (size_t i = 0; i < g->a->growing; i++)
		for (uint64_t k = 0; k < g->a->places[i].blocks; k++) {
			list = xgrow(list, &cap, n + 1, sizeof(*list));
			list[n++] = g->a->places[i].list[k];
		}
	if (n)
		qsort(list, n, sizeof(*list), by_device);
	for (size_t i = 0; i < n; i = end) {
		const struct block_device *d = list[i]->pool->device;

		for (end = i + 1; end < n && list[end]->pool->device == d; end++)
			;
		print_device(g, &list[i], end - i);
	}
	free(list);
}

/* --- places --- */

static void print_frames(const struct view *g, const struct leak_site *s, uint64_t block_bytes)
{
	struct stack stack = stacks_get(blocks_stacks(g->l->blocks), s->stack);

	page_stack(&g->page, 6, stack);
	if (!stack.py && !stack.c) {
		page_ink(&g->page, INK_DIM);
		buf_add_str(g->page.out, "      ");
		add_size(g->page.out, s, block_bytes);
		page_ink(&g->page, INK_PLAIN);
		buf_add_char(g->page.out, '\n');
	}
}

static void print_site(const struct view *g, const struct leak_site *s)
{
	char device[16];

	buf_addf(g->page.out, "  Process %u, device %s, %s%s: ", s->pool->process->pid,
		 blocks_device_name(s->pool->device->device, device), words_pool(s->pool->type),
		 s->pinned ? " (pinned)" : "");
}

static void add_steps(struct buf *out, const struct leak_place *place)
{
	if (place->first_step == place->last_step)
		buf_addf(out, "step %u", place->first_step);
	else
		buf_addf(out, "steps %u to %u", place->first_step, place->last_step);
}

static void print_growing(const struct view *g)
{
	size_t n = g->a->growing;

	if (!n || !g->page.style->top)
		return;
	page_title(&g->page, "Places that lose memory");
	for (size_t i = 0; i < n && i < g->page.style->top; i++) {
		const struct leak_place *place = &g->a->places[i];

		print_site(g, place->site);
		page_ink(&g->page, INK_BAD);
		words_held(g->page.out, place->bytes, place->blocks);
		page_ink(&g->page, INK_PLAIN);
		buf_add_str(g->page.out, ", ");
		words_bytes(g->page.out, place->bytes_per_step);
		buf_add_str(g->page.out, " per step, ");
		add_steps(g->page.out, place);
		buf_add_char(g->page.out, '\n');
		print_frames(g, place->site, place->block_bytes);
	}
	if (n > g->page.style->top)
		page_more(&g->page, 2, n - g->page.style->top, "place");
}

static void print_kept(const struct view *g, const struct leak_place *place)
{
	const struct leak_process *p = place->site->pool->process->own;

	print_site(g, place->site);
	words_held(g->page.out, place->bytes, place->blocks);
	buf_add_str(g->page.out, ", allocated in ");
	add_steps(g->page.out, place);
	if (place->kind == LEAK_ONCE) {
		buf_add_str(g->page.out, ", alive for ");
		words_of(g->page.out, p->last_step - place->last_step, "step");
		buf_add_str(g->page.out, " since: a one-time cache, or a one-time leak");
	} else if (place->kind == LEAK_STOPPED) {
		buf_add_str(g->page.out, ", and no more since: a cache that has filled up");
	} else {
		buf_add_str(g->page.out, ": a rolling buffer, its blocks are freed after up to ");
		words_of(g->page.out, place->site->life_at_end, "step");
	}
	buf_add_char(g->page.out, '\n');
	print_frames(g, place->site, place->block_bytes);
}

static void print_not_growing(const struct view *g)
{
	uint64_t pool_blocks = 0, pool_bytes = 0;
	size_t n = 0;

	for (size_t i = 0; i < g->a->nplaces; i++) {
		const struct leak_place *place = &g->a->places[i];

		if (place->kind == LEAK_GROWTH)
			continue;
		if (place->kind == LEAK_OF_POOL) {
			pool_blocks += place->blocks;
			pool_bytes += place->bytes;
			continue;
		}
		if (!n++ && g->page.style->top)
			page_title(&g->page, "Kept, but not growing");
		if (n <= g->page.style->top)
			print_kept(g, place);
	}
	if (n > g->page.style->top && g->page.style->top)
		page_more(&g->page, 2, n - g->page.style->top, "place");
	if (!pool_blocks)
		return;
	buf_add_str(g->page.out, "\nThe pools took ");
	words_held(g->page.out, pool_bytes, pool_blocks);
	buf_add_str(g->page.out,
		    " from the driver after the first step. That is held by the pool, and "
		    "judged by its blocks.\n");
}

/* --- what was left at the end --- */

/* Equal for places that read the same. */
static uint64_t looks_of(const struct view *g, const struct leak_site *s)
{
	uint64_t h = page_stack_hash(stacks_get(blocks_stacks(g->l->blocks), s->stack));

	if (!s->stack && !s->before)
		h += s->size * 2 + s->is_parent + 1;
	return (h ^ (uint64_t)s->pool->number << 1 ^ s->pinned) * 0x9e3779b97f4a7c15u;
}

static int more_first(const void *pa, const void *pb)
{
	const struct leak_left *a = pa, *b = pb;

	if (a->bytes != b->bytes)
		return a->bytes > b->bytes ? -1 : 1;
	return (a->site->number > b->site->number) - (a->site->number < b->site->number);
}

/* What is to be listed, the largest first; call stacks that differ further out are one. */
static struct leak_left *list_left(const struct view *g, const struct leak_rest *rest, bool driver,
				   size_t *out_n)
{
	struct leak_left *list = xcalloc(rest->n + 1, sizeof(*list));
	struct hmap seen = {0};
	size_t n = 0;

	for (size_t i = 0; i < rest->n; i++) {
		const struct leak_left *left = &rest->list[i];

		if (left->carved || (driver && !blocks_is_device(left->site->pool->type)))
			continue;
		uint64_t looks = looks_of(g, left->site), at = hmap_get(&seen, looks);
		if (at == HMAP_NONE) {
			hmap_put(&seen, looks, n);
			list[n++] = *left;
		} else {
			list[at].blocks += left->blocks;
			list[at].bytes += left->bytes;
		}
	}
	qsort(list, n, sizeof(*list), more_first);
	hmap_release(&seen);
	*out_n = n;
	return list;
}

static void print_left_of(const struct view *g, const struct leak_rest *rest, bool driver)
{
	size_t n;
	struct leak_left *list = list_left(g, rest, driver, &n);

	for (size_t i = 0; i < n && i < g->page.style->top; i++) {
		const struct leak_left *left = &list[i];

		print_site(g, left->site);
		words_held(g->page.out, left->bytes, left->blocks);
		buf_add_char(g->page.out, '\n');
		print_frames(g, left->site, left->site->is_parent ? 0 : left->site->size);
	}
	free(list);
	if (n > g->page.style->top && g->page.style->top) {
		buf_addf(g->page.out, "  Process %u: and ", rest->process->pid);
		words_of(g->page.out, n - g->page.style->top, "more place");
		buf_add_char(g->page.out, '\n');
	}
}

static bool has_steps(const struct leak_rest *rest)
{
	const struct leak_process *own = rest->process->own;

	return own && own->ends;
}

/* Without steps there is nothing better to say than what was left. */
static void print_without_steps(const struct view *g)
{
	bool none = !count_steps(g).processes;
	size_t n = 0;

	if (!g->l->dumped) /* who did not ask for allocations is not told what is left of them */
		return;
	for (size_t i = 0; i < g->a->nrests; i++) {
		const struct leak_rest *rest = &g->a->rests[i];

		if (has_steps(rest) || !rest->blocks || n++ >= g->page.style->top)
			continue;
		if (n == 1)
			page_title(&g->page, none ? "Left at the end"
						  : "Left at the end by processes without steps");
		if (none) {
			print_left_of(g, rest, false);
			continue;
		}
		buf_addf(g->page.out, "  Process %u: ", rest->process->pid);
		words_held(g->page.out, rest->bytes, rest->blocks);
		buf_add_char(g->page.out, '\n');
	}
	if (n > g->page.style->top && g->page.style->top)
		buf_addf(g->page.out, "  and %zu more processes\n", n - g->page.style->top);
}

static void add_driver_left(struct buf *out, const struct leak_rest *rest)
{
	buf_addf(out, "Process %u ", rest->process->pid);
	buf_add_str(out, rest->running ? "still holds " : "kept ");
	if (rest->driver_blocks)
		words_held(out, rest->driver_bytes, rest->driver_blocks);
	if (rest->driver_blocks && rest->carved_blocks)
		buf_add_str(out, ", and ");
	if (rest->carved_blocks) {
		words_held(out, rest->carved_bytes, rest->carved_blocks);
		buf_add_str(out, " that pools have cut their blocks from");
	}
}

static void print_driver_left(const struct view *g)
{
	bool any = false;

	if (!g->l->dumped && !g->page.style->console)
		return;
	for (size_t i = 0; i < g->a->nrests; i++) {
		const struct leak_rest *rest = &g->a->rests[i];

		if (!rest->driver_blocks && (g->page.style->console || !rest->carved_blocks))
			continue;
		if (!any)
			page_title(&g->page, rest->running
						     ? "Not given back to the driver so far:"
						     : "Not given back to the driver at exit:");
		any = true;
		buf_add_str(g->page.out, "  ");
		add_driver_left(g->page.out, rest);
		buf_add_str(g->page.out, ".\n");
		if (has_steps(rest) || g->page.style->console) /* else they are in the list above */
			print_left_of(g, rest, true);
	}
}

static void print_hint(const struct view *g)
{
	bool any = false, python = false;

	for (size_t i = 0; i < g->a->growing; i++) {
		const struct leak_site *s = g->a->places[i].site;

		any |= !s->stack;
		python |= !s->stack && words_is_python(s->pool->process->command);
	}
	if (any)
		buf_addf(g->page.out,
			 "\nRecord with --call-stack=%s to see where blocks without a call stack "
			 "come from.\n",
			 python ? "python" : "c");
}

void leaks_text(struct analysis *a, const struct analysis_style *style, struct buf *out)
{
	struct leak_answer answer;
	struct view g = {page_begin(style, out), (struct leaks *)a, &answer};

	leaks_judge((struct leaks *)a, &answer);
	if (!style->console || answer.growing || answer.judged) {
		print_answer(&g);
		print_blocks(&g);
		print_growing(&g);
		print_hint(&g);
	}
	if (!style->console) {
		print_not_growing(&g);
		print_without_steps(&g);
	}
	print_driver_left(&g);
	leak_answer_release(&answer);
}

bool leaks_kept_after_end(struct analysis *a)
{
	struct leak_answer answer;
	bool kept = false;

	leaks_judge((struct leaks *)a, &answer);
	for (size_t i = 0; i < answer.nrests; i++)
		kept |= answer.rests[i].driver_blocks && !answer.rests[i].running &&
			answer.rests[i].process->finalized;
	leak_answer_release(&answer);
	return kept;
}
