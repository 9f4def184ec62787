/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Memory that ran out, as text (the verdict first, then what it stands on) and as JSON; oom.h names
 * its keys. */
#include "memory/analysis/oom/oom_impl.h"

#include <stdio.h>
#include <string.h>

#include "formats/json_value.h"
#include "memory/analysis/common/block_steps.h"
#include "memory/analysis/common/fields.h"
#include "wire/record.h"

#define INDENT 2

struct view {
	struct report report;
	const struct oom *o;
};

static uint64_t after_start(const struct oom *o, const struct oom_incident *i)
{
	return oom_less(i->first_ns, o->base.blocks->first_ns);
}

/* --- the answer --- */

static void describe_times(struct buf *out, uint64_t n, const char *after)
{
	if (n == 1)
		add_text(out, "once{}", TEXT(after));
	else
		add_text(out, "{}{}", COUNT_OF(n, "time"), TEXT(after));
}

/* What the first of them was about. */
static void describe_first(const struct view *g, struct buf *t)
{
	size_t i = 0;

	while (i < g->o->nincidents && g->o->incidents[i]->granted)
		i++;
	if (i == g->o->nincidents)
		return;
	const struct oom_incident *inc = g->o->incidents[i];
	struct oom_answer a = oom_answer(g->o, inc);
	add_text(t, " Process {} asked for ", NUMBER(inc->process->pid));
	if (oom_is_context(inc))
		add_text(t, "a CUDA context");
	else
		add_text(t, "{}", BYTES(inc->requested));
	if (inc->stack)
		add_text(t, " in {}", WHERE(oom_stacks(g->o), inc->stack));
	if (inc->step)
		add_text(t, ", in step {}", NUMBER(inc->step));
	add_text(t, ": ");
	oom_reason(g->o, inc, &a, t);
}

/* A killed process was refused nothing: it touched memory that its group did not have. */
static void describe_group_kills(const struct oom *o, struct buf *t)
{
	const struct processes *ps = o->base.processes;
	size_t n = oom_group_kills(o), i = 0;

	while (!ps->list[i].group_killed)
		i++;
	const struct process_facts *p = &ps->list[i];
	add_text(t, "the kernel killed ");
	processes_describe(ps, p->pid, t);
	add_text(t, " because its control group had no more memory");
	if (p->group_limit && p->group_limit != USAGE_UNKNOWN)
		add_text(t, " than {}", BYTES(p->group_limit));
	if (p->samples)
		add_text(t, "; {} of it were in memory at the last sample, recorded blocks held {}",
			 BYTES(p->last.usage.rss_bytes), BYTES(p->last.blocks_bytes));
	add_text(t, ".");
	if (n > 1)
		add_text(t, " {} more processes were killed so.", NUMBER(n - 1));
}

static void print_answer(const struct view *g)
{
	uint64_t by_verdict[OOM_VERDICTS] = {0}, granted = 0, n = 0, host = 0;
	const char *between = "";
	struct buf t = {0};

	for (size_t i = 0; i < g->o->nincidents; i++) {
		const struct oom_incident *inc = g->o->incidents[i];
		if (inc->granted)
			granted++;
		else
			by_verdict[oom_answer(g->o, inc).verdict]++, n++;
		host += !inc->granted && inc->device == DEV_HOST;
	}
	if (n) {
		add_text(&t, "{} {} ",
			 TEXT(host == n ? "Host memory"
			      : host	? "Memory"
					: "Device memory"),
			 TEXT(by_verdict[OOM_OVERSIZED] == n ? "was refused" : "ran out"));
		describe_times(&t, n + g->o->dropped, ":");
		for (unsigned v = 0; v < OOM_VERDICTS; v++) {
			if (!by_verdict[v])
				continue;
			add_text(&t, "{} {}{}", TEXT(between), TEXT(oom_verdict_name(v)),
				 TEXT(by_verdict[v] < n ? " " : ""));
			if (by_verdict[v] < n)
				describe_times(&t, by_verdict[v], "");
			between = ",";
		}
		add_text(&t, ".");
		describe_first(g, &t);
	} else if (oom_group_kills(g->o)) {
		add_text(&t,
			 "No request for memory was refused, but memory ran out all the same: ");
		describe_group_kills(g->o, &t);
	} else {
		add_text(&t, "No request for memory was refused, as far as the data shows");
		if (granted)
			add_text(&t,
				 ", but came close: {} {} granted only after a pool had given "
				 "memory "
				 "back",
				 COUNT_OF(granted, "request"), TEXT(words_was(granted)));
		add_text(&t, ".");
	}
	if (n && oom_group_kills(g->o)) {
		add_text(&t, " Also, ");
		describe_group_kills(g->o, &t);
	}
	report_ink(&g->report, n ? INK_BAD : INK_HEADING);
	report_paragraph(&g->report, 0, &t);
	report_ink(&g->report, INK_PLAIN);
}

