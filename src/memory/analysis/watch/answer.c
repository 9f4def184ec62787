/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What was found out about watched memory, for people and for programs. */
#include "memory/analysis/watch/watch_impl.h"

#include "base/mem.h"
#include "base/text/plain_words.h"
#include "formats/json_value.h"
#include "memory/analysis/common/blocks.h"
#include "memory/analysis/common/json.h"
#include "memory/analysis/common/memory_words.h"
#include "memory/analysis/common/report.h"

#include <stdlib.h>
#include <string.h>

struct view {
	struct page page;
	struct watch *w;
};

/* "aten.mul_.Scalar #2" */
static void add_op(struct buf *out, const char *op, uint32_t call)
{
	buf_add_str(out, op);
	if (call)
		buf_addf(out, " #%u", call);
}

static const char *pool_text(const struct watch_finding *f)
{
	return f->pool == TYPE_END ? NULL : words_pool(f->pool);
}

/* "named 'w'", "output 0 of aten.mul_.Scalar #1" */
static void add_name(struct buf *out, const char *name, uint32_t output, uint32_t call)
{
	if (output == WATCH_NO_OUTPUT) {
		buf_addf(out, "named '%s'", name);
	} else {
		buf_addf(out, "output %u of ", output);
		add_op(out, name, call);
	}
}

/* "Block 0x… (8192 bytes, output 0 of aten.mul_.Scalar #1)" */
static void add_block(struct buf *out, const struct watch_finding *f)
{
	if (f->addr)
		buf_addf(out, "Block 0x%llx (%llu bytes, ", (unsigned long long)f->addr,
			 (unsigned long long)f->size_bytes);
	else
		buf_add_str(out, "A block (");
	add_name(out, f->name, f->output, f->call);
	buf_add_char(out, ')');
}

static bool is_one_operator(const struct watch_finding *f)
{
	return !f->from.after && f->to.after && f->from.tid == f->to.tid &&
	       f->from.call == f->to.call && !strcmp(f->from.op, f->to.op);
}

/* When it happened: within one operator, or between two edges. */
static void add_when(struct buf *out, const struct watch_finding *f)
{
	if (is_one_operator(f)) {
		buf_add_str(out, " changed during operator ");
		add_op(out, f->to.op, f->to.call);
	} else if (f->from.after && !f->to.after) {
		buf_add_str(out, " changed between operator ");
		add_op(out, f->from.op, f->from.call);
		buf_add_str(out, " and operator ");
		add_op(out, f->to.op, f->to.call);
	} else {
		buf_addf(out, " changed between the %s of operator ",
			 f->from.after ? "end" : "beginning");
		add_op(out, f->from.op, f->from.call);
		buf_addf(out, " and the %s of operator ", f->to.after ? "end" : "beginning");
		add_op(out, f->to.op, f->to.call);
	}
	if (f->inside && strcmp(f->inside, f->to.op) != 0)
		buf_addf(out, " (inside operator %s)", f->inside);
}

static void add_verdict(struct buf *out, const struct watch_finding *f, enum watch_verdict v)
{
	if (v == WATCH_UNJUDGED)
		buf_add_char(out, '.');
	else if (is_one_operator(f))
		buf_add_str(out, ", which should not write it.");
	else
		buf_add_str(out, ", while no operator that may write it ran.");
}

static void add_neighbour(struct buf *out, const struct watch_finding *f)
{
	const struct watch_range *r = &f->neighbour;
	bool before = r->addr < f->addr;
	uint64_t gap =
		before ? f->addr - (r->addr + r->size_bytes) : r->addr - (f->addr + f->size_bytes);

	buf_addf(out, "It writes the %llu bytes ", (unsigned long long)r->size_bytes);
	if (gap)
		buf_addf(out, "that %s %llu bytes %s it", before ? "end" : "begin",
			 (unsigned long long)gap, before ? "before" : "behind");
	else
		buf_addf(out, "right %s it", before ? "before" : "behind");
	buf_addf(out, ": an %s is likely.", before ? "overrun" : "underrun");
}

static void add_finding(const struct view *g, const struct watch_finding *f, enum watch_verdict v)
{
	struct buf text = {0};
	char device[16];

	add_block(&text, f);
	add_when(&text, f);
	add_verdict(&text, f, v);
	if (f->has_neighbour) {
		buf_add_char(&text, ' ');
		add_neighbour(&text, f);
	}
	page_paragraph(&g->page, 0, &text);
	if (f->pid)
		buf_addf(&text, "process %u, device %s; ", f->pid,
			 blocks_device_name(f->device, device));
	if (f->allocation)
		buf_addf(&text, "allocation %llu%s%s; ", (unsigned long long)f->allocation,
			 pool_text(f) ? " of " : "", pool_text(f) ? pool_text(f) : "");
	buf_addf(&text, "checksum %016llx, then %016llx", (unsigned long long)f->before,
		 (unsigned long long)f->after);
	if (f->missed)
		buf_addf(&text, "; %u looks in between are missing", f->missed);
	page_paragraph(&g->page, 2, &text);
}

