/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Inefficient memory as text (what it costs, where it comes from, what to do about it) and as JSON;
 * inefficient.h names its keys.
 */
#include <stdio.h>
#include <stdlib.h>

#include "formats/json_value.h"
#include "memory/analysis/common/fields.h"
#include "memory/analysis/inefficient/inefficient_impl.h"

#define MAX_POOLS 40 /* listed; JSON has them all */

/* How a kind is spoken of. */
static const struct {
	const char *participle; /* … of it allocated too early */
	const char *heading;
	const char *advice;
	const char *before, *after; /* around the operators of an example */
	const char *none; /* what was not found */
} words[KINDS] = {
	[INEFFICIENT_EARLY] = {"allocated too early", "Allocated too early",
			       "Allocate these right before they are used for the first time.",
			       "allocated after", "first used by",
			       "allocated long before its first use"},
	[INEFFICIENT_LATE] =
		{"freed too late", "Freed too late",
		 "Free these right after their last use: drop the last reference (del) "
		 "there.",
		 "last used by", "freed after", "freed long after its last use"},
	[INEFFICIENT_IDLE] =
		{"left idle", "Left idle",
		 "Between their uses these could be freed and made anew, or be kept on "
		 "the host.",
		 "used by", "next used by", "left idle for most of its life"},
};

struct view {
	struct report report;
	const struct verdict *v;
};

static const struct stacks *verdict_stacks(const struct verdict *v)
{
	return &v->a->base.blocks->stacks;
}

/* --- the answer --- */

static bool has_several_processes(const struct verdict *v)
{
	for (size_t i = 1; i < v->npools; i++)
		if (v->pools[i].pool->process != v->pools[0].pool->process)
			return true;
	return false;
}

static const struct pool_waste *worst_pool(const struct verdict *v)
{
	const struct pool_waste *worst = &v->pools[0];

	for (size_t i = 1; i < v->npools; i++)
		if (v->pools[i].all.at_peak_bytes > worst->all.at_peak_bytes)
			worst = &v->pools[i];
	return worst;
}

static void describe_cost(const struct verdict *v, const struct pool_waste *w, struct buf *t)
{
	const char *between = ": ";

	add_text(t, "{} of the {}", BYTES(w->all.at_peak_bytes), BYTES(w->peak_bytes));
	buf_addf(t, " (%.1f %%)", 100.0 * (double)w->all.at_peak_bytes / (double)w->peak_bytes);
	add_text(t, " that the {} pool of device {}", POOL(w->pool->type),
		 DEVICE(w->pool->device->device));
	if (has_several_processes(v))
		add_text(t, " in process {}", NUMBER(w->pool->process->pid));
	add_text(t, " held at its peak was memory that nobody used at that moment");
	for (int k = 0; k < KINDS; k++) {
		if (!w->kinds[k].at_peak_bytes)
			continue;
		add_text(t, "{}{} {}", TEXT(between), BYTES(w->kinds[k].at_peak_bytes),
			 TEXT(words[k].participle));
		between = ", ";
	}
	add_text(t, ".");
}

static void describe_findings(const struct verdict *v, struct buf *t)
{
	const struct pool_waste *w = worst_pool(v);
	uint64_t elsewhere = v->all.at_peak_bytes - w->all.at_peak_bytes;

	if (!w->all.at_peak_bytes) {
		add_text(t,
			 "{} ({}) {}, but not while a pool was at its peak: the peak would be the "
			 "same "
			 "without this waste.",
			 COUNT_OF(v->all.blocks, "block"), BYTES(v->all.bytes),
			 TEXT(v->all.blocks == 1 ? "was held while nobody used it"
						 : "were held while nobody used them"));
		return;
	}
	describe_cost(v, w, t);
	if (elsewhere)
		add_text(t, " In other pools it was {}.", BYTES(elsewhere));
	if (v->all.bytes > v->all.at_peak_bytes)
		add_text(t, " Another {} lay unused at other times, which does not raise the peak.",
			 BYTES(v->all.bytes - v->all.at_peak_bytes));
}

