/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What was found out about watched memory, as text and as JSON. */
#include "memory/analysis/watch/watch_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/json_value.h"
#include "memory/analysis/common/fields.h"

struct view {
	struct report report;
	struct watch *w;
};

/* "aten.mul_.Scalar #2" */
static void add_op(struct buf *out, const char *before, const char *op, uint32_t call)
{
	add_text(out, "{}{}", TEXT(before), TEXT(op));
	if (call)
		add_text(out, " #{}", NUMBER(call));
}

static const char *pool_text(const struct watch_finding *f)
{
	return f->pool == TYPE_END ? NULL : words_pool(f->pool);
}

/* "Block 0x… (8192 bytes, output 0 of aten.mul_.Scalar #1)", or "… named 'w')" */
static void add_target(struct buf *out, const char *before, const struct watch_target *t)
{
	if (t->addr)
		buf_addf(out, "%s 0x%llx (%llu bytes, ", before, (unsigned long long)t->addr,
			 (unsigned long long)t->size_bytes);
	else
		add_text(out, "{} (", TEXT(before));
	if (t->output == WATCH_NO_OUTPUT) {
		add_text(out, "named '{}')", TEXT(t->name));
	} else {
		add_text(out, "output {} of ", NUMBER(t->output));
		add_op(out, "", t->name, t->call);
		add_text(out, ")");
	}
}

static bool is_one_operator(const struct watch_finding *f)
{
	return !f->from.after && f->to.after && f->from.tid == f->to.tid &&
	       f->from.call == f->to.call && !strcmp(f->from.op, f->to.op);
}

/* When it happened, within one operator or between two edges, and what that means. */
static void add_change(struct buf *out, const struct watch_finding *f, enum watch_verdict v)
{
	add_target(out, f->target.addr ? "Block" : "A block", &f->target);
	if (is_one_operator(f)) {
		add_op(out, " changed during operator ", f->to.op, f->to.call);
	} else if (f->from.after && !f->to.after) {
		add_op(out, " changed between operator ", f->from.op, f->from.call);
		add_op(out, " and operator ", f->to.op, f->to.call);
	} else {
		add_op(out,
		       f->from.after ? " changed between the end of operator "
				     : " changed between the beginning of operator ",
		       f->from.op, f->from.call);
		add_op(out,
		       f->to.after ? " and the end of operator "
				   : " and the beginning of operator ",
		       f->to.op, f->to.call);
	}
	if (f->inside && strcmp(f->inside, f->to.op) != 0)
		add_text(out, " (inside operator {})", TEXT(f->inside));
	add_text(out, v == WATCH_UNJUDGED  ? "."
		      : is_one_operator(f) ? ", which should not write it."
					   : ", while no operator that may write it ran.");
}

static void add_neighbour(struct buf *out, const struct watch_finding *f)
{
	const struct watch_range *r = &f->neighbour;
	const struct watch_target *t = &f->target;
	bool before = r->addr < t->addr;
	const char *side = before ? "before" : "behind";
	uint64_t gap =
		before ? t->addr - (r->addr + r->size_bytes) : r->addr - (t->addr + t->size_bytes);

	add_text(out, " It writes the {} bytes ", NUMBER(r->size_bytes));
	if (gap)
		add_text(out, "that {} {} bytes {} it", TEXT(before ? "end" : "begin"), NUMBER(gap),
			 TEXT(side));
	else
		add_text(out, "right {} it", TEXT(side));
	add_text(out, ": an {} is likely.", TEXT(before ? "overrun" : "underrun"));
}

/* The lines of the user's own code: of the operators, of the block. */
static void add_lines(struct buf *out, const struct watch *w, const struct watch_finding *f)
{
	bool one = is_one_operator(f);

	if (one && f->to.stack)
		add_text(out, "operator called by {}", WHERE(&w->stacks, f->to.stack));
	if (!one && f->from.stack)
		add_text(out, "after {}", WHERE(&w->stacks, f->from.stack));
	if (!one && f->to.stack)
		add_text(out, "{}before the end of {}", TEXT(out->len ? ", " : ""),
			 WHERE(&w->stacks, f->to.stack));
	if (f->stack)
		add_text(out, "{}block allocated by {}", TEXT(out->len ? "; " : ""),
			 WHERE(&w->stacks, f->stack));
}

static void print_finding(const struct view *g, const struct watch_finding *f, enum watch_verdict v)
{
	struct buf text = {0};

	add_change(&text, f, v);
	if (f->has_neighbour)
		add_neighbour(&text, f);
	report_paragraph(&g->report, 0, &text);
	add_lines(&text, g->w, f);
	if (text.len)
		report_paragraph(&g->report, 2, &text);
	if (f->target.pid)
		add_text(&text, "process {}, device {}; ", NUMBER(f->target.pid),
			 DEVICE(f->target.device));
	if (f->allocation)
		add_text(&text, "allocation {}{}{}; ", NUMBER(f->allocation),
			 TEXT(pool_text(f) ? " of " : ""), TEXT(pool_text(f) ? pool_text(f) : ""));
	buf_addf(&text, "checksum %016llx, then %016llx", (unsigned long long)f->before,
		 (unsigned long long)f->after);
	if (f->missed)
		add_text(&text, "; {} looks in between are missing", NUMBER(f->missed));
	report_paragraph(&g->report, 2, &text);
}