static void add_list(const struct view *g, enum watch_verdict v, unsigned top)
{
	unsigned n = 0;

	for (size_t i = 0; i < g->w->nfindings; i++) {
		if (watch_verdict_of(g->w, &g->w->findings[i]) != v)
			continue;
		if (n == top)
			break;
		if (n++) /* the first one belongs to the answer */
			buf_add_char(g->page.out, '\n');
		add_finding(g, &g->w->findings[i], v);
	}
	size_t all = watch_count_of(g->w, v);
	if (all > top)
		buf_addf(g->page.out, "\n… and %zu more.\n", all - top);
}

static void add_answer(const struct view *g)
{
	struct watch *w = g->w;
	size_t bad = watch_count_of(w, WATCH_CORRUPTED), open = watch_count_of(w, WATCH_UNJUDGED);
	struct buf text = {0};

	if (!w->samples) {
		page_inked(&g->page, INK_WARNING, "No memory was watched.\n");
		buf_add_str(
			g->page.out,
			"The job was not recorded with --watch, the operator it begins with never "
			"ran, and the program named no block itself.\n");
		return;
	}
	if (bad)
		words_of(&text, bad, "corruption");
	else if (open)
		words_of(&text, open, "change");
	else
		buf_addf(&text, "No corruption of what was watched%s",
			 w->nended ? ", as long as it was watched" : "");
	buf_addf(&text, "%s", bad ? " of memory found." : open ? " of watched memory found." : ".");
	page_inked(&g->page,
		   bad		       ? INK_BAD
		   : open || w->nended ? INK_WARNING
				       : INK_GOOD,
		   buf_str(&text));
	buf_add_char(g->page.out, '\n');
	buf_release(&text);
}

/* "The watch of block 0x… (…) ended after operator aten.add.Tensor #50, with its 100th look." */
static void add_end(struct buf *out, const struct watch_ended *e)
{
	buf_addf(out, "The watch of block 0x%llx (%llu bytes, ", (unsigned long long)e->addr,
		 (unsigned long long)e->size_bytes);
	add_name(out, e->name, e->output, e->call);
	buf_addf(out, ") ended %s operator ", e->last.after ? "after" : "at the beginning of");
	add_op(out, e->last.op, e->last.call);
	buf_add_str(out, ": it was for ");
	words_of(out, e->looks, "look");
	buf_add_str(out, " only (dump_nums). Changes after that were not looked at.");
}

static void add_ends(const struct view *g)
{
	unsigned top = g->page.style->top;

	for (size_t i = 0; i < g->w->nended && i < top; i++) {
		struct buf text = {0};

		add_end(&text, &g->w->ended[i]);
		page_paragraph(&g->page, 0, &text);
	}
	if (g->w->nended > top)
		buf_addf(g->page.out, "%zu %swatches ended before the job did%s.\n",
			 g->w->nended - top, top ? "more " : "",
			 top ? "" : ", and changes after that were not looked at");
}

static void add_counts(const struct view *g)
{
	struct watch *w = g->w;
	struct buf text = {0};

	words_of(&text, w->blocks, "block");
	buf_add_str(&text, " watched, looked at ");
	words_of(&text, w->samples, "time");
	if (!w->from_csv) {
		buf_add_str(&text, "; ");
		words_of(&text, w->announced, "change");
		buf_add_str(&text, " by operators that announce it");
	}
	buf_addf(g->page.out, "\n%s.\n", buf_str(&text));
	buf_release(&text);
}

static void add_notes(const struct view *g)
{
	struct watch *w = g->w;
	struct buf text = {0};

	if (watch_count_of(w, WATCH_UNJUDGED))
		buf_add_str(&text,
			    w->from_csv ? "\nWhat operators write does not stand in this file: a "
					  "change may be meant. The recording knows more.\n"
					: "\nThe tensors of these operators are not known, so a "
					  "change may be meant: add --events=access.\n");
	if (w->failed) {
		buf_add_char(&text, '\n');
		words_of(&text, w->failed, "look");
		buf_addf(&text,
			 " failed (first with error %u); such a block is not watched any "
			 "longer.\n",
			 w->error);
	}
	if (w->unwritten) {
		buf_add_char(&text, '\n');
		words_of(&text, w->unwritten, "content");
		buf_addf(&text, " could not be written to a file: %s.\n",
			 strerror(w->unwritten_errno));
	}
	if (w->missed) {
		buf_add_char(&text, '\n');
		words_of(&text, w->missed, "look");
		buf_add_str(&text, " got lost on the way.\n");
	}
	if (w->too_many)
		buf_addf(&text, "\n%llu more changes are counted only.\n",
			 (unsigned long long)w->too_many);
	if (w->bad_lines)
		buf_addf(&text,
			 "\n%llu lines are not understood and were passed over, the first "
			 "is line %llu.\n",
			 (unsigned long long)w->bad_lines, (unsigned long long)w->first_bad_line);
	buf_add_str(g->page.out, buf_str(&text));
	buf_release(&text);
}

