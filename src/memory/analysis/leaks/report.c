/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The leaks as text: an answer, the lines that scripts look for, the call sites and what is left. */
#include <stdio.h>
#include <stdlib.h>

#include "base/containers/names.h"
#include "base/mem.h"
#include "memory/analysis/common/block_steps.h"
#include "memory/analysis/leaks/leaks_report.h"
#include "memory/analysis/processes/processes.h"
#include "wire/record.h"

#define MAX_SHOWN 3 /* call sites in the first paragraph */

/* What stands for the call site of blocks without a call stack; block_bytes 0: sizes differ. */
static void describe_size(struct buf *out, const struct leak_site *s, uint64_t block_bytes)
{
	if (s->before)
		add_text(out, "allocated before recording began");
	else
		words_blocks_of(out, s->mapping, block_bytes, s->size);
}

/* --- the answer --- */

static void describe_module(const struct leaks_view *g, const struct leak_finding *f,
			    struct buf *out)
{
	char *module = leak_module(g->l, f);

	if (module)
		add_text(out, ", module {}", PRINTABLE(module));
	free(module);
}

/* `sonde mem show` counts what was left, so it is said why that is another number. */
static void describe_left(const struct leaks_view *g, const struct leak_place *p, struct buf *out)
{
	struct leak_held left = leak_place_left(g->a, p);
	const struct leak_rest *rest = leak_rest_of(g->a, p->sum.site);
	uint64_t n = p->sum.blocks;

	if (left.blocks == n)
		return;
	if (left.blocks > n)
		add_text(out, ", of {} {} (the first step's and the youngest do not count)",
			 COUNT(left.blocks),
			 TEXT(rest->running ? "that are alive now" : "left at the end"));
	else if (left.blocks)
		add_text(out, "; {} of them {} {}", COUNT(left.blocks),
			 TEXT(left.blocks == 1 ? "is" : "are"),
			 TEXT(rest->running ? "alive now" : "left at the end"));
	else
		add_text(out, ", all freed after the last step");
}

static void describe_leak(const struct leaks_view *g, const struct leak_place *p, struct buf *out)
{
	const struct leak_finding *f = &p->sum;
	const struct leak_site *s = f->site;
	bool every = f->steps == f->span_steps;

	add_text(out, "Process {} loses {}{} of ", NUMBER(s->pool->process->pid),
		 TEXT(every && !f->block_bytes ? "about " : ""), BYTES(f->bytes_per_step));
	if (s->pinned && s->pool->device->device == DEV_HOST)
		add_text(out, "pinned ");
	words_device(out, s->pool->device->device, false);
	if (every)
		add_text(out, " in every step: ");
	else
		add_text(out, " per step on average (in {} of {}): ", COUNT(f->steps),
			 COUNT_OF(f->span_steps, "step"));
	if (!(p->mixed ? stacks_place : stacks_where)(leaks_stacks(g->l), s->stack, out))
		describe_size(out, s, f->block_bytes);
	if (p->nstacks > 1)
		add_text(out, " in {}", COUNT_OF(p->nstacks, "call stack"));
	describe_module(g, f, out);
	add_text(out, ", {} ({}) since step {}", COUNT_OF(f->blocks, "block"), BYTES(f->bytes),
		 NUMBER(f->first_step));
	describe_left(g, p, out);
	add_text(out, ".");
}

static void describe_leaks(const struct leaks_view *g, struct buf *out)
{
	size_t more = g->a->losing > MAX_SHOWN ? g->a->losing - MAX_SHOWN : 0;
	uint64_t rest = 0;

	for (size_t i = 0; i < g->a->losing; i++) {
		if (i >= MAX_SHOWN) {
			rest += g->a->places[i].sum.bytes;
			continue;
		}
		add_text(out, i ? " " : "");
		describe_leak(g, &g->a->places[i], out);
	}
	if (more)
		add_text(out, " {} {} memory, too ({} so far).", COUNT_OF(more, "more place"),
			 TEXT(more == 1 ? "loses" : "lose"), BYTES(rest));
}

