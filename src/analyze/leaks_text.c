/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The leaks for people: an answer, the lines that scripts look for, the places and what is left. */
#include <stdio.h>
#include <stdlib.h>

#include "analyze/frames.h"
#include "analyze/leaks_impl.h"
#include "analyze/summary_words.h"
#include "base/args.h"
#include "base/mem.h"
#include "wire/record.h"

#define WIDTH 96
#define MAX_SAID 3 /* places in the first paragraph */
#define MAX_LINES 100 /* of single blocks, for each device */
#define MAX_FRAMES 5
#define MIB 1048576.0

struct page {
	const struct leaks *l;
	const struct leak_answer *a;
	const struct analysis_style *style;
	struct buf *out;
	size_t start; /* what was in it before */
};

static void ink(const struct page *g, const char *code)
{
	if (g->style->colour)
		buf_addf(g->out, "\033[%sm", code);
}

static void heading(const struct page *g, const char *text)
{
	if (g->out->len > g->start)
		buf_add_char(g->out, '\n');
	ink(g, "1");
	buf_add_str(g->out, text);
	ink(g, "0");
	buf_add_char(g->out, '\n');
}

static void paragraph(const struct page *g, struct buf *text)
{
	args_wrap(g->out, buf_str(text), 0, 0, WIDTH);
	buf_release(text);
}

static void add_blocks(struct buf *out, uint64_t blocks, uint64_t bytes)
{
	words_bytes(out, bytes);
	buf_add_str(out, " in ");
	words_of(out, blocks, "block");
}

static void add_device(struct buf *out, const struct leak_site *s)
{
	if (s->pool->device->device == DEV_HOST)
		buf_add_str(out, s->pinned ? "pinned host memory" : "host memory");
	else if (s->pool->device->device == DEV_NONE)
		buf_add_str(out, "an unknown device");
	else
		buf_addf(out, "device %u", s->pool->device->device);
}

/* What stands for the place of blocks without a call stack; block_bytes 0: their sizes differ. */
static void add_size(struct buf *out, const struct leak_site *s, uint64_t block_bytes)
{
	buf_add_str(out, block_bytes ? "blocks of " : "blocks of up to ");
	words_bytes(out, block_bytes ? block_bytes : s->size);
	buf_add_str(out, " without a call stack");
}

/* --- the answer --- */

static void say_leak(const struct page *g, const struct leak_place *place, struct buf *out)
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

static void say_leaks(const struct page *g, struct buf *out)
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

static struct steps count_steps(const struct page *g)
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

static void say_no_steps(const struct page *g, struct buf *out)
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
	buf_add_str(out,
		    "No step ended in this recording, so growth cannot be told from memory "
		    "that is kept on purpose. Mark the steps of the job with mstx ranges named "
		    "\"step start\", with sonde_step() or with msmemscope.step().");
	if (!blocks) {
		buf_add_str(out, " Everything that was allocated was freed again.");
		return;
	}
	buf_add_char(out, ' ');
	add_blocks(out, blocks, bytes);
	buf_addf(out, " %s left at the end.", blocks == 1 ? "was" : "were");
}

static void say_clean(const struct page *g, struct buf *out)
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

static void print_answer(const struct page *g)
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
	paragraph(g, &t);
}

/* --- the lines of each block --- */

struct lost {
	const struct leak_place *place;
	const struct block *block;
};

static int by_device(const void *pa, const void *pb)
{
	const struct lost *a = pa, *b = pb;
	const struct block_device *x = a->block->pool->device, *y = b->block->pool->device;

	if (x->process->pid != y->process->pid)
		return x->process->pid > y->process->pid ? 1 : -1;
	if (x->device != y->device)
		return x->device > y->device ? 1 : -1;
	if (x != y) /* a process id that was used again */
		return x->process->first_ns > y->process->first_ns ? 1 : -1;
	if (a->block->step != b->block->step)
		return a->block->step > b->block->step ? 1 : -1;
	return (a->block->seq > b->block->seq) - (a->block->seq < b->block->seq);
}

static void print_device(const struct page *g, const struct lost *list, size_t n)
{
	uint64_t bytes = 0;
	char device[16];

	buf_addf(g->out, "\n====== ERROR: Detected memory leaks on device %s ======\n",
		 blocks_device_name(list[0].block->pool->device->device, device));
	for (size_t i = 0; i < n; i++) {
		const struct block *b = list[i].block;

		bytes += b->bytes;
		if (i >= MAX_LINES)
			continue;
		buf_addf(g->out,
			 "Direct %s leak of %f Mb(s) at 0x%llx in kernel_%llu at step %u.\n",
			 blocks_pool_name(b->pool->type), (double)b->bytes / MIB,
			 (unsigned long long)b->ptr, (unsigned long long)b->kernels, b->step);
	}
	if (n > MAX_LINES)
		buf_addf(g->out, "... and %zu more.\n", n - MAX_LINES);
	buf_addf(g->out, "====== SUMMARY: %g Mb(s) leaked in %zu allocation(s) ======\n",
		 (double)bytes / MIB, n);
}

