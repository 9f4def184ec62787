/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The summary as text: what happened in a few sentences, a table, the call sites that hold memory,
 * and what is missing.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/text/printable.h"
#include "memory/analysis/common/fields.h"
#include "memory/analysis/processes/processes.h"
#include "memory/analysis/summary/summary_impl.h"

#define MAX_DEVICES 3 /* in the first paragraph */
#define MAX_POOLS 40 /* listed; JSON has them all */
#define MAX_PROCESSES 20

struct view {
	struct report report;
	const struct summary *s;
	struct summary_pool **pools; /* that are listed */
	size_t npools, pools_total;
};

/* --- the answer --- */

/* Why there are no memory events, as far as the recording knows what it was asked for. */
static void say_why_none(const struct summary *s, struct buf *out)
{
	struct mem_asked asked = s->asked;

	asked.deferred &= s->first_ns == UINT64_MAX; /* a row says that it has begun */
	if (asked.known)
		say(out, " ");
	mem_asked_why_empty(&asked, out);
}

/* "1,234 calls of Python functions were traced, of 2 threads: see …" */
static void say_calls(const struct summary *s, struct buf *out)
{
	say(out,
	    "{} of Python functions {} traced, of {}: see the {} in "
	    "msmemscope_<pid>_<time>_ascend/device_*/dump.",
	    COUNT_OF(s->calls, "call"), TEXT(words_was(s->calls)),
	    COUNT_OF(s->call_threads, "thread"),
	    TEXT(s->calls_in_db ? "table python_trace_<pid> of the .db"
				: "files python_trace_<thread>_<time>.csv"));
}

static void say_size(const struct summary *s, const struct summary_counts *c, struct buf *out)
{
	uint64_t memory = c->mallocs + c->frees;
	size_t busy = 0;

	for (size_t i = 0; i < s->nprocesses; i++)
		busy += s->processes[i]->seen.rows != 0;
	say(out, "{} {} made ", NUMBER(busy), TEXT(busy == 1 ? "process" : "processes"));
	if (memory)
		say(out, "{}", COUNT_OF(memory, "memory event"));
	else
		say(out, "no memory events");
	say(out, " in {}.", DURATION(s->last_ns - s->first_ns));
	if (!memory)
		say_why_none(s, out);
}

/* The largest pool that lives on a device besides the driver's. */
static const struct summary_pool *largest_pool(const struct summary *s, uint32_t device)
{
	const struct summary_pool *best = NULL;

	for (size_t i = 0; i < s->nprocesses; i++)
		for (size_t k = 0; k < s->processes[i]->npools; k++) {
			const struct summary_pool *pool = s->processes[i]->pool_list[k];

			if (pool->device == device && !blocks_is_driver(pool->type) &&
			    (!best || pool->bytes.peak_bytes > best->bytes.peak_bytes))
				best = pool;
		}
	return best;
}

static void say_device(const struct summary *s, const struct summary_device *d, struct buf *out)
{
	struct summary_tally peak = *summary_device_peak(d);
	const struct summary_pool *pool = largest_pool(s, d->device);

	say(out, " ");
	words_device(out, d->device, true);
	say(out, " peaked at {}{}", TEXT(d->late ? "no less than " : ""), BYTES(peak.peak_bytes));
	if (pool && pool->bytes.peak_bytes && pool->bytes.peak_bytes != peak.peak_bytes) {
		say(out, " ({} pool ", POOL(pool->type));
		if (d->users > 1)
			say(out, "of process {} ", NUMBER(pool->process->pid));
		say(out, "{})", BYTES(pool->bytes.peak_bytes));
	}
	if (peak.peak_time_ns == s->first_ns)
		say(out, " at the start.");
	else
		say(out, " {} after the start.", DURATION(peak.peak_time_ns - s->first_ns));
}

static int higher_device_first(const void *pa, const void *pb)
{
	const struct summary_device *a = *(struct summary_device *const *)pa;
	const struct summary_device *b = *(struct summary_device *const *)pb;

	return ORDER(summary_device_peak(b)->peak_bytes, summary_device_peak(a)->peak_bytes)
		       ?: ORDER(a->device, b->device);
}

static void say_devices(struct summary *s, struct buf *out)
{
	size_t said = 0, held = 0;

	SORT(s->devices, s->ndevices, higher_device_first);
	for (size_t i = 0; i < s->ndevices; i++) {
		if (!summary_device_peak(s->devices[i])->peak_bytes)
			continue;
		held++;
		if (said == MAX_DEVICES)
			continue;
		say_device(s, s->devices[i], out);
		said++;
	}
	if (held == said + 1)
		say(out, " One more device is in the table below.");
	else if (held > said)
		say(out, " {} more devices are in the table below.", NUMBER(held - said));
}