/* How many processes had steps, and how many the least and the most. */
struct steps {
	size_t processes;
	uint32_t pid, least, most;
};

static struct steps count_steps(const struct leaks_view *g)
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

static void describe_no_steps(const struct leaks_view *g, struct buf *out)
{
	uint64_t blocks = 0, bytes = 0;

	for (size_t i = 0; i < g->a->nrests; i++) {
		blocks += g->a->rests[i].blocks;
		bytes += g->a->rests[i].bytes;
	}
	if (!g->a->nrests) {
		add_text(out, "There is nothing to look at: no allocation was recorded.");
		return;
	}
	if (g->a->ngrowths) {
		add_text(out, "No steps are known.");
		growth_describe(g->l, g->a, GROWTH_ALONE, out);
	} else {
		add_text(out,
			 "No step ended in this recording, so growth cannot be distinguished from "
			 "memory that is kept on purpose.");
		add_text(out, "{}",
			 TEXT(growth_is_judged(g->l)
				      ? " Over time, nothing grew steadily."
				      : " Growth over time is judged from ten seconds "
					"on: this was shorter."));
	}
	add_text(out, " Mark the steps of the job: " WORDS_MARK_STEPS);
	if (g->l->dumped && blocks)
		add_text(out, " {} {} left at the end.", HELD(bytes, blocks),
			 TEXT(words_was(blocks)));
	else if (g->l->dumped)
		add_text(out, " Everything that was allocated was freed again.");
}

/* Of a Python process whose host memory was recorded, but not its objects. */
static bool has_unseen_objects(const struct leaks_view *g)
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
static bool describe_uncovered(const struct leaks_view *g, struct buf *out)
{
	const struct processes *ps = g->l->base.processes;
	const struct process_facts *p = ps ? processes_uncovered(ps) : NULL;

	if (!p)
		return false;
	uint64_t grew = process_uncovered_growth(p);
	add_text(out, "No place that was recorded kept more memory from step to step, but {} of ",
		 BYTES(p->highest.not_covered));
	processes_describe(ps, p->pid, out);
	add_text(out, " are not covered");
	if (grew)
		add_text(out, " and grew by {} since the first step: it may leak", BYTES(grew));
	add_text(out, ".");
	return true;
}

static void describe_processes(const struct leaks_view *g, const struct steps *s, struct buf *out)
{
	if (s->processes == 1)
		processes_describe(g->l->base.processes, s->pid, out);
	else
		add_text(out, "{} processes", NUMBER(s->processes));
}

/* "above the limit", where places that lose less are left out. */
static void describe_limit(const struct leaks_view *g, struct buf *out)
{
	if (!g->a->ignored)
		return;
	if (g->l->min_bytes == UINT64_MAX)
		add_text(out, " above the limit of {} per step",
			 BYTES(LEAKS_HOST_MIN_BYTES_PER_STEP));
	else
		add_text(out, " above the limit of {}", BYTES(g->l->min_bytes));
}

static void describe_no_leaks(const struct leaks_view *g, const struct steps *s, struct buf *out)
{
	bool grows = g->a->ngrowths;

	add_text(out, "No leaks");
	describe_limit(g, out);
	add_text(out, grows ? " in the steps of " : ": ");
	describe_processes(g, s, out);
	add_text(out, grows ? " (" : " ended ");
	if (s->least != s->most)
		add_text(out, "{} to ", COUNT(s->least));
	add_text(out, "{}", COUNT_OF(s->most, "step"));
	if (grows) {
		add_text(out, "), but");
		growth_describe(g->l, g->a, GROWTH_GOES_ON, out);
	} else if (g->a->ignored) {
		add_text(out, ", and no place kept so much more memory from step to step.");
	} else {
		add_text(out, ", and no place kept more memory from step to step.");
	}
	if (has_unseen_objects(g))
		add_text(out, " Python's small objects were recorded by the arena, not one by one: "
			      "growth "
			      "of less than an arena in a step shows with --python-objects.");
}