static void describe_nothing_found(const struct verdict *v, struct buf *t)
{
	const struct inefficient_options *o = &v->a->options;
	unsigned left = o->kinds & INEFFICIENT_ALL;
	bool one = v->a->marked == 1;

	add_text(t, "No inefficient memory: of {} none", COUNT_OF(v->blocks, "block"));
	/* Only of what was looked for: --type and --mem-size leave the rest out. */
	if (o->min_bytes)
		add_text(t, " of {} or more", BYTES(o->min_bytes));
	add_text(t, " was ");
	for (unsigned kind = 0; kind < INEFFICIENT_KINDS; kind++) {
		if (!(left & 1u << kind))
			continue;
		left &= ~(1u << kind);
		add_text(t, "{}{}", TEXT(words[kind].none),
			 TEXT(!left		  ? "."
			      : left & (left - 1) ? ", "
						  : ", or "));
	}
	if (v->a->marked)
		add_text(t,
			 " {} {} one of the plain rules and {} marked in the rows, but waited only "
			 "for "
			 "a moment, for a small part of a long life, or for the first step.",
			 COUNT_OF(v->a->marked, "block"), TEXT(one ? "matches" : "match"),
			 TEXT(one ? "is" : "are"));
}

/* Where the most costly ones of each kind come from. */
static void describe_largest(const struct verdict *v, struct buf *t)
{
	unsigned shown = 0;

	for (size_t i = 0; i < v->sites.n; i++) {
		const struct site *s = &v->sites.list[i];

		if (shown & 1u << s->kind || !s->stack)
			continue;
		add_text(t, "{} {} in {}", TEXT(shown ? "," : " The largest part:"),
			 TEXT(words[s->kind].participle), WHERE(verdict_stacks(v), s->stack));
		shown |= 1u << s->kind;
	}
	add_text(t, shown ? "." : "");
}

static void describe_answer(const struct verdict *v, struct buf *t)
{
	if (!v->npools)
		add_text(t, "Nothing to judge: no memory of PyTorch's or ATB's pool was recorded.");
	else if (!v->accesses && v->a->accesses_asked)
		add_text(
			t,
			"Whether memory was used well is unknown: the job announced no operator "
			"that used it, though that was recorded. PyTorch's operators are announced "
			"in a Python process (docs/inefficient.md), others with mstx.");
	else if (!v->accesses)
		add_text(
			t,
			"Whether memory was used well is unknown: no operator reported that it "
			"used "
			"the memory. Record the job with --analysis=inefficient and name the "
			"recording, or with --events=alloc,free,launch,access to have the accesses "
			"in dump files, too. If the job announces no operators, nothing can be "
			"said "
			"about its memory.");
	else if (!v->sites.n)
		describe_nothing_found(v, t);
	else
		describe_findings(v, t);
	if (v->accesses && v->sites.n)
		describe_largest(v, t);
}

/* --- pools: a table, and JSON --- */

#define WASTE(key_, title_, member_)                                                               \
	COLUMN(key_, title_, FIELD_BYTES, struct pool_waste, member_.at_peak_bytes)

static const struct field pool_fields[] = {
	COLUMN("pool", "Process\0Device\0Pool", FIELD_IN_POOL, struct pool_waste, pool),
	FIELDS(struct pool_waste, command, blocks),
	COLUMN("peak_bytes", "Peak", FIELD_BYTES, struct pool_waste, peak_bytes),
	FIELD("peak_time_ns", struct pool_waste, peak_ns),
	WASTE("unused_at_peak_bytes", "Unused", all),
	WASTE(NULL, "Too early", kinds[INEFFICIENT_EARLY]),
	WASTE(NULL, "Too late", kinds[INEFFICIENT_LATE]),
	WASTE(NULL, "Idle", kinds[INEFFICIENT_IDLE]),
	{0},
};

static void print_table(const struct view *g)
{
	size_t n = g->v->npools < MAX_POOLS ? g->v->npools : MAX_POOLS;

	print(g, "\n");
	report_fields(&g->report, &(struct field_table){pool_fields, 3, 0, NULL}, g->v->pools, n,
		      sizeof(*g->v->pools));
	if (g->v->npools > n)
		print(g, "and {} more pools (JSON has all)\n", NUMBER(g->v->npools - n));
}

