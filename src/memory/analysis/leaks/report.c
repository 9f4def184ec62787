/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The leaks as text: an answer, the lines that scripts look for, the call sites and what is left. */
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "memory/analysis/common/block_steps.h"
#include "memory/analysis/common/report.h"
#include "memory/analysis/leaks/leaks_impl.h"
#include "memory/analysis/processes/processes.h"
#include "memory/analysis/processes/programs.h"
#include "wire/record.h"

#define MAX_SAID 3 /* call sites in the first paragraph */

struct view {
	struct report report;
	const struct leaks *l;
	const struct leak_answer *a;
};

/* What stands for the call site of blocks without a call stack; block_bytes 0: sizes differ. */
static void say_size(struct buf *out, const struct leak_site *s, uint64_t block_bytes)
{
	if (s->before)
		say(out, "allocated before recording began");
	else
		words_blocks_of(out, s->mapping, block_bytes, s->size);
}

/* --- the answer --- */

static void say_module(const struct view *g, const struct leak_finding *f, struct buf *out)
{
	char *module = leak_module(g->l, f);

	if (module)
		say(out, ", module {}", PRINTABLE(module));
	free(module);
}

static void say_leak(const struct view *g, const struct leak_finding *f, struct buf *out)
{
	const struct leak_site *s = f->site;
	bool every = f->steps == f->span_steps;

	say(out, "Process {} loses {}{} of ", NUMBER(s->pool->process->pid),
	    TEXT(every && !f->block_bytes ? "about " : ""), BYTES(f->bytes_per_step));
	if (s->pinned && s->pool->device->device == DEV_HOST)
		say(out, "pinned ");
	words_device(out, s->pool->device->device, false);
	if (every)
		say(out, " in every step: ");
	else
		say(out, " per step on average (in {} of {}): ", COUNT(f->steps),
		    COUNT_OF(f->span_steps, "step"));
	if (!stacks_where(leaks_stacks(g->l), s->stack, out))
		say_size(out, s, f->block_bytes);
	say_module(g, f, out);
	say(out, ", {} ({}) since step {}.", COUNT_OF(f->blocks, "block"), BYTES(f->bytes),
	    NUMBER(f->first_step));
}

static void say_leaks(const struct view *g, struct buf *out)
{
	size_t more = g->a->growing > MAX_SAID ? g->a->growing - MAX_SAID : 0;
	uint64_t rest = 0;

	for (size_t i = 0; i < g->a->growing; i++) {
		if (i >= MAX_SAID) {
			rest += g->a->findings[i].bytes;
			continue;
		}
		say(out, i ? " " : "");
		say_leak(g, &g->a->findings[i], out);
	}
	if (more)
		say(out, " {} {} memory, too ({} so far).", COUNT_OF(more, "more place"),
		    TEXT(more == 1 ? "loses" : "lose"), BYTES(rest));
}

/* How many processes had steps, and how many the least and the most. */
struct steps {
	size_t processes;
	uint32_t pid, least, most;
};

static struct steps count_steps(const struct view *g)
{
	struct steps s = {.least = UINT32_MAX};

	for (size_t i = 0; i < g->a->nrests; i++) {
		const struct block_process *p = g->a->rests[i].process;
		const struct leak_process *own = p->own;

		if (!leak_has_steps(&g->a->rests[i]))
			continue;
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
		say(out, "There is nothing to look at: no allocation was recorded.");
		return;
	}
	if (g->a->ngrowths) {
		say(out, "No steps are known.");
		growth_say(g->l, g->a, GROWTH_ALONE, out);
	} else {
		say(out, "No step ended in this recording, so growth cannot be distinguished from "
			 "memory that is kept on purpose.");
	}
	say(out, " Mark the steps of the job: " WORDS_MARK_STEPS);
	if (g->l->dumped && blocks)
		say(out, " {} {} left at the end.", HELD(bytes, blocks), TEXT(words_was(blocks)));
	else if (g->l->dumped)
		say(out, " Everything that was allocated was freed again.");
}

/* Of a Python process whose host memory was recorded, but not its objects. */
static bool has_unseen_objects(const struct view *g)
{
	const struct blocks *b = g->l->base.blocks;

	for (size_t i = 0; i < b->nprocesses; i++) {
		const struct block_process *p = b->processes[i];
		bool host = false, objects = false;

		for (size_t k = 0; k < p->npools; k++) {
			host |= p->pools[k]->type == TYPE_HOST;
			objects |= p->pools[k]->type == TYPE_PYTHON;
		}
		if (host && !objects && words_is_python(p->command))
			return true;
	}
	return false;
}

