/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A flame graph as one SVG file: a picture in a chat or a ticket; in a browser a click zooms, and
 * text is searched for (src/web/flame.js). Callers are above, what they call hangs below: a box is as
 * wide as all stacks that go through it.
 *
 *	+-----------------------------------------+  everything
 *	| process 41                | process 42  |
 *	| main (train.py)           | main        |  widest first
 *	| step        | load  |     | step  |        right of the last: what ends in the box above
 *
 * The tree of the profile has callers before what they call (profile.c), so sums need one walk
 * backwards and widths one walk forwards. Boxes narrower than LEAST are left out, and counted.
 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text/embed.h"
#include "base/text/number_words.h"
#include "base/text/text.h"
#include "formats/profile/profile_impl.h"

#define WIDTH 1200.0
#define ROW 18
#define TOP 46 /* the title and the line of what the mouse is over */
#define PAD 8
#define LEAST 0.3 /* of a box, in pixels */
#define LETTER 6.6 /* width of one, of a font of 11 pixels */
#define MOST_ROWS 300u

EMBED(flame, "src/web/flame.js");

/* Boxes are numbered: 0 everything, then roots, then nodes. */
struct box {
	uint64_t total; /* with all that it calls */
	uint32_t parent, row;
	double left;
};

struct flame {
	const struct profile *p;
	struct box *boxes;
	uint32_t *order; /* boxes but the first, by parent, then by width */
	uint32_t n, rows;
	uint64_t narrow, deep; /* boxes that are not drawn */
	struct buf *out;
	struct buf scratch, text;
};

static uint32_t parent_of(const struct profile *p, uint32_t node)
{
	uint32_t caller = p->nodes[node].caller;

	return caller == PROFILE_NONE ? 1 + p->nodes[node].root : 1 + p->nroots + caller;
}

static void sum_boxes(struct flame *f)
{
	const struct profile *p = f->p;

	for (uint32_t i = 0; i < p->nroots; i++)
		f->boxes[1 + i].parent = 0;
	for (uint32_t i = p->nnodes; i-- > 0;) {
		struct box *b = &f->boxes[1 + p->nroots + i];

		b->parent = parent_of(p, i);
		b->total += p->nodes[i].count;
		f->boxes[b->parent].total += b->total;
	}
	for (uint32_t i = 0; i < p->nroots; i++)
		f->boxes[0].total += f->boxes[1 + i].total;
}

static const struct box *sorted; /* by compare_boxes() */

static int compare_boxes(const void *x, const void *y)
{
	uint32_t i = *(const uint32_t *)x, k = *(const uint32_t *)y;
	const struct box *a = &sorted[i], *b = &sorted[k];

	if (a->parent != b->parent)
		return a->parent < b->parent ? -1 : 1;
	if (a->total != b->total)
		return a->total > b->total ? -1 : 1;
	return i < k ? -1 : 1;
}

/* Parents have smaller numbers than their callees, so a place is known when it is asked for. */
static void place_boxes(struct flame *f)
{
	double scale = f->boxes[0].total ? (WIDTH - 2 * PAD) / (double)f->boxes[0].total : 0;
	uint32_t last_parent = UINT32_MAX;
	double left = 0;

	f->boxes[0].left = PAD;
	for (uint32_t i = 0; i + 1 < f->n; i++)
		f->order[i] = i + 1;
	sorted = f->boxes;
	qsort(f->order, f->n - 1, sizeof(*f->order), compare_boxes);
	for (uint32_t i = 0; i + 1 < f->n; i++) {
		struct box *b = &f->boxes[f->order[i]];

		if (b->parent != last_parent)
			left = f->boxes[b->parent].left;
		last_parent = b->parent;
		b->left = left;
		b->row = f->boxes[b->parent].row + 1;
		left += (double)b->total * scale;
	}
}

/* --- words --- */

static void add_xml(struct flame *f, const char *text)
{
	size_t len = strlen(text);
	const char *s = text_clean(text, &len, &f->scratch);

	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)s[i];

		if (i + 2 < len && !memcmp(s + i, "\xef\xbf", 2) && (s[i + 2] & 0x3e) == 0x3e) {
			buf_add_str(f->out, "\xef\xbf\xbd"); /* U+FFFE and U+FFFF are no text */
			i += 2;
		} else if (c == '<')
			buf_add_str(f->out, "&lt;");
		else if (c == '>') /* "]]>" may not stand in text */
			buf_add_str(f->out, "&gt;");
		else if (c == '&')
			buf_add_str(f->out, "&amp;");
		else if (c == '"')
			buf_add_str(f->out, "&quot;");
		else
			buf_add_char(f->out, c < ' ' || c == 127 ? ' ' : (char)c);
	}
}

static void add_value(struct flame *f, uint64_t value)
{
	if (f->p->o.values)
		words_bytes(f->out, value);
	else if (f->p->o.period_ns)
		words_time(f->out, value * f->p->o.period_ns);
	else
		words_of(f->out, value, "sample");
}