/* --- call sites --- */

static void print_waste(const struct view *g, const struct waste *w)
{
	print(g, "{}", HELD(w->bytes, w->blocks));
	if (w->at_peak_bytes == w->bytes)
		print(g, ", all of it at the peak");
	else if (w->at_peak_bytes)
		print(g, ", {} of it at the peak", BYTES(w->at_peak_bytes));
	else
		print(g, ", not at the peak");
}

static const char *op_name(const struct view *g, uint32_t name)
{
	const char *text = inefficient_name_text(g->v->a, name);

	return text ? text : "no known operator";
}

static void print_example(const struct view *g, const struct site *s)
{
	const struct example *e = &s->examples[0];

	if (e->key >> 63)
		buf_addf(g->report.out, "        block at 0x%016llx", (unsigned long long)e->ptr);
	else
		print(g, "        block {}", NUMBER(e->key));
	print(g, " ({}): {} {}, {} {} {} later\n", BYTES(e->bytes), TEXT(words[s->kind].before),
	      PRINTABLE(op_name(g, e->wait.before)), TEXT(words[s->kind].after),
	      PRINTABLE(op_name(g, e->wait.after)), COUNT_OF(e->wait.calls, "call"));
}

static void print_site(const struct view *g, const struct site *s)
{
	struct waste w = inefficient_site_waste(s);

	print(g, "    ");
	report_ink(&g->report, INK_WARNING);
	print_waste(g, &w);
	report_ink(&g->report, INK_PLAIN);
	if (g->v->npools > 1)
		print(g, ", {} of device {} in process {}", POOL(s->pool->type),
		      DEVICE(s->pool->device->device), NUMBER(s->pool->process->pid));
	print(g, s->stack ? "\n" : ", no call stack recorded\n");
	report_stack(&g->report, 8, stacks_get(verdict_stacks(g->v), s->stack));
	print_example(g, s);
}

static void print_kind(const struct view *g, int kind)
{
	const struct waste *w = &g->v->kinds[kind];
	struct waste rest = {0};
	size_t shown = 0, more = 0;

	if (!w->blocks)
		return;
	print(g, "\n");
	report_ink(&g->report, INK_HEADING);
	print(g, "{}: ", TEXT(words[kind].heading));
	print_waste(g, w);
	report_ink(&g->report, INK_PLAIN);
	print(g, "\n  {}\n", TEXT(words[kind].advice));
	for (size_t i = 0; i < g->v->sites.n; i++) {
		const struct site *s = &g->v->sites.list[i];

		if (s->kind != (enum inefficient_kind)kind)
			continue;
		if (shown < g->report.style->top) {
			print_site(g, s);
			shown++;
			continue;
		}
		more++;
		inefficient_waste_add(&rest, s);
	}
	if (!more || !g->report.style->top)
		return;
	print(g, "    ");
	print_waste(g, &rest);
	print(g, ", from {}\n", COUNT_OF(more, "more place"));
}

/* --- what is not known --- */

static void print_remarks(const struct view *g)
{
	const struct blocks *b = g->v->a->base.blocks;
	uint64_t blocks = 0, bytes = 0;
	bool python = false;
	struct buf t = {0};

	for (size_t i = 0; i < g->v->npools; i++) {
		blocks += g->v->pools[i].unseen.blocks;
		bytes += g->v->pools[i].unseen.bytes;
	}
	if (blocks)
		add_text(&t,
			 "{} ({}) {} not accessed by any operator that was recorded, so nothing is "
			 "said about {}.\n",
			 COUNT_OF(blocks, "block"), BYTES(bytes), TEXT(words_was(blocks)),
			 TEXT(blocks == 1 ? "it" : "them"));
	if (!g->v->a->operators)
		add_text(&t,
			 "No operators were recorded, so each access counts as a call of its own; "
			 "{}.\n",
			 TEXT(g->v->a->operators_asked ? "the job announced none"
						       : "--events=launch records them"));
	if (g->v->sites.n && verdict_stacks(g->v)->count < 2) {
		for (size_t i = 0; i < b->nprocesses; i++)
			python |= words_is_python(b->processes[i]->command);
		words_stacks_hint(&t, python);
		add_text(&t, "\n");
	}
	report_remarks(&g->report, &t);
}