static void print_list(const struct view *g, enum watch_verdict v, unsigned top)
{
	unsigned n = 0;

	for (size_t i = 0; i < g->w->nfindings; i++) {
		if (watch_verdict_of(g->w, &g->w->findings[i]) != v)
			continue;
		if (n == top)
			break;
		print(g, n++ ? "\n" : ""); /* the first one belongs to the answer */
		print_finding(g, &g->w->findings[i], v);
	}
	size_t all = watch_count_of(g->w, v);
	if (all > top)
		print(g, "\n… and {} more.\n", NUMBER(all - top));
}

static void print_answer(const struct view *g)
{
	struct watch *w = g->w;
	size_t bad = watch_count_of(w, WATCH_CORRUPTED), open = watch_count_of(w, WATCH_UNJUDGED);

	if (!w->samples) {
		report_inked(&g->report, INK_WARNING, "No memory was watched.\n");
		print(g, "Either the job was recorded without --watch and the program itself asked "
			 "for no block to be watched, or the operator with which --watch begins "
			 "never ran.\n");
		return;
	}
	if (bad)
		report_inked(&g->report, INK_BAD, "{} of memory found.",
			     COUNT_OF(bad, "corruption"));
	else if (open)
		report_inked(&g->report, INK_WARNING, "{} of watched memory found.",
			     COUNT_OF(open, "change"));
	else
		report_inked(&g->report, w->nended ? INK_WARNING : INK_GOOD,
			     w->nended ? "No corruption of what was watched, as long as it was "
					 "watched."
				       : "No corruption of what was watched.");
	print(g, "\n");
}

/* "The watch of block 0x… (…) ended after operator aten.add.Tensor #50: it was for 100 looks …" */
static void add_end(struct buf *out, const struct watch_ended *e)
{
	add_target(out, "The watch of block", &e->target);
	add_op(out,
	       e->last.after ? " ended after operator " : " ended at the beginning of operator ",
	       e->last.op, e->last.call);
	add_text(out, ": it was for {} only (dump_nums). Changes after that were not looked at.",
		 COUNT_OF(e->looks, "look"));
}

static void print_ends(const struct view *g)
{
	unsigned top = g->report.style->top;

	for (size_t i = 0; i < g->w->nended && i < top; i++) {
		struct buf text = {0};

		add_end(&text, &g->w->ended[i]);
		report_paragraph(&g->report, 0, &text);
	}
	if (g->w->nended > top)
		print(g, "{} {}watches ended before the job did{}.\n", NUMBER(g->w->nended - top),
		      TEXT(top ? "more " : ""),
		      TEXT(top ? "" : ", and changes after that were not looked at"));
}

static void print_counts(const struct view *g)
{
	struct watch *w = g->w;

	print(g, "\n{} watched, looked at {}", COUNT_OF(w->blocks, "block"),
	      COUNT_OF(w->samples, "time"));
	if (!w->from_csv)
		print(g, "; {} by operators that announce it", COUNT_OF(w->announced, "change"));
	print(g, ".\n");
}

static void print_notes(const struct view *g)
{
	struct watch *w = g->w;

	if (watch_count_of(w, WATCH_UNJUDGED))
		print(g, w->from_csv
				 ? "\nWhat operators write does not stand in this file: a change "
				   "may be meant. The recording knows more.\n"
				 : "\nThe tensors of these operators are not known, so a change "
				   "may be meant: add --events=access.\n");
	if (w->failed)
		print(g,
		      "\n{} failed (first with error {}); such a block is not watched any "
		      "longer.\n",
		      COUNT_OF(w->failed, "look"), NUMBER(w->error));
	if (w->unwritten)
		print(g, "\n{} could not be written to a file: {}.\n",
		      COUNT_OF(w->unwritten, "content"), TEXT(strerror(w->unwritten_errno)));
	if (w->missed)
		print(g, "\n{} got lost on the way.\n", COUNT_OF(w->missed, "look"));
	if (w->too_many)
		print(g, "\n{} more changes are counted only.\n", NUMBER(w->too_many));
	if (w->bad_lines)
		print(g,
		      "\n{} lines are not understood and were passed over, the first is line {}.\n",
		      NUMBER(w->bad_lines), NUMBER(w->first_bad_line));
}