/* --- one incident --- */

static void print_request(const struct view *g, const struct oom_incident *i, size_t number)
{
	struct buf t = {0};

	add_text(&t, "{}. Process {} asked ", NUMBER(number), NUMBER(i->process->pid));
	if (oom_is_context(i))
		add_text(&t, "device {} for a context", DEVICE(i->device));
	else if (i->device == DEV_HOST)
		add_text(&t, "for {} of host memory", BYTES(i->requested));
	else
		add_text(&t, "device {} for {}", DEVICE(i->device), BYTES(i->requested));
	if (i->function[0])
		add_text(&t, " ({})", PRINTABLE(i->function));
	add_text(&t, " {} after the start", DURATION(after_start(g->o, i)));
	if (i->step)
		add_text(&t, ", in step {}", NUMBER(i->step));
	if (i->count > 1)
		add_text(&t, ", {}", COUNT_OF(i->count, "time"));
	add_text(&t, ".");
	if (i->granted)
		add_text(
			&t,
			" It was granted in the end, after {} had been given back: the job did not "
			"notice.",
			BYTES(i->given_back));
	print(g, "\n");
	report_ink(&g->report, INK_HEADING);
	report_paragraph(&g->report, 0, &t);
	report_ink(&g->report, INK_PLAIN);
}

static void print_stack(const struct view *g, uint32_t stack)
{
	report_stack(&g->report, INDENT + 2, stacks_get(oom_stacks(g->o), stack));
}

static void print_verdict(const struct view *g, const struct oom_incident *i,
			  const struct oom_answer *a)
{
	struct buf t = {0};

	add_text(&t, "Verdict: {}: ", TEXT(oom_verdict_name(a->verdict)));
	oom_reason(g->o, i, a, &t);
	report_ink(&g->report, INK_WARNING);
	report_paragraph(&g->report, INDENT, &t);
	report_ink(&g->report, INK_PLAIN);
	if (a->verdict == OOM_LEAK)
		print_stack(g, i->leak.stack);
	add_text(&t, "What to do: ");
	oom_advice(g->o, i, a, &t);
	report_paragraph(&g->report, INDENT, &t);
}

static void print_device(const struct view *g, const struct oom_incident *i,
			 const struct oom_answer *a)
{
	const struct {
		bool known;
		uint64_t bytes;
		const char *what;
	} parts[] = {
		{a->has_total, a->total_bytes, a->limited || i->limit ? "allowed" : "in all"},
		{i->limit && i->space_bytes, i->space_bytes, "in use"},
		{i->has_blocks, i->own_bytes, "held by this process"},
		{i->has_outside && i->kept_bytes, i->kept_bytes, "kept by pools of the driver"},
		{i->has_outside, i->outside_bytes, "by its context and libraries"},
		{i->has_others, i->others_bytes, "by others and the driver"},
		{i->has_others && i->job_bytes, i->job_bytes, "of it by processes of this job"},
		{a->has_free, a->free_bytes, "free"},
	};
	bool any = false;

	if (!i->has_blocks && !a->has_total)
		return;
	print(g, "  Device {}:", DEVICE(i->device));
	for (size_t k = 0; k < sizeof(parts) / sizeof(parts[0]); k++) {
		if (!parts[k].known)
			continue;
		print(g, "{} {} {}", TEXT(any ? "," : ""), BYTES(parts[k].bytes),
		      TEXT(parts[k].what));
		any = true;
	}
	print(g, "\n");
}