/* Where much was not seen, "no leaks" would be about the rest alone. */
static bool say_uncovered(const struct view *g, struct buf *out)
{
	const struct processes *ps = g->l->base.processes;

	if (!ps || processes_coverage(ps) != COVERAGE_PARTIAL)
		return false;
	for (size_t i = 0; i < ps->n; i++) {
		const struct process_facts *p = &ps->list[i];
		uint64_t grew = process_uncovered_growth(p);

		if (!process_is_sampled(p) || (process_is_covered(p) && !grew))
			continue;
		say(out,
		    "No place that was recorded kept more memory from step to step, but {} of ",
		    BYTES(p->highest.not_covered));
		processes_say(ps, p->pid, out);
		say(out, " are not covered");
		if (grew)
			say(out, " and grew by {} since the first step: it may leak", BYTES(grew));
		say(out, ".");
		return true;
	}
	return false;
}

static void say_processes(const struct view *g, const struct steps *s, struct buf *out)
{
	if (s->processes == 1)
		processes_say(g->l->base.processes, s->pid, out);
	else
		say(out, "{} processes", NUMBER(s->processes));
}

/* "above the limit", where places that lose less are left out. */
static void say_limit(const struct view *g, struct buf *out)
{
	if (!g->a->ignored)
		return;
	if (g->l->min_bytes == UINT64_MAX)
		say(out, " above the limit of {} per step", BYTES(LEAKS_HOST_MIN_BYTES_PER_STEP));
	else
		say(out, " above the limit of {}", BYTES(g->l->min_bytes));
}

static void say_no_leaks(const struct view *g, const struct steps *s, struct buf *out)
{
	bool grows = g->a->ngrowths;

	say(out, "No leaks");
	say_limit(g, out);
	say(out, grows ? " in the steps of " : ": ");
	say_processes(g, s, out);
	say(out, grows ? " (" : " ended ");
	if (s->least != s->most)
		say(out, "{} to ", COUNT(s->least));
	say(out, "{}", COUNT_OF(s->most, "step"));
	if (grows) {
		say(out, "), but");
		growth_say(g->l, g->a, GROWTH_GOES_ON, out);
	} else if (g->a->ignored) {
		say(out, ", and no place kept so much more memory from step to step.");
	} else {
		say(out, ", and no place kept more memory from step to step.");
	}
	if (has_unseen_objects(g))
		say(out,
		    " Python's small objects were recorded by the arena, not one by one: growth "
		    "of less than an arena in a step shows with --python-objects.");
}

static void say_clean(const struct view *g, const struct steps *s, struct buf *out)
{
	if (s->most >= LEAKS_MIN_STEPS && !say_uncovered(g, out)) {
		say_no_leaks(g, s, out);
		return;
	}
	if (s->most < LEAKS_MIN_STEPS)
		say(out,
		    "No leaks are seen{}, but only {} step{} ended: the first is the warm-up, and "
		    "growth shows from the third on.",
		    TEXT(g->a->ngrowths ? " in steps" : ""), NUMBER(s->most),
		    TEXT(s->most == 1 ? "" : "s"));
	growth_say(g->l, g->a, GROWTH_FOLLOWS, out);
}

/* By module or line, as asked for; by call site where these are not known. */
static void say_growing(const struct view *g, struct buf *out)
{
	bool asked = g->l->by != LEAKS_BY_SITE;

	if (asked && leaks_say_groups(g->l, g->a, out))
		return;
	say_leaks(g, out);
	if (asked && g->l->by == LEAKS_BY_MODULE)
		say(out, " No module is known of it: modules are those of PyTorch, in recordings "
			 "that were made with --analysis=decompose; a csv or db file has none.");
}

static void print_answer(const struct view *g)
{
	struct steps s = count_steps(g);
	size_t ignored = g->a->ignored;
	struct buf t = {0};

	if (g->a->growing) {
		say_growing(g, &t);
		growth_say(g->l, g->a, GROWTH_FOLLOWS, &t);
	} else if (s.processes) {
		say_clean(g, &s, &t);
	} else {
		say_no_steps(g, &t);
	}
	if (ignored)
		say(&t, " {} lose{} less than the limit (--min-bytes=1 shows {}).",
		    COUNT_OF(ignored, g->a->growing ? "more place" : "place"),
		    TEXT(ignored == 1 ? "s" : ""), TEXT(ignored == 1 ? "it" : "them"));
	steps_say(g->l->base.blocks, &t);
	report_paragraph(&g->report, 0, &t);
}

/* --- call sites --- */

static void print_frames(const struct view *g, const struct leak_site *s, uint64_t block_bytes)
{
	struct stack stack = stacks_get(leaks_stacks(g->l), s->stack);

	report_stack(&g->report, 6, stack);
	if (stack.py || stack.c)
		return;
	report_ink(&g->report, INK_DIM);
	print(g, "      ");
	say_size(g->report.out, s, block_bytes);
	report_ink(&g->report, INK_PLAIN);
	print(g, "\n");
}