void watch_text(struct analysis *a, const struct analysis_style *style, struct buf *out)
{
	struct watch *w = (struct watch *)a;
	struct view g = {page_begin(style, out), w};

	if (style->console && !watch_count_of(w, WATCH_CORRUPTED))
		return;
	add_answer(&g);
	if (!watch_count_of(w, WATCH_CORRUPTED) && !watch_count_of(w, WATCH_UNJUDGED))
		add_ends(&g);
	add_list(&g, WATCH_CORRUPTED, style->top);
	add_list(&g, WATCH_UNJUDGED, style->console ? 0 : style->top);
	if (w->samples)
		add_counts(&g);
	if (w->nended &&
	    (watch_count_of(w, WATCH_CORRUPTED) || watch_count_of(w, WATCH_UNJUDGED))) {
		buf_add_char(out, '\n');
		add_ends(&g);
	}
	if (!style->console)
		add_notes(&g);
}

/* --- JSON --- */

static json_t *edge_value(const struct watch_edge *e)
{
	json_t *o = json_object();

	put_text(o, "operator", e->op);
	put_number(o, "call", e->call);
	put_number(o, "tid", e->tid);
	put_text(o, "at", e->after ? "end" : "begin");
	return o;
}

static json_t *neighbour_value(const struct watch_finding *f)
{
	json_t *o = json_object();

	put_address(o, "address", f->neighbour.addr);
	put_number(o, "bytes", f->neighbour.size_bytes);
	put_text(o, "side", f->neighbour.addr < f->addr ? "before" : "behind");
	return o;
}

static void put_checksum(json_t *o, const char *key, uint64_t v)
{
	char text[24];

	snprintf(text, sizeof(text), "%016llx", (unsigned long long)v);
	put_text(o, key, text);
}

static const char *kind_of(const struct watch_finding *f)
{
	return is_one_operator(f)	       ? "during_operator"
	       : f->from.after && !f->to.after ? "between_operators"
					       : "other";
}

static json_t *finding_value(const struct watch_finding *f, enum watch_verdict v)
{
	struct buf words = {0};
	json_t *o = json_object();

	add_block(&words, f);
	add_when(&words, f);
	add_verdict(&words, f, v);
	put_text(o, "text", buf_str(&words));
	put_text(o, "kind", kind_of(f));
	put_number(o, "pid", f->pid);
	put_device(o, f->device);
	put_number(o, "time_ns", f->time_ns);
	put_address(o, "address", f->addr);
	put_number(o, "bytes", f->size_bytes);
	put_text(o, "name", f->name);
	put_known(o, "output", f->output != WATCH_NO_OUTPUT, f->output);
	put_number(o, "call", f->call);
	put_known(o, "allocation_id", f->allocation, f->allocation);
	put_text(o, "pool", pool_text(f));
	put_checksum(o, "before", f->before);
	put_checksum(o, "after", f->after);
	json_object_set_new(o, "from", edge_value(&f->from));
	json_object_set_new(o, "to", edge_value(&f->to));
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
		put_number(o, "pid", e->pid);
		put_device(o, e->device);
		put_number(o, "time_ns", e->time_ns);
		put_address(o, "address", e->addr);
		put_number(o, "bytes", e->size_bytes);
		put_text(o, "name", e->name);
		put_known(o, "output", e->output != WATCH_NO_OUTPUT, e->output);
		put_number(o, "call", e->call);
		put_number(o, "looks", e->looks);
		json_object_set_new(o, "last", edge_value(&e->last));
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
			json_array_append_new(list, finding_value(&w->findings[i], v));
	return list;
}

json_t *watch_json(struct analysis *a, unsigned top)
{
	struct watch *w = (struct watch *)a;
	json_t *o = json_object();

	put_number(o, "corruptions", watch_count_of(w, WATCH_CORRUPTED));
	put_number(o, "unjudged", watch_count_of(w, WATCH_UNJUDGED));
	put_number(o, "announced", w->announced);
	put_number(o, "blocks", w->blocks);
	put_number(o, "samples", w->samples);
	put_number(o, "failed", w->failed);
	put_number(o, "missed", w->missed);
	put_number(o, "unwritten", w->unwritten);
	put_number(o, "bad_lines", w->bad_lines);
	put_number(o, "ended_early", w->nended);
	json_object_set_new(o, "ended", ended_value(w));
	json_object_set_new(o, "corruption", list_value(w, WATCH_CORRUPTED, top));
	json_object_set_new(o, "change", list_value(w, WATCH_UNJUDGED, top));
	return o;
}
