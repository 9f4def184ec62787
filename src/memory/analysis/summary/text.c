/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The summary as text: what happened in a few sentences (answer.c), a table, the call sites that hold
 * memory, and what is missing.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/text/printable.h"
#include "base/text/sparkline.h"
#include "memory/analysis/common/fields.h"
#include "memory/analysis/processes/processes.h"
#include "memory/analysis/processes/programs.h"
#include "memory/analysis/summary/summary_impl.h"

#define MAX_POOLS 40 /* listed; JSON has them all */
#define MAX_PROCESSES 20
#define MAX_COURSES 16 /* of devices */
#define COURSE_COLUMNS 48

struct view {
	struct report report;
	const struct summary *s;
	struct summary_pool **pools; /* that are listed */
	size_t npools, pools_total;
	struct programs programs; /* which of them are listed */
};

/* --- the table --- */

static int higher_pool_first(const void *pa, const void *pb)
{
	const struct summary_pool *a = *(struct summary_pool *const *)pa;
	const struct summary_pool *b = *(struct summary_pool *const *)pb;

	return ORDER(b->bytes.peak_bytes, a->bytes.peak_bytes) ?: ORDER(a->number, b->number);
}

static void list_pools(struct view *g)
{
	size_t cap = 0;

	for (size_t i = 0; i < g->s->nprocesses; i++) {
		const struct summary_process *p = g->s->processes[i];

		if (programs_is_helper(&g->programs, p))
			continue;
		struct summary_pool **sorted = summary_pools(p);

		g->pools = xgrow(g->pools, &cap, g->npools + p->npools, sizeof(*g->pools));
		for (size_t k = 0; k < p->npools; k++)
			g->pools[g->npools++] = sorted[k];
		free(sorted);
	}
	g->pools_total = g->npools;
	if (g->npools <= MAX_POOLS)
		return;
	SORT(g->pools, g->npools, higher_pool_first);
	g->npools = MAX_POOLS;
}

static void print_table(const struct view *g)
{
	static const struct field_table table = {summary_pool_fields, 3, 0, NULL};
	struct summary_pool_row *rows = xcalloc(g->npools, sizeof(*rows));
	uint64_t torn_down = 0, carried = 0;

	for (size_t i = 0; i < g->npools; i++)
		rows[i] = summary_pool_row(g->s, g->pools[i]);
	print(g, "\n");
	report_fields(&g->report, &table, rows, g->npools, sizeof(*rows));
	for (size_t i = 0; i < g->npools; i++) {
		torn_down += rows[i].teardown_frees;
		carried += rows[i].carried_over_blocks;
	}
	free(rows);
	if (carried)
		print(g,
		      "{} from the dropped part {} alive when the rest began: not among the "
		      "allocations, but among the frees or the blocks left.\n",
		      COUNT_OF(carried, "block"), TEXT(words_was(carried)));
	if (torn_down)
		print(g,
		      "What is left is counted when the program ends, before it frees the rest; "
		      "{} came after that.\n",
		      COUNT_OF(torn_down, "free"));
	if (g->pools_total > g->npools)
		print(g, "These are the {} pools with the highest peaks, of {} (JSON has all).\n",
		      NUMBER(g->npools), NUMBER(g->pools_total));
}

/* What was held of each device over time, as a line of characters. */
static void print_courses(const struct view *g)
{
	struct buf line = {0};
	char name[16];
	bool any = false;

	for (size_t i = 0; i < g->s->ndevices && i < MAX_COURSES; i++) {
		struct summary_device *d = g->s->devices[i];
		uint64_t most = summary_device_peak(d)->peak_bytes;
		struct timed_course course = summary_device_course(d);
		size_t n = timed_course_count(&course);

		if (!most || n < 2)
			continue;
		buf_clear(&line);
		buf_addf(&line, "%s%s  ", d->device == DEV_HOST ? "" : "Device ",
			 d->device == DEV_HOST ? "Host" : blocks_device_name(d->device, name));
		text_add_sparkline(&line, course.course.bins, n, COURSE_COLUMNS, most);
		print(g, "{}{}  up to {}, over {}\n", TEXT(any ? "" : "\n"), TEXT(buf_str(&line)),
		      BYTES(most), DURATION(n * course.bin_ns));
		any = true;
	}
	buf_release(&line);
}