static void describe_clean(const struct leaks_view *g, const struct steps *s, struct buf *out)
{
	if (s->most >= LEAKS_MIN_STEPS && !describe_uncovered(g, out)) {
		describe_no_leaks(g, s, out);
		return;
	}
	if (s->most < LEAKS_MIN_STEPS)
		add_text(out,
			 "No leaks are seen{}, but only {} step{} ended: the first is the warm-up, "
			 "and "
			 "growth shows from the third on.",
			 TEXT(g->a->ngrowths ? " in steps" : ""), NUMBER(s->most),
			 TEXT(s->most == 1 ? "" : "s"));
	growth_describe(g->l, g->a, GROWTH_FOLLOWS, out);
}

/* By module or line, as asked for; by call site where these are not known. */
static void describe_growing(const struct leaks_view *g, struct buf *out)
{
	bool asked = g->l->by != LEAKS_BY_SITE;

	if (asked && leaks_describe_groups(g->l, g->a, out))
		return;
	describe_leaks(g, out);
	if (g->l->by == LEAKS_BY_MODULE && leaks_know_modules(g->a))
		add_text(out, " Nearly all of it belongs to no module.");
	else if (g->l->by == LEAKS_BY_MODULE)
		add_text(out,
			 " No module is known of it: modules are those of PyTorch, in recordings "
			 "that were made with --analysis=decompose; a csv or db file has none.");
}

static void print_answer(const struct leaks_view *g)
{
	struct steps s = count_steps(g);
	size_t ignored = g->a->ignored;
	struct buf t = {0};

	if (g->a->growing) {
		describe_growing(g, &t);
		if (leaks_keep_activations(g->l, g->a))
			add_text(&t,
				 " Nearly all of it is activations: so it is if results are kept "
				 "together with their graphs, such as a loss that is added up "
				 "without .item(), or outputs in a list without .detach().");
		growth_describe(g->l, g->a, GROWTH_FOLLOWS, &t);
	} else if (s.processes) {
		describe_clean(g, &s, &t);
	} else {
		describe_no_steps(g, &t);
	}
	if (ignored)
		add_text(&t, " {} lose{} less than the limit (--min-bytes=1 shows {}).",
			 COUNT_OF(ignored, g->a->growing ? "more place" : "place"),
			 TEXT(ignored == 1 ? "s" : ""), TEXT(ignored == 1 ? "it" : "them"));
	steps_describe(g->l->base.blocks, &t);
	report_paragraph(&g->report, 0, &t);
}

/* --- call sites --- */

void leaks_print_frames(const struct leaks_view *g, const struct leak_site *s, unsigned indent,
			uint64_t block_bytes)
{
	struct stack stack = stacks_get(leaks_stacks(g->l), s->stack);

	report_stack(&g->report, indent, stack);
	if (stack.py || stack.c)
		return;
	report_ink(&g->report, INK_DIM);
	buf_addf(g->report.out, "%*s", (int)indent, "");
	describe_size(g->report.out, s, block_bytes);
	report_ink(&g->report, INK_PLAIN);
	print(g, "\n");
}

void leaks_print_site(const struct leaks_view *g, const struct leak_site *s)
{
	print(g, "  Process {}, device {}, {}{}: ", NUMBER(s->pool->process->pid),
	      DEVICE(s->pool->device->device), POOL(s->pool->type),
	      TEXT(s->pinned ? " (pinned)" : ""));
}

static void print_steps(const struct leaks_view *g, const struct leak_finding *f)
{
	if (f->first_step == f->last_step)
		print(g, "step {}", NUMBER(f->first_step));
	else
		print(g, "steps {} to {}", NUMBER(f->first_step), NUMBER(f->last_step));
}