static void print_site(const struct view *g, const struct leak_site *s)
{
	print(g, "  Process {}, device {}, {}{}: ", NUMBER(s->pool->process->pid),
	      DEVICE(s->pool->device->device), POOL(s->pool->type),
	      TEXT(s->pinned ? " (pinned)" : ""));
}

static void print_steps(const struct view *g, const struct leak_finding *f)
{
	if (f->first_step == f->last_step)
		print(g, "step {}", NUMBER(f->first_step));
	else
		print(g, "steps {} to {}", NUMBER(f->first_step), NUMBER(f->last_step));
}

/* `sonde mem show` counts what was left, so it is said why that is another number. */
static void print_left_at_end(const struct view *g, const struct leak_finding *f)
{
	struct leak_held left = leak_left_at_end(g->a, f->site);
	const struct leak_rest *rest = leak_rest_of(g->a, f->site);

	if (left.blocks == f->blocks)
		return;
	print(g, "      {}: {}; ", TEXT(rest->running ? "Alive now" : "Left at the end"),
	      HELD(left.bytes, left.blocks));
	if (left.blocks > f->blocks)
		print(g, "{} of them {} not counted here (first step, or too young)\n",
		      COUNT(left.blocks - f->blocks),
		      TEXT(left.blocks - f->blocks == 1 ? "is" : "are"));
	else
		print(g, "the others were freed after the last step\n");
}

static void print_growing(const struct view *g)
{
	size_t n = g->a->growing, top = g->report.style->top;

	if (!n || !top)
		return;
	report_title(&g->report, "Call sites that lose memory");
	for (size_t i = 0; i < n && i < top; i++) {
		const struct leak_finding *f = &g->a->findings[i];

		print_site(g, f->site);
		report_inked(&g->report, INK_BAD, "{}", HELD(f->bytes, f->blocks));
		print(g, ", {} per step, ", BYTES(f->bytes_per_step));
		print_steps(g, f);
		print(g, "\n");
		print_left_at_end(g, f);
		print_frames(g, f->site, f->block_bytes);
	}
	if (n > top)
		report_more(&g->report, 2, n - top, "place");
}

static void print_kept(const struct view *g, const struct leak_finding *f)
{
	const struct leak_process *p = f->site->pool->process->own;

	print_site(g, f->site);
	print(g, "{}, allocated in ", HELD(f->bytes, f->blocks));
	print_steps(g, f);
	if (f->kind == LEAK_ONCE)
		print(g, ", alive for {} since: a one-time cache, or a one-time leak\n",
		      COUNT_OF(p->last_step - f->last_step, "step"));
	else if (f->kind == LEAK_STOPPED)
		print(g, ", and no more since: a cache that has filled up\n");
	else
		print(g, ": a rolling buffer, its blocks are freed after up to {}\n",
		      COUNT_OF(f->site->life_at_end, "step"));
	print_frames(g, f->site, f->block_bytes);
}

static void print_not_growing(const struct view *g)
{
	uint64_t pool_blocks = 0, pool_bytes = 0;
	size_t n = 0, top = g->report.style->top;

	for (size_t i = 0; i < g->a->nfindings; i++) {
		const struct leak_finding *f = &g->a->findings[i];

		if (f->kind == LEAK_OF_POOL) {
			pool_blocks += f->blocks;
			pool_bytes += f->bytes;
		}
		if (f->kind == LEAK_GROWTH || f->kind == LEAK_OF_POOL)
			continue;
		if (!n++ && top)
			report_title(&g->report, "Kept, but not growing");
		if (n <= top)
			print_kept(g, f);
	}
	if (n > top && top)
		report_more(&g->report, 2, n - top, "place");
	if (pool_blocks)
		print(g,
		      "\nThe pools took {} from the driver after the first step. This memory is "
		      "held by the pools: whether it leaks is decided by the blocks inside them.\n",
		      HELD(pool_bytes, pool_blocks));
}

/* --- what was left at the end --- */

/* Equal for call sites that read the same. */
static uint64_t looks_of(const struct view *g, const struct leak_site *s)
{
	uint64_t h = report_stack_hash(stacks_get(leaks_stacks(g->l), s->stack));

	if (!s->stack && !s->before)
		h += s->size * 4 + s->mapping * 2u + s->is_parent + 1;
	return (h ^ (uint64_t)s->pool->number << 1 ^ s->pinned) * 0x9e3779b97f4a7c15u;
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

		if (!leak_is_listed(left, driver))
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
	SORT(list, n, leak_left_order);
	hmap_release(&seen);
	*out_n = n;
	return list;
}