/* The pools at that moment: a table, and JSON. */
static const struct field pool_fields[] = {
	COLUMN("pool", "Pool", FIELD_POOL, struct oom_pool, type),
	COLUMN("reserved_bytes", "Reserved", FIELD_BYTES, struct oom_pool, reserved),
	COLUMN("allocated_bytes", "Allocated", FIELD_BYTES, struct oom_pool, allocated),
	FIELD("blocks", struct oom_pool, blocks),
	KNOWN("free_bytes", "Free inside", FIELD_BYTES, struct oom_pool, free_bytes, mapped),
	KNOWN("free_pieces", "Pieces", FIELD_U64, struct oom_pool, pieces, mapped),
	KNOWN("largest_free_bytes", "Largest free", FIELD_BYTES, struct oom_pool, largest_free,
	      mapped),
	{0},
};

static void print_pools(const struct view *g, const struct oom_incident *i)
{
	static const struct field_table table = {pool_fields, 1, INDENT, "?"};

	if (i->npools)
		report_fields(&g->report, &table, i->pools, i->npools, sizeof(i->pools[0]));
}

static void print_leak(const struct view *g, const struct oom_incident *i,
		       const struct oom_answer *a)
{
	struct buf t = {0};

	if (a->verdict == OOM_LEAK || !i->leak.bytes)
		return;
	add_text(&t,
		 "It also looks as if {} of steps {} to {} had leaked, too little to explain this.",
		 BYTES(i->leak.bytes), NUMBER(i->leak.first_step), NUMBER(i->leak.last_step));
	report_paragraph(&g->report, INDENT, &t);
}

static void print_block(const struct view *g, const struct oom_incident *i,
			const struct oom_block *b)
{
	struct buf size = {0}, age = {0};

	add_text(&size, "{}", BYTES(b->bytes));
	add_text(&age, "{}", DURATION(oom_less(i->last_ns, b->time_ns)));
	buf_addf(g->report.out, "%*s%12s  %-13s %12s before", INDENT + 2, "", buf_str(&size),
		 words_pool(b->type), buf_str(&age));
	if (b->step)
		print(g, ", step {}", NUMBER(b->step));
	if (b->owner)
		print(g, ", {}",
		      PRINTABLE(text_numbers_text(&g->o->base.blocks->owners, b->owner)));
	if (b->stack)
		print(g, ", {}", WHERE(oom_stacks(g->o), b->stack));
	print(g, "\n");
	buf_release(&size);
	buf_release(&age);
}

static void print_blocks(const struct view *g, const struct oom_incident *i, const char *title,
			 const struct oom_list *l)
{
	if (!l->n || !g->report.style->top)
		return;
	print(g, "  {}\n", TEXT(title));
	for (size_t k = 0; k < l->n && k < g->report.style->top; k++)
		print_block(g, i, &l->list[k]);
}

static void print_incident(const struct view *g, const struct oom_incident *i, size_t number)
{
	struct oom_answer a = oom_answer(g->o, i);

	print_request(g, i, number);
	print_stack(g, i->stack);
	if (!i->granted)
		print_verdict(g, i, &a);
	print_device(g, i, &a);
	print_pools(g, i);
	if (i->granted)
		return;
	print_leak(g, i, &a);
	print_blocks(g, i, "Largest blocks:", &i->largest);
	print_blocks(g, i, "Most recent blocks:", &i->recent);
}

void oom_text(struct analysis *a, const struct analysis_style *style, struct buf *out)
{
	struct view g = {report_begin(style, out), (struct oom *)a};
	size_t limit = style->top ? style->top : 1, shown = 0, left = g.o->dropped;

	if (style->console && !a->ops->findings(a))
		return;
	print_answer(&g);
	if (!g.o->requests && !style->console && !(a->processes && a->processes->recording))
		add_text(out,
			 "A dump file shows whether memory ran out only if the job was recorded "
			 "with --analysis=oom.\n");
	for (size_t i = 0; i < g.o->nincidents; i++) {
		if (shown < limit && (!style->console || !g.o->incidents[i]->granted))
			print_incident(&g, g.o->incidents[i], ++shown);
		else
			left++;
	}
	if (left && !style->console)
		add_text(out, "\nand {} more (JSON has {})\n", NUMBER(left),
			 TEXT(g.o->dropped ? "most of them" : "all of them"));
}