static void print_left_at_end(const struct leaks_view *g, const struct leak_place *p)
{
	struct leak_held left = leak_place_left(g->a, p);
	const struct leak_rest *rest = leak_rest_of(g->a, p->sum.site);
	uint64_t n = p->sum.blocks;

	if (left.blocks == n)
		return;
	print(g, "      {}: {}; ", TEXT(rest->running ? "Alive now" : "Left at the end"),
	      HELD(left.bytes, left.blocks));
	if (left.blocks > n)
		print(g, "{} of them {} not counted here (first step, or too young)\n",
		      COUNT(left.blocks - n), TEXT(left.blocks - n == 1 ? "is" : "are"));
	else
		print(g, "the others were freed after the last step\n");
}

/* The call stacks of a line, each with its part. */
static void print_stacks(const struct leaks_view *g, const struct leak_place *p)
{
	for (size_t i = 0; i < p->nstacks && i < g->report.style->top; i++) {
		const struct leak_finding *f = &p->stacks[i];

		print(g, "      {}, {} per step\n", HELD(f->bytes, f->blocks),
		      BYTES(f->bytes_per_step));
		leaks_print_frames(g, f->site, 10, f->block_bytes);
	}
	if (p->nstacks > g->report.style->top)
		report_more(&g->report, 6, p->nstacks - g->report.style->top, "call stack");
}

static void print_growing(const struct leaks_view *g)
{
	size_t n = g->a->losing, top = g->report.style->top;

	if (!n || !top)
		return;
	report_title(&g->report, "Call sites that lose memory");
	for (size_t i = 0; i < n && i < top; i++) {
		const struct leak_place *p = &g->a->places[i];
		const struct leak_finding *f = &p->sum;

		leaks_print_site(g, f->site);
		report_inked(&g->report, INK_BAD, "{}", HELD(f->bytes, f->blocks));
		print(g, ", {} per step, ", BYTES(f->bytes_per_step));
		print_steps(g, f);
		if (p->nstacks > 1)
			print(g, ", {}", COUNT_OF(p->nstacks, "call stack"));
		print(g, "\n");
		print_left_at_end(g, p);
		if (p->nstacks > 1)
			print_stacks(g, p);
		else
			leaks_print_frames(g, f->site, 6, f->block_bytes);
	}
	if (n > top)
		report_more(&g->report, 2, n - top, "place");
}

/* Sites that look alike to a reader: one line, and what came of it. */
struct kept_place {
	const struct leak_finding *largest;
	uint64_t bytes, blocks;
	size_t sites, order;
};

static int larger_kept_first(const void *a, const void *b)
{
	const struct kept_place *x = a, *y = b;

	if (x->bytes != y->bytes)
		return x->bytes > y->bytes ? -1 : 1;
	return x->order < y->order ? -1 : x->order > y->order;
}

/* What is printed of it, but for sizes; a site without a line is a place of its own. */
static void add_kept_key(const struct leaks_view *g, const struct leak_finding *f, struct buf *out)
{
	buf_addf(out, "%p %d %u %u ", (const void *)f->site->pool, (int)f->kind, f->first_step,
		 f->last_step);
	if (f->kind == LEAK_ROLLING || !stacks_where(leaks_stacks(g->l), f->site->stack, out))
		buf_addf(out, "%p", (const void *)f);
}

static struct kept_place *find_kept(const struct leaks_view *g, size_t *out_count)
{
	struct kept_place *places = xcalloc(g->a->nfindings + 1, sizeof(*places));
	struct names keys = {0};
	struct buf key = {0};

	for (size_t i = 0; i < g->a->nfindings; i++) {
		const struct leak_finding *f = &g->a->findings[i];

		if (f->kind == LEAK_GROWTH || f->kind == LEAK_OF_POOL)
			continue;
		buf_clear(&key);
		add_kept_key(g, f, &key);
		struct kept_place *p = &places[names_of(&keys, key.data, key.len)];
		if (!p->largest || f->bytes > p->largest->bytes)
			p->largest = f;
		p->order = i;
		p->sites++;
		p->bytes += f->bytes;
		p->blocks += f->blocks;
	}
	*out_count = keys.count;
	names_release(&keys);
	buf_release(&key);
	SORT(places, *out_count, larger_kept_first);
	return places;
}