static int higher_process_first(const void *pa, const void *pb)
{
	const struct summary_process *a = *(const struct summary_process *const *)pa;
	const struct summary_process *b = *(const struct summary_process *const *)pb;

	return ORDER(summary_highest_pool(b), summary_highest_pool(a))
		       ?: ORDER(a->first_ns, b->first_ns);
}

/* In the order of their appearance; of many, those with the highest peaks. */
static void print_processes(const struct view *g)
{
	const struct summary_process **named = xcalloc(g->s->nprocesses + 1, sizeof(*named));
	size_t n = 0;

	for (size_t i = 0; i < g->s->nprocesses; i++) {
		const struct summary_process *p = g->s->processes[i];

		if (p->cmdline && *p->cmdline && p->seen.rows &&
		    !programs_is_helper(&g->programs, p))
			named[n++] = p;
	}
	if (n > MAX_PROCESSES)
		SORT(named, n, higher_process_first);
	for (size_t i = 0; i < n && i < MAX_PROCESSES; i++)
		print(g, "{}Process {}: {}\n", TEXT(i ? "" : "\n"), NUMBER(named[i]->pid),
		      PRINTABLE(named[i]->cmdline));
	if (n > MAX_PROCESSES)
		print(g, "and {} more processes, with lower peaks\n", NUMBER(n - MAX_PROCESSES));
	if (programs_describe_helpers(&g->programs, "held", g->report.out))
		print(g, " (JSON has all)\n");
	free(named);
}

static void print_paragraph(const struct view *g, struct buf *text)
{
	if (text->len) {
		print(g, "\n");
		report_paragraph(&g->report, 0, text);
	}
}

static void print_counts(const struct view *g)
{
	struct summary_counts c;
	struct buf t = {0};

	summary_count_all(g->s, &c);
	if (g->s->calls && (c.mallocs || c.frees)) /* else it is the answer */
		summary_describe_calls(g->s, &t);
	print_paragraph(g, &t);
	const struct {
		uint64_t n;
		const char *one, *many;
	} words[] = {{c.operator_launches, "operator launch", "operator launches"},
		     {c.kernel_launches, "kernel launch", "kernel launches"},
		     {c.accesses, "access", "accesses"},
		     {c.steps, "step", "steps"},
		     {c.detected_steps, "detected step", "detected steps"},
		     {c.marks, "mark", "marks"},
		     {c.ranges, "range", "ranges"},
		     {c.snapshots, "snapshot", "snapshots"}};
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (words[i].n)
			add_text(&t, "{}{} {}", TEXT(t.len ? ", " : "Also recorded: "),
				 COUNT(words[i].n),
				 TEXT(words[i].n == 1 ? words[i].one : words[i].many));
	add_text(&t, t.len ? "." : "");
	print_paragraph(g, &t);
}

/* --- call sites --- */

static void print_sites(const struct view *g, const struct summary_pool *pool, bool at_peak)
{
	struct call_site rest = {0};
	size_t n, top = g->report.style->top;
	struct call_site *sites = summary_sites(g->s, pool, at_peak, &n);

	n = call_sites_merge(sites, n, &g->s->stacks);
	for (size_t i = 0; i < n; i++) {
		if (i < top)
			report_call_site(&g->report, 4, INK_WARNING, &g->s->stacks, &sites[i]);
		rest.blocks += i < top ? 0 : sites[i].blocks;
		rest.bytes += i < top ? 0 : sites[i].bytes;
	}
	if (n > top && top)
		print(g, "    {} from {}\n", HELD(rest.bytes, rest.blocks),
		      COUNT_OF(n - top, "more place"));
	free(sites);
}

static void print_pool(const struct view *g, const struct summary_pool *pool,
		       struct summary_held held)
{
	print(g, "  Process {}, device {}, {}: {}", NUMBER(pool->process->pid),
	      DEVICE(pool->device), POOL(pool->type), HELD(held.bytes, held.blocks));
}

static void print_alive(const struct view *g)
{
	bool any = false;

	for (size_t i = 0; i < g->npools && g->report.style->top; i++) {
		struct summary_held alive = summary_alive(g->pools[i]);

		if (!alive.blocks)
			continue;
		if (!any)
			report_title(&g->report, "Still allocated at the end");
		any = true;
		print_pool(g, g->pools[i], alive);
		print(g, "\n");
		print_sites(g, g->pools[i], false);
	}
}