/* What a process left behind, by type of pool; drivers are listed last. */
struct leftover {
	struct summary_held of[TYPE_END + 1];
	struct summary_held all;
	const struct summary_pool *largest; /* preferably not the driver's */
};

static void count_leftover(const struct summary_process *p, struct leftover *out)
{
	*out = (struct leftover){0};
	for (size_t i = 0; i < p->npools; i++) {
		const struct summary_pool *pool = p->pool_list[i];
		struct summary_held held = summary_alive(pool), best = {0};

		if (out->largest)
			best = summary_alive(out->largest);
		summary_held_add(&out->of[pool->type], &held);
		summary_held_add(&out->all, &held);
		if (!held.blocks)
			continue;
		bool driver = blocks_is_driver(pool->type);
		bool was_driver = out->largest && blocks_is_driver(out->largest->type);
		if (!out->largest || (was_driver && !driver) ||
		    (was_driver == driver && held.bytes > best.bytes))
			out->largest = pool;
	}
}

/* "3 blocks (768.00 KiB) of PTA and 2 blocks (40.00 MiB) of HAL"; returns how many kinds. */
static unsigned say_kinds(const struct leftover *left, struct buf *out)
{
	unsigned total = 0, said = 0;

	for (unsigned t = 0; t <= TYPE_END; t++)
		total += left->of[t].blocks != 0;
	for (unsigned pass = 0; pass < 2; pass++)
		for (unsigned t = 0; t <= TYPE_END; t++) {
			if (!left->of[t].blocks || blocks_is_driver(t) != (pass == 1))
				continue;
			say(out, "{}{} ({}) of {}",
			    TEXT(!said		     ? ""
				 : said + 1 == total ? " and "
						     : ", "),
			    COUNT_OF(left->of[t].blocks, "block"), BYTES(left->of[t].bytes),
			    POOL(t));
			said++;
		}
	return total;
}

static void say_origin(const struct summary *s, const struct leftover *left, unsigned kinds,
		       struct buf *out)
{
	uint64_t all = left->of[left->largest->type].bytes;
	size_t n;
	struct call_site *sites = summary_sites(s, left->largest, false, &n);

	n = call_sites_merge(sites, n, &s->stacks);
	if (n && sites[0].stack) {
		say(out, sites[0].bytes == all	    ? ", all of "
			 : sites[0].bytes > all / 2 ? ", most of "
						    : ", the largest part of ");
		if (kinds > 1)
			say(out, "the {} memory", POOL(left->largest->type));
		else
			say(out, "it");
		say(out, " from {}", WHERE(&s->stacks, sites[0].stack));
	}
	free(sites);
}

static const struct process_facts *facts_of(const struct summary *s, uint32_t pid)
{
	return s->facts ? processes_find(s->facts, pid) : NULL;
}

/* " were still allocated at the end of process 12", which it may not have come to. */
static void say_when_left(const struct summary *s, uint32_t pid, uint64_t blocks, struct buf *out)
{
	const struct process_facts *f = facts_of(s, pid);

	if (f && f->state == PROCESS_RUNNING) {
		say(out, " {} allocated now by ", TEXT(blocks == 1 ? "is" : "are"));
		processes_say(s->facts, pid, out);
		say(out, ", which is still running");
		return;
	}
	say(out, " {} still allocated ", TEXT(words_was(blocks)));
	say(out, f && process_signal(f) ? "when " : "at the end of ");
	if (f)
		processes_say(s->facts, pid, out);
	else
		say(out, "process {}", NUMBER(pid));
	if (f && process_signal(f))
		say(out, " was killed by SIG{}", TEXT(process_signal(f)));
}

/* A peak of what was seen is not the peak where much was not. */
static void say_uncovered(const struct summary *s, struct buf *out)
{
	if (s->facts && processes_coverage(s->facts) == COVERAGE_PARTIAL)
		say(out, " That is what was recorded: host memory that is not covered comes on "
			 "top, see below.");
}