static void print_kept(const struct leaks_view *g, const struct kept_place *kept)
{
	const struct leak_finding *f = kept->largest;
	const struct leak_process *p = f->site->pool->process->own;

	leaks_print_site(g, f->site);
	print(g, "{}, allocated in ", HELD(kept->bytes, kept->blocks));
	print_steps(g, f);
	if (kept->sites > 1)
		print(g, " in {}", COUNT_OF(kept->sites, "call stack"));
	if (f->kind == LEAK_ONCE)
		print(g, ", alive for {} since: a one-time cache, or a one-time leak\n",
		      COUNT_OF(p->last_step - f->last_step, "step"));
	else if (f->kind == LEAK_STOPPED)
		print(g, ", and no more since: a cache that has filled up\n");
	else
		print(g, ": a rolling buffer, its blocks are freed after up to {}\n",
		      COUNT_OF(f->site->life_at_end, "step"));
	leaks_print_frames(g, f->site, 6, f->block_bytes);
}

static void print_not_growing(const struct leaks_view *g)
{
	uint64_t pool_blocks = 0, pool_bytes = 0;
	size_t n, top = g->report.style->top;
	struct kept_place *places = find_kept(g, &n);

	if (n && top)
		report_title(&g->report, "Kept, but not growing");
	for (size_t i = 0; i < n && i < top; i++)
		print_kept(g, &places[i]);
	if (n > top && top)
		report_more(&g->report, 2, n - top, "place");
	free(places);
	for (size_t i = 0; i < g->a->nfindings; i++) {
		const struct leak_finding *f = &g->a->findings[i];

		if (f->kind != LEAK_OF_POOL)
			continue;
		pool_blocks += f->blocks;
		pool_bytes += f->bytes;
	}
	if (pool_blocks)
		print(g,
		      "\nThe pools took {} from the driver after the first step. This memory is "
		      "held by the pools: whether it leaks is decided by the blocks inside them.\n",
		      HELD(pool_bytes, pool_blocks));
}

static void print_hint(const struct leaks_view *g)
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

/* Without steps the sentences have the lines alone; who called them stands here. */
static void print_growths(const struct leaks_view *g)
{
	size_t n = g->a->ngrowths, top = g->report.style->top;

	if (!n || !top)
		return;
	report_title(&g->report, "Call sites that grow over time");
	for (size_t i = 0; i < n && i < top; i++) {
		const struct growth_finding *f = &g->a->growths[i];

		leaks_print_site(g, f->site);
		report_inked(&g->report, INK_BAD, "{}", BYTES(f->bytes));
		print(g, " so far, {}/min, {} a leak\n", BYTES(f->bytes_per_minute),
		      TEXT(f->likely ? "likely" : "possibly"));
		leaks_print_frames(g, f->site, 6, f->site->is_parent ? 0 : f->site->size);
	}
	if (n > top)
		report_more(&g->report, 2, n - top, "call site");
}

void leaks_text(struct analysis *a, const struct analysis_style *style, struct buf *out)
{
	struct leak_answer answer;
	struct leaks_view g = {report_begin(style, out), (struct leaks *)a, &answer};

	leaks_judge((struct leaks *)a, &answer);
	if (!style->console || answer.growing || answer.judged) {
		print_answer(&g);
		if (style->literal)
			leaks_print_literal(&answer, &g.report);
		if (g.l->by != LEAKS_BY_SITE)
			leaks_print_groups(g.l, g.a, &g.report);
		print_growing(&g);
		print_growths(&g);
		print_hint(&g);
	}
	if (!style->console) {
		print_not_growing(&g);
		leaks_print_left(&g, count_steps(&g).processes != 0);
	}
	leaks_print_driver_left(&g);
	leak_answer_release(&answer);
}