/* The pool to explain: the highest peak, of a framework's pool if there is one. */
static const struct summary_pool *peak_pool(const struct view *g)
{
	const struct summary_pool *best = NULL;

	for (size_t i = 0; i < g->npools; i++) {
		const struct summary_pool *p = g->pools[i];
		bool better = best && blocks_is_driver(best->type) && !blocks_is_driver(p->type);
		bool same = best && blocks_is_driver(best->type) == blocks_is_driver(p->type);

		if (p->bytes.peak_bytes &&
		    (!best || better || (same && p->bytes.peak_bytes > best->bytes.peak_bytes)))
			best = p;
	}
	return best;
}

static void print_peak(const struct view *g)
{
	const struct summary_pool *pool = peak_pool(g);

	if (!pool || !g->report.style->top || g->s->stacks.count < 2)
		return;
	report_title(&g->report, "Held at the highest peak");
	print_pool(g, pool, (struct summary_held){pool->peak_blocks, pool->bytes.peak_bytes});
	print(g, ", {} after the start\n", DURATION(pool->bytes.peak_time_ns - g->s->first_ns));
	print_sites(g, pool, true);
}

/* What a GPU has in use. */
static void print_use(const struct view *g, const struct summary_pool *pool)
{
	struct summary_share u;
	struct buf t = {0};

	if (!summary_use(pool, &u))
		return;
	add_text(&t, "Of device {} {}", DEVICE(pool->device), BYTES(u.used_bytes));
	if (u.total_bytes)
		add_text(&t, " of {}", BYTES(u.total_bytes));
	add_text(&t, " were in use {} after the start: blocks of process {} had {}",
		 DURATION(u.time_ns > g->s->first_ns ? u.time_ns - g->s->first_ns : 0),
		 NUMBER(pool->process->pid), BYTES(u.pool_bytes));
	if (u.tensor_bytes)
		add_text(&t, " (its tensors {})", BYTES(u.tensor_bytes));
	if (u.kept_bytes)
		add_text(&t, ", the driver's pools kept {} for it", BYTES(u.kept_bytes));
	add_text(&t, ", ");
	if (u.has_others) {
		add_text(&t, "its context and libraries {}, ", BYTES(u.process));
		if (u.job)
			add_text(&t, "other processes of this job {}, ", BYTES(u.job));
		add_text(&t, "{} and the driver {}.",
			 TEXT(u.job ? "processes of others" : "other processes"),
			 BYTES(u.others - u.job));
	} else {
		add_text(
			&t,
			"{} were its context and libraries, other processes and the driver (nobody "
			"tells them apart here).",
			BYTES(u.not_told));
	}
	print_paragraph(g, &t);
}

static void print_ooms(const struct view *g)
{
	if (g->s->nooms)
		report_title(&g->report, "Out of memory");
	for (unsigned i = 0; i < g->s->nooms; i++) {
		const struct summary_oom *o = &g->s->ooms[i];

		print(g, "  {} after the start: process {} asked device {} for ",
		      DURATION(o->time_ns - g->s->first_ns), NUMBER(o->pid), DEVICE(o->device));
		if (o->requested_bytes)
			print(g, "{}", BYTES(o->requested_bytes));
		else
			print(g, "a context");
		if (o->function[0])
			print(g, " ({})", PRINTABLE(o->function));
		print(g, "\n");
	}
}

/* --- what is missing --- */