/* --- JSON --- */

static json_t *blocks_value(const struct oom *o, const struct oom_list *l, unsigned top)
{
	static const struct field fields[] = {
		FIELD_AS("pool", FIELD_POOL, struct oom_block, type),
		FIELD_AS("address", FIELD_ADDRESS, struct oom_block, ptr),
		FIELDS(struct oom_block, bytes, time_ns, step),
		FIELD_AS("where", FIELD_WHERE, struct oom_block, stack),
		{0},
	};
	json_t *list = json_array();

	for (size_t i = 0; i < l->n && i < top; i++) {
		const char *owner = text_numbers_text(&o->base.blocks->owners, l->list[i].owner);
		json_t *item = fields_object(fields, &l->list[i], oom_stacks(o));

		put_text(item, "owner", *owner ? owner : NULL);
		json_array_append_new(list, item);
	}
	return list;
}

static json_t *device_memory_value(const struct oom_incident *i, const struct oom_answer *a)
{
	json_t *o = json_object();

	put_known(o, "total_bytes", a->has_total, a->total_bytes);
	put_known(o, "process_bytes", i->has_blocks, i->own_bytes);
	put_known(o, "kept_bytes", i->has_outside, i->kept_bytes);
	put_known(o, "outside_bytes", i->has_outside, i->outside_bytes);
	put_known(o, "others_bytes", i->has_others, i->others_bytes);
	put_known(o, "job_bytes", i->has_others && i->job_bytes, i->job_bytes);
	put_known(o, "limit_bytes", i->limit || a->limited, a->limited ? a->total_bytes : i->limit);
	put_known(o, "space_bytes", i->space_bytes != 0, i->space_bytes);
	put_known(o, "machine_bytes", i->machine_bytes != 0, i->machine_bytes);
	put_known(o, "free_bytes", a->has_free, a->free_bytes);
	return o;
}

static json_t *incident_value(const struct oom *o, const struct oom_incident *i, unsigned top)
{
	static const struct field leak_fields[] = {
		FIELDS(struct oom_leak, bytes, blocks),
		FIELD("places", struct oom_leak, sites),
		FIELDS(struct oom_leak, first_step, last_step),
		FIELD_AS("where", FIELD_WHERE, struct oom_leak, stack),
		{0},
	};
	struct oom_answer a = oom_answer(o, i);
	struct buf reason = {0}, advice = {0};
	json_t *v = json_object();

	put_number(v, "pid", i->process->pid);
	put_text(v, "command", i->process->command);
	put_device(v, i->device);
	put_number(v, "tid", i->tid);
	put_number(v, "time_ns", i->first_ns);
	put_number(v, "after_ns", after_start(o, i));
	put_number(v, "step", i->step);
	put_number(v, "count", i->count);
	put_bool(v, "granted_later", i->granted);
	put_number(v, "requested_bytes", i->requested);
	put_text(v, "function", i->function);
	put_stack(v, oom_stacks(o), i->stack);
	oom_reason(o, i, &a, &reason);
	oom_advice(o, i, &a, &advice);
	put_text(v, "verdict", oom_verdict_name(a.verdict));
	put_text(v, "reason", buf_str(&reason));
	put_text(v, "advice", buf_str(&advice));
	put_bool(v, "own_view_only", !a.has_free);
	json_object_set_new(v, "device_memory", device_memory_value(i, &a));
	json_object_set_new(
		v, "pools",
		fields_list(pool_fields, i->pools, i->npools, sizeof(i->pools[0]), NULL));
	json_object_set_new(v, "leak", fields_object(leak_fields, &i->leak, oom_stacks(o)));
	json_object_set_new(v, "largest", blocks_value(o, &i->largest, top));
	json_object_set_new(v, "recent", blocks_value(o, &i->recent, top));
	buf_release(&reason);
	buf_release(&advice);
	return v;
}

json_t *oom_json(struct analysis *a, unsigned top)
{
	const struct oom *o = (const struct oom *)a;
	json_t *root = json_object();

	put_number(root, "requests", o->requests);
	json_object_set_new(root, "steps", steps_json(o->base.blocks));
	PUT_LIST(root, "incidents", o->nincidents, incident_value(o, o->incidents[i], top));
	return root;
}