static void print_left_of(const struct view *g, const struct leak_rest *rest, bool driver)
{
	size_t n, top = g->report.style->top;
	struct leak_left *list = list_left(g, rest, driver, &n);

	for (size_t i = 0; i < n && i < top; i++) {
		const struct leak_site *s = list[i].site;

		print_site(g, s);
		print(g, "{}\n", HELD(list[i].bytes, list[i].blocks));
		print_frames(g, s, s->is_parent ? 0 : s->size);
	}
	free(list);
	if (n > top && top)
		print(g, "  Process {}: and {}\n", NUMBER(rest->process->pid),
		      COUNT_OF(n - top, "more place"));
}

/* Without steps there is nothing better to say than what was left. */
static void print_without_steps(const struct view *g)
{
	bool none = !count_steps(g).processes;
	size_t n = 0, top = g->report.style->top;
	struct programs all = {0};

	if (!g->l->dumped) /* allocations were not asked for: what is left of them is not listed */
		return;
	for (size_t i = 0; i < g->a->nrests; i++) {
		const struct leak_rest *rest = &g->a->rests[i];

		if (leak_has_steps(rest) || !rest->blocks)
			continue;
		/* The largest come first; where all left little, that one is listed. */
		bool listed = rest->bytes >= HELPER_BYTES || (!n && none);
		programs_add(&all, rest, rest->process->pid, listed ? HELPER_BYTES : 0);
		if (!listed)
			continue;
		if (n++ >= top)
			continue;
		if (n == 1)
			report_title(&g->report,
				     none ? "Left at the end"
					  : "Left at the end by processes without steps");
		if (none)
			print_left_of(g, rest, false);
		else
			print(g, "  Process {}: {}\n", NUMBER(rest->process->pid),
			      HELD(rest->bytes, rest->blocks));
	}
	if (n > top && top)
		print(g, "  and {} more processes\n", NUMBER(n - top));
	if (all.small && top)
		print(g, "{}{} helper process{} that left less than {}\n",
		      TEXT(n ? "  and " : "\nNot listed: "), NUMBER(all.small),
		      TEXT(all.small == 1 ? "" : "es"), BYTES(HELPER_BYTES));
	programs_release(&all);
}

static void print_driver_left(const struct view *g)
{
	bool any = false, console = g->report.style->console;

	if (!g->l->dumped && !console)
		return;
	for (size_t i = 0; i < g->a->nrests; i++) {
		const struct leak_rest *rest = &g->a->rests[i];

		if (!rest->driver.blocks && (console || !rest->carved.blocks))
			continue;
		if (!any)
			report_title(&g->report, rest->running
							 ? "Not given back to the driver so far:"
							 : "Not given back to the driver at exit:");
		any = true;
		print(g, "  Process {} {}", NUMBER(rest->process->pid),
		      TEXT(rest->running ? "still holds " : "kept "));
		if (rest->driver.blocks)
			print(g, "{}", HELD(rest->driver.bytes, rest->driver.blocks));
		if (rest->driver.blocks && rest->carved.blocks)
			print(g, ", and ");
		if (rest->carved.blocks)
			print(g, "{} that pools have cut their blocks from",
			      HELD(rest->carved.bytes, rest->carved.blocks));
		print(g, ".\n");
		if (leak_has_steps(rest) || console) /* else they are in the list above */
			print_left_of(g, rest, true);
	}
}

static void print_hint(const struct view *g)
{
	bool any = false, python = false, arenas = false;

	for (size_t i = 0; i < g->a->growing; i++) {
		const struct leak_site *s = g->a->findings[i].site;
		bool is_python = words_is_python(s->pool->process->command);

		any |= !s->stack;
		python |= !s->stack && is_python;
		arenas |= is_python && g->a->findings[i].list[0]->mapping;
	}
	if (any)
		print(g,
		      "\nRecord with --call-stack={} to see where blocks without a call stack come "
		      "from.\n",
		      TEXT(python ? "python" : "c"));
	if (arenas)
		print(g,
		      "\nMappings of Python are mostly arenas for its small objects, and belong to "
		      "whoever needed one more; --python-objects records each object.\n");
}

void leaks_text(struct analysis *a, const struct analysis_style *style, struct buf *out)
{
	struct leak_answer answer;
	struct view g = {report_begin(style, out), (struct leaks *)a, &answer};

	leaks_judge((struct leaks *)a, &answer);
	if (!style->console || answer.growing || answer.judged) {
		print_answer(&g);
		if (style->literal)
			leaks_print_literal(&answer, &g.report);
		if (g.l->by != LEAKS_BY_SITE)
			leaks_print_groups(g.l, g.a, &g.report);
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