static void print_blocks(const struct page *g)
{
	struct lost *list = NULL;
	size_t n = 0, cap = 0, end;

	for (size_t i = 0; i < g->a->growing; i++)
		for (uint64_t k = 0; k < g->a->places[i].blocks; k++) {
			list = xgrow(list, &cap, n + 1, sizeof(*list));
			list[n++] = (struct lost){&g->a->places[i], g->a->places[i].list[k]};
		}
	if (n)
		qsort(list, n, sizeof(*list), by_device);
	for (size_t i = 0; i < n; i = end) {
		const struct block_device *d = list[i].block->pool->device;

		for (end = i + 1; end < n && list[end].block->pool->device == d; end++)
			;
		print_device(g, &list[i], end - i);
	}
	free(list);
}

/* --- places --- */

static void print_frames_of(const struct page *g, const char *text, bool python)
{
	struct frame_line lines[MAX_FRAMES];
	size_t n = frames_pick(text, python, lines, MAX_FRAMES);

	for (size_t i = 0; i < n; i++) {
		buf_add_str(g->out, "      ");
		frame_describe(&lines[i], python, g->out);
		buf_add_char(g->out, '\n');
	}
}

static void print_frames(const struct page *g, const struct leak_site *s, uint64_t block_bytes)
{
	struct stack stack = stacks_get(blocks_stacks(g->l->blocks), s->stack);

	ink(g, "2");
	if (stack.py)
		print_frames_of(g, stack.py, true);
	if (stack.c)
		print_frames_of(g, stack.c, false);
	if (!stack.py && !stack.c) {
		buf_add_str(g->out, "      ");
		add_size(g->out, s, block_bytes);
		buf_add_char(g->out, '\n');
	}
	ink(g, "0");
}

static void print_site(const struct page *g, const struct leak_site *s)
{
	char device[16];

	buf_addf(g->out, "  Process %u, device %s, %s%s: ", s->pool->process->pid,
		 blocks_device_name(s->pool->device->device, device),
		 row_type_text(s->pool->type, ROW_SEED), s->pinned ? " (pinned)" : "");
}

static void add_steps(struct buf *out, const struct leak_place *place)
{
	if (place->first_step == place->last_step)
		buf_addf(out, "step %u", place->first_step);
	else
		buf_addf(out, "steps %u to %u", place->first_step, place->last_step);
}

static void print_growing(const struct page *g)
{
	size_t n = g->a->growing;

	if (!n || !g->style->top)
		return;
	heading(g, "Places that lose memory");
	for (size_t i = 0; i < n && i < g->style->top; i++) {
		const struct leak_place *place = &g->a->places[i];

		print_site(g, place->site);
		ink(g, "31");
		add_blocks(g->out, place->blocks, place->bytes);
		ink(g, "0");
		buf_add_str(g->out, ", ");
		words_bytes(g->out, place->bytes_per_step);
		buf_add_str(g->out, " per step, ");
		add_steps(g->out, place);
		buf_add_char(g->out, '\n');
		print_frames(g, place->site, place->block_bytes);
	}
	if (n > g->style->top) {
		buf_add_str(g->out, "  and ");
		words_of(g->out, n - g->style->top, "more place");
		buf_add_char(g->out, '\n');
	}
}

static void print_kept(const struct page *g, const struct leak_place *place)
{
	const struct leak_process *p = place->site->pool->process->own;

	print_site(g, place->site);
	add_blocks(g->out, place->blocks, place->bytes);
	buf_add_str(g->out, ", allocated in ");
	add_steps(g->out, place);
	if (place->kind == LEAK_ONCE) {
		buf_add_str(g->out, ", alive for ");
		words_of(g->out, p->last_step - place->last_step, "step");
		buf_add_str(g->out, " since: a one-time cache, or a one-time leak");
	} else if (place->kind == LEAK_STOPPED) {
		buf_add_str(g->out, ", and no more since: a cache that has filled up");
	} else {
		buf_add_str(g->out, ": a rolling buffer, its blocks are freed after up to ");
		words_of(g->out, place->site->life_at_end, "step");
	}
	buf_add_char(g->out, '\n');
	print_frames(g, place->site, place->block_bytes);
}

