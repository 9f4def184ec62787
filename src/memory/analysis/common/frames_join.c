/* SPDX-License-Identifier: MulanPSL-2.0 */
/* C and Python in one call stack. */
#include "memory/analysis/common/frames.h"

#include <stdlib.h>
#include <string.h>

#include "memory/analysis/common/analysis.h"

#define INNER 3 /* frames in a row of one language that are shown at either end */
#define OUTER 2
#define MOST 12 /* of all */
#define MOST_OUTER 4

static void add_frame(struct frame_list *out, struct frame_line line, bool python)
{
	LIST_ADD(out->list, out->n, out->cap,
		 (struct shown_frame){line, python, frame_is_cut(&line)});
}

static void add_lines(struct frame_list *out, const char *text, bool python)
{
	struct frame_line line;

	while (text && frame_next(&text, &line))
		add_frame(out, line, python);
}

/* From the innermost of the user's own code on; all of them if there is none. */
static void add_picked(struct frame_list *out, const struct frame_list *all, bool python,
		       enum frames_which which)
{
	size_t i = 0, end = all->n;

	for (size_t k = 0; !python && k < all->n && end == all->n; k++)
		if (frame_is_root(&all->list[k].line))
			end = k;
	while (which != FRAMES_ALL && i < end &&
	       frame_origin(&all->list[i].line, python) != FRAME_USER)
		i++;
	if (i == end) {
		i = 0;
		end = all->n;
	}
	for (; i < end; i++)
		add_frame(out, all->list[i].line, python);
}

/* Where the interpreter is in a stack of C: its innermost and outermost frame that runs Python. */
struct interpreter {
	size_t first, last;
	size_t evaluating;
	bool found;
	bool rooted; /* the whole stack is there */
};

static struct interpreter find_interpreter(const struct frame_list *c)
{
	struct interpreter named = {0}, any = {0};
	bool evaluates;

	for (size_t i = 0; i < c->n; i++) {
		if (!frame_is_interpreter(&c->list[i].line, &evaluates))
			continue;
		struct interpreter *of[] = {&any, evaluates ? &named : &any};
		for (size_t k = 0; k < 2; k++) {
			if (!of[k]->found)
				of[k]->first = i;
			of[k]->found = true;
			of[k]->last = i;
		}
		named.evaluating += evaluates;
	}
	struct interpreter in = named.found ? named : any; /* a stripped one has no names */
	for (size_t i = 0; i < c->n; i++)
		in.rooted |= frame_is_root(&c->list[i].line);
	return in;
}

/* C frames [from, to) without the interpreter's; inside of Python the user's own code begins. */
static void add_c(struct frame_list *out, const struct frame_list *c, size_t from, size_t to,
		  bool innermost)
{
	bool evaluates;

	for (size_t i = from; i < to; i++) {
		const struct frame_line *line = &c->list[i].line;

		if (frame_is_root(line))
			return;
		if (frame_is_interpreter(line, &evaluates) ||
		    (innermost && frame_origin(line, false) != FRAME_USER))
			continue;
		innermost = false;
		add_frame(out, *line, false);
	}
}

/* One frame of the interpreter for each of Python. */
static void add_one_by_one(struct frame_list *out, const struct frame_list *c,
			   const struct frame_list *py, enum frames_which which)
{
	size_t k = 0, from = 0;
	bool evaluates;

	for (size_t i = 0; i < c->n; i++) {
		(void)frame_is_interpreter(&c->list[i].line, &evaluates);
		if (!evaluates)
			continue;
		add_c(out, c, from, i, !from && which != FRAMES_ALL);
		add_frame(out, py->list[k++].line, true);
		from = i + 1;
	}
	add_c(out, c, from, c->n, false);
}

/* Leaves those of the user's own code, if there are any. */
static void keep_users(struct frame_list *l)
{
	size_t n = 0;

	for (size_t i = 0; i < l->n; i++)
		if (frame_origin(&l->list[i].line, l->list[i].python) == FRAME_USER)
			l->list[n++] = l->list[i];
	l->n = n ? n : l->n;
}

/* Without frames of ours; where nothing but Python's own library is beside them, one stands for all. */
static void leave_out_own(struct frame_list *l)
{
	struct shown_frame own = {0};
	size_t n = 0, others = 0;

	for (size_t i = 0; i < l->n; i++) {
		const struct shown_frame *f = &l->list[i];

		if (frame_is_own(&f->line, f->python)) {
			own = *f;
			continue;
		}
		others += !f->python || frame_origin(&f->line, true) != FRAME_SYSTEM;
		l->list[n++] = *f;
	}
	if (own.line.len && !others) {
		l->list[0] = own;
		n = 1;
	}
	l->n = n;
}

/* Without what calls modules and decorated functions in frameworks, if there is anything else. */
static void leave_out_wrappers(struct frame_list *l)
{
	size_t n = 0;

	for (size_t i = 0; i < l->n; i++)
		if (!frame_is_wrapper(&l->list[i].line, l->list[i].python))
			l->list[n++] = l->list[i];
	l->n = n ? n : l->n;
}

void frames_join(const char *py_text, const char *c_text, enum frames_which which,
		 struct frame_list *out)
{
	struct frame_list c = {0}, py = {0};

	add_lines(&c, c_text, false);
	add_lines(&py, py_text, true);
	struct interpreter in = find_interpreter(&c);
	if (!c.n || !py.n) {
		add_picked(out, py.n ? &py : &c, py.n != 0, which);
	} else if (in.evaluating == py.n) {
		add_one_by_one(out, &c, &py, which);
	} else if (!in.found && in.rooted) { /* where Python is in it is not known */
		add_picked(out, &py, true, which);
		add_picked(out, &c, false, which);
	} else {
		add_c(out, &c, 0, in.found ? in.first : c.n, which != FRAMES_ALL);
		add_picked(out, &py, true, which);
		if (in.found)
			add_c(out, &c, in.last + 1, c.n, false);
	}
	if (which == FRAMES_USER)
		keep_users(out);
	if (which != FRAMES_ALL) {
		leave_out_own(out);
		leave_out_wrappers(out);
	}
	frame_list_release(&c);
	frame_list_release(&py);
}

/* Leaves `inner` and `outer` of the frames [from, to); one is not worth a "…". */
static size_t cut_middle(struct frame_list *l, size_t from, size_t to, size_t inner, size_t outer)
{
	if (to - from <= inner + outer + 1)
		return to;
	struct shown_frame *f = l->list + from;
	f[inner] = (struct shown_frame){.cut = true};
	memmove(f + inner + 1, l->list + to - outer, (l->n - to + outer) * sizeof(*f));
	l->n -= to - from - inner - outer - 1;
	return from + inner + outer + 1;
}

void frames_shorten(struct frame_list *l, const struct frame_choice *choice)
{
	unsigned most = choice->most, outer = most / 3 + (most == 2);

	if (choice->most) {
		cut_middle(l, 0, l->n, most - outer, outer);
		return;
	}
	if (choice->which == FRAMES_ALL)
		return;
	for (size_t i = 0, end; i < l->n; i = end) {
		for (end = i + 1; end < l->n && l->list[end].python == l->list[i].python; end++)
			;
		end = cut_middle(l, i, end, INNER, OUTER);
	}
	cut_middle(l, 0, l->n, MOST - MOST_OUTER, MOST_OUTER);
}

void frame_list_release(struct frame_list *list)
{
	free(list->list);
	*list = (struct frame_list){0};
}