void watch_text(struct analysis *a, const struct analysis_style *style, struct buf *out)
{
	struct watch *w = (struct watch *)a;
	struct view g = {report_begin(style, out), w};

	if (style->console && !watch_count_of(w, WATCH_CORRUPTED))
		return;
	print_answer(&g);
	if (!watch_count_of(w, WATCH_CORRUPTED) && !watch_count_of(w, WATCH_UNJUDGED))
		print_ends(&g);
	print_list(&g, WATCH_CORRUPTED, style->top);
	print_list(&g, WATCH_UNJUDGED, style->console ? 0 : style->top);
	if (w->samples)
		print_counts(&g);
	if (w->nended &&
	    (watch_count_of(w, WATCH_CORRUPTED) || watch_count_of(w, WATCH_UNJUDGED))) {
		buf_add_char(out, '\n');
		print_ends(&g);
	}
	if (!style->console)
		print_notes(&g);
}

/* --- JSON --- */

static json_t *edge_value(const struct watch *w, const struct watch_edge *e)
{
	json_t *o = json_object();

	put_text(o, "operator", e->op);
	put_number(o, "call", e->call);
	put_number(o, "tid", e->tid);
	put_text(o, "at", e->after ? "end" : "begin");
	put_stack(o, &w->stacks, e->stack);
	return o;
}

static void put_target(json_t *o, const struct watch_target *t)
{
	put_number(o, "pid", t->pid);
	put_device(o, t->device);
	put_number(o, "time_ns", t->time_ns);
	put_address(o, "address", t->addr);
	put_number(o, "bytes", t->size_bytes);
	put_text(o, "name", t->name);
	put_known(o, "output", t->output != WATCH_NO_OUTPUT, t->output);
	put_number(o, "call", t->call);
}

static json_t *neighbour_value(const struct watch_finding *f)
{
	json_t *o = json_object();

	put_address(o, "address", f->neighbour.addr);
	put_number(o, "bytes", f->neighbour.size_bytes);
	put_text(o, "side", f->neighbour.addr < f->target.addr ? "before" : "behind");
	return o;
}

static void put_checksum(json_t *o, const char *key, uint64_t v)
{
	char text[24];

	snprintf(text, sizeof(text), "%016llx", (unsigned long long)v);
	put_text(o, key, text);
}

static json_t *finding_value(const struct watch *w, const struct watch_finding *f,
			     enum watch_verdict v)
{
	struct buf words = {0};
	json_t *o = json_object();

	add_change(&words, f, v);
	put_text(o, "text", buf_str(&words));
	put_text(o, "kind",
		 is_one_operator(f)		 ? "during_operator"
		 : f->from.after && !f->to.after ? "between_operators"
						 : "other");
	put_target(o, &f->target);
	put_known(o, "allocation_id", f->allocation, f->allocation);
	put_text(o, "pool", pool_text(f));
	put_stack(o, &w->stacks, f->stack);
	put_checksum(o, "before", f->before);
	put_checksum(o, "after", f->after);
	json_object_set_new(o, "from", edge_value(w, &f->from));
	json_object_set_new(o, "to", edge_value(w, &f->to));
	put_text(o, "inside", f->inside);
	put_number(o, "missed", f->missed);
	json_object_set_new(o, "written_beside",
			    f->has_neighbour ? neighbour_value(f) : json_null());
	buf_release(&words);
	return o;
}

static json_t *ended_value(const struct watch *w)
{
	json_t *list = json_array();

	for (size_t i = 0; i < w->nended; i++) {
		const struct watch_ended *e = &w->ended[i];
		struct buf words = {0};
		json_t *o = json_object();

		add_end(&words, e);
		put_text(o, "text", buf_str(&words));
		put_target(o, &e->target);
		put_number(o, "looks", e->looks);
		json_object_set_new(o, "last", edge_value(w, &e->last));
		json_array_append_new(list, o);
		buf_release(&words);
	}
	return list;
}

static json_t *list_value(struct watch *w, enum watch_verdict v, unsigned top)
{
	json_t *list = json_array();

	for (size_t i = 0; i < w->nfindings && json_array_size(list) < top; i++)
		if (watch_verdict_of(w, &w->findings[i]) == v)
			json_array_append_new(list, finding_value(w, &w->findings[i], v));
	return list;
}

json_t *watch_json(struct analysis *a, unsigned top)
{
	static const struct field counts[] = {
		FIELDS(struct watch, announced, blocks, samples, failed, missed, unwritten,
		       bad_lines),
		FIELD("ended_early", struct watch, nended),
		{0},
	};
	struct watch *w = (struct watch *)a;
	json_t *o = json_object();

	put_number(o, "corruptions", watch_count_of(w, WATCH_CORRUPTED));
	put_number(o, "unjudged", watch_count_of(w, WATCH_UNJUDGED));
	fields_put(o, counts, w, NULL);
	json_object_set_new(o, "ended", ended_value(w));
	json_object_set_new(o, "corruption", list_value(w, WATCH_CORRUPTED, top));
	json_object_set_new(o, "change", list_value(w, WATCH_UNJUDGED, top));
	return o;
}