static void print_not_growing(const struct page *g)
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
		if (!n++ && g->style->top)
			heading(g, "Kept, but not growing");
		if (n <= g->style->top)
			print_kept(g, place);
	}
	if (n > g->style->top && g->style->top) {
		buf_add_str(g->out, "  and ");
		words_of(g->out, n - g->style->top, "more place");
		buf_add_char(g->out, '\n');
	}
	if (!pool_blocks)
		return;
	buf_add_str(g->out, "\nThe pools took ");
	add_blocks(g->out, pool_blocks, pool_bytes);
	buf_add_str(g->out, " from the driver after the first step. That is held by the pool, and "
			    "judged by its blocks.\n");
}

/* --- what was left at the end --- */

static void print_left_of(const struct page *g, const struct leak_rest *rest, bool driver)
{
	size_t n = 0;

	for (size_t i = 0; i < rest->n; i++) {
		const struct leak_left *left = &rest->list[i];

		if (left->carved || (driver && left->site->pool->type != TYPE_HAL) ||
		    n++ >= g->style->top)
			continue;
		print_site(g, left->site);
		add_blocks(g->out, left->blocks, left->bytes);
		buf_add_char(g->out, '\n');
		print_frames(g, left->site, left->site->is_parent ? 0 : left->site->size);
	}
	if (n > g->style->top && g->style->top) {
		buf_addf(g->out, "  Process %u: and ", rest->process->pid);
		words_of(g->out, n - g->style->top, "more place");
		buf_add_char(g->out, '\n');
	}
}

static bool has_steps(const struct leak_rest *rest)
{
	const struct leak_process *own = rest->process->own;

	return own && own->ends;
}

/* Without steps there is nothing better to say than what was left. */
static void print_without_steps(const struct page *g)
{
	bool none = !count_steps(g).processes;
	size_t n = 0;

	for (size_t i = 0; i < g->a->nrests; i++) {
		const struct leak_rest *rest = &g->a->rests[i];

		if (has_steps(rest) || !rest->blocks || n++ >= g->style->top)
			continue;
		if (n == 1)
			heading(g, none ? "Left at the end"
					: "Left at the end by processes without steps");
		if (none) {
			print_left_of(g, rest, false);
			continue;
		}
		buf_addf(g->out, "  Process %u: ", rest->process->pid);
		add_blocks(g->out, rest->blocks, rest->bytes);
		buf_add_char(g->out, '\n');
	}
	if (n > g->style->top && g->style->top)
		buf_addf(g->out, "  and %zu more processes\n", n - g->style->top);
}

static void add_driver_left(struct buf *out, const struct leak_rest *rest)
{
	buf_addf(out, "Process %u ", rest->process->pid);
	buf_add_str(out, rest->running ? "still holds " : "kept ");
	if (rest->driver_blocks)
		add_blocks(out, rest->driver_blocks, rest->driver_bytes);
	if (rest->driver_blocks && rest->carved_blocks)
		buf_add_str(out, ", and ");
	if (rest->carved_blocks) {
		add_blocks(out, rest->carved_blocks, rest->carved_bytes);
		buf_add_str(out, " that pools have cut their blocks from");
	}
}

static void print_driver_left(const struct page *g)
{
	bool any = false;

	for (size_t i = 0; i < g->a->nrests; i++) {
		const struct leak_rest *rest = &g->a->rests[i];

		if (!rest->driver_blocks && (g->style->console || !rest->carved_blocks))
			continue;
		if (!any)
			heading(g, rest->running ? "Not given back to the driver so far:"
						 : "Not given back to the driver at exit:");
		any = true;
		buf_add_str(g->out, "  ");
		add_driver_left(g->out, rest);
		buf_add_str(g->out, ".\n");
		if (has_steps(rest) || g->style->console) /* else they are in the list above */
			print_left_of(g, rest, true);
	}
}

static void print_hint(const struct page *g)
{
	bool any = false;

	for (size_t i = 0; i < g->a->growing; i++)
		any |= !g->a->places[i].site->stack;
	if (any)
		buf_add_str(g->out, "\nRecord with --call-stack=c,python to see where blocks "
				    "without a call stack come from.\n");
}

void leaks_text(struct analysis *a, const struct analysis_style *style, struct buf *out)
{
	struct leak_answer answer;
	struct page g = {.l = (struct leaks *)a,
			 .a = &answer,
			 .style = style,
			 .out = out,
			 .start = out->len};

	leaks_judge((struct leaks *)a, &answer);
	if (!style->console || answer.growing) {
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