void inefficient_text(struct analysis *base, const struct analysis_style *style, struct buf *out)
{
	struct verdict v;
	struct view g = {report_begin(style, out), &v};
	struct buf answer = {0};

	inefficient_verdict((struct inefficient *)base, &v);
	if (v.sites.n || !style->console) {
		describe_answer(&v, &answer);
		report_paragraph(&g.report, 0, &answer);
		if (v.npools > 1 && v.sites.n)
			print_table(&g);
		for (int k = 0; k < KINDS; k++)
			print_kind(&g, k);
		if (v.accesses && !style->console)
			print_remarks(&g);
	}
	inefficient_verdict_release(&v);
}

/* --- JSON --- */

static const struct field waste_fields[] = {
	FIELDS(struct waste, blocks, bytes, at_peak_bytes),
	{0},
};
static const struct field unseen_fields[] = {FIELDS(struct waste, blocks, bytes), {0}};

static json_t *pool_value(const struct pool_waste *w)
{
	const struct clock *c = w->pool->own;
	json_t *o = fields_object(pool_fields, w, NULL), *kinds = json_object();

	json_object_set_new(o, "never_accessed", fields_object(unseen_fields, &w->unseen, NULL));
	for (int k = 0; k < KINDS; k++) {
		json_t *kind = fields_object(waste_fields, &w->kinds[k], NULL);

		put_number(kind, "marked_blocks", c->marked_blocks[k]);
		put_number(kind, "marked_bytes", c->marked_bytes[k]);
		json_object_set_new(kinds, inefficient_kind_name((enum inefficient_kind)k), kind);
	}
	json_object_set_new(o, "kinds", kinds);
	return o;
}

static json_t *example_value(const struct verdict *v, const struct example *e)
{
	json_t *o = json_object();

	put_known(o, "allocation_id", !(e->key >> 63), e->key);
	put_address(o, "address", e->ptr);
	put_number(o, "bytes", e->bytes);
	put_number(o, "time_ns", e->time_ns);
	put_number(o, "calls", e->wait.calls);
	put_text(o, "before", inefficient_name_text(v->a, e->wait.before));
	put_text(o, "after", inefficient_name_text(v->a, e->wait.after));
	return o;
}

static json_t *site_value(const struct verdict *v, const struct site *s)
{
	json_t *o = json_object();
	struct waste w = inefficient_site_waste(s);

	put_text(o, "kind", inefficient_kind_name(s->kind));
	put_in_pool(o, s->pool);
	fields_put(o, waste_fields, &w, NULL);
	put_number(o, "longest_calls", s->longest_calls);
	put_stack(o, verdict_stacks(v), s->stack);
	PUT_LIST(o, "examples", s->blocks < EXAMPLES ? s->blocks : EXAMPLES,
		 example_value(v, &s->examples[i]));
	return o;
}

json_t *inefficient_json(struct analysis *base, unsigned top)
{
	struct inefficient *a = (struct inefficient *)base;
	json_t *o = json_object(), *types = json_array();
	struct verdict v;

	inefficient_verdict(a, &v);
	put_bool(o, "judged", v.accesses != 0);
	put_number(o, "rows", a->base.blocks->rows);
	put_number(o, "accesses", v.accesses);
	put_number(o, "operators", a->operators);
	put_number(o, "blocks", v.blocks);
	put_number(o, "idle_calls", a->options.idle_calls);
	put_number(o, "min_bytes", a->options.min_bytes);
	for (unsigned k = 0; k < KINDS; k++)
		if (a->options.kinds >> k & 1)
			json_array_append_new(types, json_string(inefficient_kind_name(k)));
	json_object_set_new(o, "types", types);
	PUT_LIST(o, "pools", v.npools, pool_value(&v.pools[i]));
	put_number(o, "places_total", v.sites.n);
	PUT_LIST(o, "places", v.sites.n < top ? v.sites.n : top, site_value(&v, &v.sites.list[i]));
	inefficient_verdict_release(&v);
	return o;
}