static void print_remarks(const struct view *g)
{
	struct summary_counts c;
	struct buf t = {0};
	bool any_left = false, python = false;

	summary_count_all(g->s, &c);
	for (size_t i = 0; i < g->npools; i++) {
		any_left |= summary_alive(g->pools[i]).blocks != 0;
		python |= words_is_python(g->pools[i]->process->cmdline);
	}
	if (summary_frees_missing(&c))
		add_text(&t,
			 "Not one free was recorded (was it switched off with --events?), so every "
			 "block counts as still allocated.\n");
	if (c.unmatched_frees)
		add_text(&t, "{} {} of blocks whose allocation was not recorded.\n",
			 COUNT_OF(c.unmatched_frees, "free"), TEXT(words_was(c.unmatched_frees)));
	if (c.unseen_frees)
		add_text(&t,
			 "{} {} freed unseen, for example while nothing was recorded; {} not among "
			 "the "
			 "frees.\n",
			 COUNT_OF(c.unseen_frees, "block"), TEXT(words_was(c.unseen_frees)),
			 TEXT(c.unseen_frees == 1 ? "it is" : "they are"));
	if (g->s->nameless)
		add_text(&t,
			 "{} {} neither an id nor an address, so nobody knows whether they were "
			 "freed.\n",
			 COUNT_OF(g->s->nameless, "allocation"),
			 TEXT(g->s->nameless == 1 ? "has" : "have"));
	if (g->s->unordered)
		add_text(&t,
			 "The rows were not in the order of time, so the peaks are not exact.\n");
	if (g->report.style->top && any_left && g->s->stacks.count < 2) {
		words_stacks_hint(&t, python);
		add_text(&t, "\n");
	}
	for (size_t i = 0; i < g->s->nnotes; i++)
		add_text(&t, "{}\n", PRINTABLE(g->s->notes[i]));
	report_remarks(&g->report, &t);
}

/* How processes ended, and what of their memory was recorded. */
static void print_facts(const struct view *g)
{
	struct buf lines = {0};

	if (!g->s->facts)
		return;
	processes_ends_text(g->s->facts, &lines);
	processes_coverage_text(g->s->facts, &lines);
	report_remarks(&g->report, &lines);
}

static void print_lost_of(const struct view *g, const struct summary_process *p)
{
	const char *between = "";

	if (!p->lost.events && !p->lost.stacks && !p->lost.damaged_bytes)
		return;
	print(g, "  process {}: ", NUMBER(p->pid));
	if (p->lost.events) {
		print(g, "{}", COUNT_OF(p->lost.events, "event"));
		between = ", ";
	}
	if (p->lost.stacks) {
		print(g, "{}{}", TEXT(between), COUNT_OF(p->lost.stacks, "call stack"));
		between = ", ";
	}
	if (p->lost.damaged_bytes)
		print(g, "{}{} of damaged records", TEXT(between), BYTES(p->lost.damaged_bytes));
	print(g, "\n");
}

static void print_lost(const struct view *g)
{
	struct loss lost;

	summary_loss_all(g->s, &lost);
	print(g, "\n");
	bool more = lost.more;
	report_ink(&g->report, lost.events || lost.damaged_bytes || more ? INK_BAD : INK_GOOD);
	if (lost.events)
		print(g, "{}{} {} lost.", TEXT(more ? "At least " : ""),
		      COUNT_OF(lost.events, "event"), TEXT(words_was(lost.events)));
	else if (more)
		print(g, "How many events were lost is unknown.");
	else if (lost.damaged_bytes)
		print(g, "{} of records were damaged; the events in them are lost.",
		      BYTES(lost.damaged_bytes));
	else
		print(g, g->s->nnotes ? "No other loss is known." : "No events were lost.");
	if (lost.stacks)
		print(g, " {} {} lost.", COUNT_OF(lost.stacks, "call stack"),
		      TEXT(words_was(lost.stacks)));
	report_ink(&g->report, INK_PLAIN);
	print(g, "\n");
	for (size_t i = 0; i < g->s->nprocesses; i++)
		print_lost_of(g, g->s->processes[i]);
}

void summary_text(struct summary *s, unsigned top, bool colour, struct buf *out)
{
	struct analysis_style style = {.colour = colour, .top = top};
	struct view g = {.report = report_begin(&style, out), .s = s};
	struct buf answer = {0};

	summary_settle(s);
	summary_programs(g.s, &g.programs);
	list_pools(&g);
	if (s->facts)
		dropped_text(&s->facts->dropped, out);
	if (out->len)
		buf_add_char(out, '\n');
	summary_describe_answer(s, &answer);
	report_paragraph(&g.report, 0, &answer);
	print_processes(&g);
	if (g.npools)
		print_table(&g);
	summary_sort_devices(s);
	print_courses(&g);
	for (size_t i = 0; i < g.npools; i++)
		print_use(&g, g.pools[i]);
	summary_describe_files(s, out);
	print_counts(&g);
	print_alive(&g);
	print_peak(&g);
	print_ooms(&g);
	print_facts(&g);
	print_remarks(&g);
	print_lost(&g);
	free(g.pools);
	programs_release(&g.programs);
}