static void say_alive(const struct summary *s, const struct summary_counts *c, struct buf *out)
{
	const struct summary_process *worst = NULL;
	struct leftover left, most = {0};
	size_t others = 0;

	for (size_t i = 0; i < s->nprocesses; i++) {
		count_leftover(s->processes[i], &left);
		others += left.all.blocks != 0;
		if (left.all.blocks && (!worst || left.all.bytes > most.all.bytes)) {
			worst = s->processes[i];
			most = left;
		}
	}
	if (!worst) {
		say(out, c->mallocs && !s->nameless
				 ? " Everything that was allocated was freed again."
				 : "");
		return;
	}
	say(out, " ");
	unsigned kinds = say_kinds(&most, out);
	say_when_left(s, worst->pid, most.all.blocks, out);
	say_origin(s, &most, kinds, out);
	say(out, ".");
	if (others == 2)
		say(out, " Another process left blocks behind, too.");
	else if (others > 2)
		say(out, " Another {} processes left blocks behind, too.", NUMBER(others - 1));
}

static void say_ooms(const struct summary *s, const struct summary_counts *c, struct buf *out)
{
	const struct summary_oom *first = &s->ooms[0];

	if (!c->ooms || !s->nooms)
		return;
	if (c->ooms == 1)
		say(out, " Memory ran out once, ");
	else
		say(out, " Memory ran out {}, first ", COUNT_OF(c->ooms, "time"));
	say(out, "{} after the start, when {} were asked of ",
	    DURATION(first->time_ns - s->first_ns), BYTES(first->requested_bytes));
	words_device(out, first->device, false);
	say(out, ".");
}

static void say_answer(struct summary *s, struct buf *out)
{
	struct summary_counts c;
	struct summary_loss lost;

	summary_count_all(s, &c);
	summary_loss_all(s, &lost);
	if (s->calls && !c.mallocs && !c.frees) {
		say_calls(s, out);
		say_why_none(s, out);
		if (!lost.events && !s->lost_more)
			return;
	} else if (!c.rows) {
		say(out, "There are no events in this recording.");
		say_why_none(s, out);
		return;
	} else {
		say_size(s, &c, out);
	}
	say_devices(s, out);
	say_uncovered(s, out);
	say_alive(s, &c, out);
	say_ooms(s, &c, out);
	if (lost.events)
		say(out, " {}{} {} lost, so all of this is incomplete.",
		    TEXT(s->lost_more ? "At least " : ""), COUNT_OF(lost.events, "event"),
		    TEXT(words_was(lost.events)));
	else if (s->lost_more)
		say(out, " Events may be missing.");
}

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
	uint64_t torn_down = 0;

	for (size_t i = 0; i < g->npools; i++)
		rows[i] = summary_pool_row(g->s, g->pools[i]);
	print(g, "\n");
	report_fields(&g->report, &table, rows, g->npools, sizeof(*rows));
	for (size_t i = 0; i < g->npools; i++)
		torn_down += rows[i].teardown_frees;
	free(rows);
	if (torn_down)
		print(g,
		      "What is left is counted when the program ends, before it frees the rest; "
		      "{} came after that.\n",
		      COUNT_OF(torn_down, "free"));
	if (g->pools_total > g->npools)
		print(g, "These are the {} pools with the highest peaks, of {} (JSON has all).\n",
		      NUMBER(g->npools), NUMBER(g->pools_total));
}

static uint64_t highest_pool_of(const struct summary_process *p)
{
	uint64_t highest = 0;

	for (size_t i = 0; i < p->npools; i++)
		if (p->pool_list[i]->bytes.peak_bytes > highest)
			highest = p->pool_list[i]->bytes.peak_bytes;
	return highest;
}

static int higher_process_first(const void *pa, const void *pb)
{
	const struct summary_process *a = *(const struct summary_process *const *)pa;
	const struct summary_process *b = *(const struct summary_process *const *)pb;

	return ORDER(highest_pool_of(b), highest_pool_of(a)) ?: ORDER(a->first_ns, b->first_ns);
}