/* The name of a box, in f->text; what kind it is: a class of the style. */
static const char *name_box(struct flame *f, uint32_t box)
{
	const struct profile *p = f->p;
	char label[FRAME_LABEL_BYTES];

	buf_clear(&f->text);
	if (box == 0) {
		buf_add_str(&f->text, "all");
		return "r";
	}
	if (box <= p->nroots) {
		const struct profile_root *r = &p->roots[box - 1];

		buf_add_str(&f->text, r->process ? r->process : "");
		if (r->process && r->thread)
			buf_add_str(&f->text, ", ");
		buf_add_str(&f->text, r->thread ? r->thread : r->process ? "" : "stacks");
		return "r";
	}
	const struct profile_place *place = &p->places[p->nodes[box - 1 - p->nroots].place];
	const struct profile_function *fn = &p->functions[place->function];
	frame_label(label, fn->name, fn->file, place->line);
	buf_add_str(&f->text, label);
	return fn->users ? "u" : "o";
}

/* --- drawing --- */

/* As much of the name as fits; of the last character no half. */
static void add_label(struct flame *f, double width)
{
	size_t room = width > 3 * LETTER ? (size_t)((width - 6) / LETTER) : 0, len = 0;
	const char *s = buf_str(&f->text);
	size_t all = strlen(s), letters = 0;

	if (!room)
		return;
	size_t most = all <= room ? all : room - 1; /* the sign that it goes on needs room, too */
	while (len < all && letters < most) {
		size_t n = text_sequence_len(s + len, all - len);

		len += n ? n : 1;
		letters++;
	}
	char *part = xstrndup(s, len);
	add_xml(f, part);
	free(part);
	if (len < all)
		buf_add_str(f->out, "…");
}

static void draw_box(struct flame *f, uint32_t box)
{
	const struct box *b = &f->boxes[box];
	double all = (double)f->boxes[0].total, share = (double)b->total / all;
	double width = share * (WIDTH - 2 * PAD);
	uint32_t y = TOP + b->row * ROW;

	if (width < LEAST) {
		f->narrow++;
		return;
	}
	if (b->row >= MOST_ROWS) {
		f->deep++;
		return;
	}
	if (b->row >= f->rows)
		f->rows = b->row + 1;
	const char *kind = name_box(f, box);
	buf_addf(f->out, "<g class=\"%s\"><title>", kind);
	add_xml(f, buf_str(&f->text));
	buf_add_str(f->out, ": ");
	add_value(f, b->total);
	buf_addf(f->out,
		 ", %.2f %%</title><rect x=\"%.2f\" y=\"%u\" width=\"%.2f\" height=\"%d\"/>",
		 share * 100, b->left, y, width, ROW - 1);
	buf_addf(f->out, "<text x=\"%.2f\" y=\"%u\">", b->left + 3, y + 13);
	add_label(f, width);
	buf_add_str(f->out, "</text></g>\n");
}

static const char style[] =
	"<style>text{font:11px ui-monospace,Menlo,Consolas,monospace;fill:#1a1a1a;"
	"pointer-events:none}.page{fill:#fff}.title{font:600 15px system-ui,sans-serif}"
	".u rect{fill:#f2a65a}.o rect{fill:#b9cbdc}.r rect{fill:#dedede}"
	"g:hover rect{stroke:#222;stroke-width:1}g.found rect{fill:#c86fc9}g.hidden{display:none}"
	"#flame-search{cursor:pointer;pointer-events:auto;text-decoration:underline}"
	"@media (prefers-color-scheme:dark){.page{fill:#16181c}text{fill:#eee}"
	"g text{fill:#111}g:hover rect{stroke:#fff}}</style>\n";

static void draw_head(struct flame *f, struct buf *body)
{
	double height = TOP + (f->rows + 2.0) * ROW;

	buf_addf(f->out,
		 "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
		 "viewBox=\"0 0 %.0f %.0f\" role=\"img\">\n",
		 WIDTH, height, WIDTH, height);
	buf_add_str(f->out, style);
	buf_add_str(f->out, "<rect class=\"page\" width=\"100%\" height=\"100%\"/>"
			    "<text class=\"title\" x=\"8\" y=\"20\">");
	add_xml(f, f->p->o.title);
	buf_add_str(f->out, ": ");
	add_value(f, f->boxes[0].total);
	buf_add_str(f->out, "</text><text id=\"flame-line\" x=\"8\" y=\"38\">");
	buf_add_str(f->out, "Orange: your code; blue: libraries. ");
	if (f->narrow + f->deep == 1)
		buf_add_str(f->out, "1 box is not drawn: it would be too small, or too deep.");
	else if (f->narrow + f->deep) {
		words_count(f->out, f->narrow + f->deep);
		buf_add_str(f->out, " boxes are not drawn: they would be too small, or too deep.");
	}
	buf_add_str(f->out, "</text>\n<g id=\"flame-boxes\">\n");
	buf_add(f->out, body->data, body->len);
	buf_add_str(f->out, "</g>\n<script><![CDATA[\n");
	buf_add(f->out, embedded_flame, (size_t)(embedded_flame_end - embedded_flame));
	buf_add_str(f->out, "]]></script>\n</svg>\n");
}

void profile_flame(const struct profile *p, struct buf *out)
{
	struct buf body = {0};
	struct flame f = {.p = p, .n = 1 + p->nroots + p->nnodes, .out = &body};

	f.boxes = xcalloc(f.n, sizeof(*f.boxes));
	f.order = xcalloc(f.n, sizeof(*f.order));
	sum_boxes(&f);
	place_boxes(&f);
	for (uint32_t i = 0; f.boxes[0].total && i < f.n; i++)
		draw_box(&f, i);
	f.out = out;
	draw_head(&f, &body);
	free(f.boxes);
	free(f.order);
	buf_release(&body);
	buf_release(&f.scratch);
	buf_release(&f.text);
}