/* In the order of their appearance; of many, those with the highest peaks. */
static void print_processes(const struct view *g)
{
	const struct summary_process **named = xcalloc(g->s->nprocesses + 1, sizeof(*named));
	size_t n = 0;

	for (size_t i = 0; i < g->s->nprocesses; i++) {
		const struct summary_process *p = g->s->processes[i];

		if (p->cmdline && *p->cmdline && p->seen.rows)
			named[n++] = p;
	}
	if (n > MAX_PROCESSES)
		SORT(named, n, higher_process_first);
	for (size_t i = 0; i < n && i < MAX_PROCESSES; i++)
		print(g, "{}Process {}: {}\n", TEXT(i ? "" : "\n"), NUMBER(named[i]->pid),
		      PRINTABLE(named[i]->cmdline));
	if (n > MAX_PROCESSES)
		print(g, "and {} more processes, with lower peaks\n", NUMBER(n - MAX_PROCESSES));
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
		say_calls(g->s, &t);
	print_paragraph(g, &t);
	const struct {
		uint64_t n;
		const char *one, *many;
	} words[] = {{c.operator_launches, "operator launch", "operator launches"},
		     {c.kernel_launches, "kernel launch", "kernel launches"},
		     {c.accesses, "access", "accesses"},
		     {c.steps, "step", "steps"},
		     {c.marks, "mark", "marks"},
		     {c.ranges, "range", "ranges"},
		     {c.snapshots, "snapshot", "snapshots"}};
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (words[i].n)
			say(&t, "{}{} {}", TEXT(t.len ? ", " : "Also recorded: "),
			    COUNT(words[i].n),
			    TEXT(words[i].n == 1 ? words[i].one : words[i].many));
	say(&t, t.len ? "." : "");
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
	say(&t, "Of device {} {}", DEVICE(pool->device), BYTES(u.used_bytes));
	if (u.total_bytes)
		say(&t, " of {}", BYTES(u.total_bytes));
	say(&t, " were in use {} after the start: the pool of process {} had {} (its tensors {}), ",
	    DURATION(u.time_ns > g->s->first_ns ? u.time_ns - g->s->first_ns : 0),
	    NUMBER(pool->process->pid), BYTES(u.pool_bytes), BYTES(u.tensor_bytes));
	if (u.has_others)
		say(&t, "its context and libraries {}, other processes and the driver {}.",
		    BYTES(u.process), BYTES(u.others));
	else
		say(&t,
		    "{} were its context and libraries, other processes and the driver (nobody "
		    "tells them apart here).",
		    BYTES(u.not_told));
	print_paragraph(g, &t);
}

static void print_ooms(const struct view *g)
{
	if (g->s->nooms)
		report_title(&g->report, "Out of memory");
	for (unsigned i = 0; i < g->s->nooms; i++) {
		const struct summary_oom *o = &g->s->ooms[i];

		print(g, "  {} after the start: process {} asked device {} for {}",
		      DURATION(o->time_ns - g->s->first_ns), NUMBER(o->pid), DEVICE(o->device),
		      BYTES(o->requested_bytes));
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
		say(&t, "Not one free was recorded (was it switched off with --events?), so every "
			"block counts as still allocated.\n");
	if (c.unmatched_frees)
		say(&t, "{} {} of blocks whose allocation was not recorded.\n",
		    COUNT_OF(c.unmatched_frees, "free"), TEXT(words_was(c.unmatched_frees)));
	if (c.unseen_frees)
		say(&t,
		    "{} {} freed unseen, for example while nothing was recorded; {} not among the "
		    "frees.\n",
		    COUNT_OF(c.unseen_frees, "block"), TEXT(words_was(c.unseen_frees)),
		    TEXT(c.unseen_frees == 1 ? "it is" : "they are"));
	if (g->s->nameless)
		say(&t,
		    "{} {} neither an id nor an address, so nobody knows whether they were "
		    "freed.\n",
		    COUNT_OF(g->s->nameless, "allocation"),
		    TEXT(g->s->nameless == 1 ? "has" : "have"));
	if (g->s->unordered)
		say(&t, "The rows were not in the order of time, so the peaks are not exact.\n");
	if (g->report.style->top && any_left && g->s->stacks.count < 2) {
		words_stacks_hint(&t, python);
		say(&t, "\n");
	}
	for (size_t i = 0; i < g->s->nnotes; i++)
		say(&t, "{}\n", PRINTABLE(g->s->notes[i]));
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
	struct summary_loss lost;

	summary_loss_all(g->s, &lost);
	print(g, "\n");
	bool more = g->s->lost_more;
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
	list_pools(&g);
	say_answer(s, &answer);
	report_paragraph(&g.report, 0, &answer);
	print_processes(&g);
	if (g.npools)
		print_table(&g);
	for (size_t i = 0; i < g.npools; i++)
		print_use(&g, g.pools[i]);
	summary_say_files(s, out);
	print_counts(&g);
	print_alive(&g);
	print_peak(&g);
	print_ooms(&g);
	print_facts(&g);
	print_remarks(&g);
	print_lost(&g);
	free(g.pools);
}
