/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The snapshot in a line or two. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/mem.h"
#include "sampler/snapshot/snapshot_impl.h"

#define PLACES_MAX 4 /* named in the line */
#define WHO_BYTES 60

static void add_numbers(const struct snapshot *s, const unsigned *processes, unsigned n, bool ranks,
			unsigned max_bytes, struct buf *out)
{
	int64_t *numbers = xcalloc(n ? n : 1, sizeof(*numbers));
	unsigned count = 0;

	for (unsigned i = 0; i < n; i++) {
		const struct snap_process *p = &s->processes[processes[i]];

		if (ranks == (p->rank >= 0))
			numbers[count++] = ranks ? p->rank : p->pid;
	}
	if (count)
		words_numbers(ranks ? "rank" : "pid", numbers, count, max_bytes, out);
	free(numbers);
}

void snap_add_who(const struct snapshot *s, const unsigned *processes, unsigned n,
		  unsigned max_bytes, struct buf *out)
{
	unsigned ranks = 0;

	for (unsigned i = 0; i < n; i++)
		ranks += s->processes[processes[i]].rank >= 0;
	if (ranks)
		add_numbers(s, processes, n, true, max_bytes, out);
	if (ranks && ranks < n)
		buf_add_str(out, " and ");
	if (ranks < n)
		add_numbers(s, processes, n, false, max_bytes, out);
}

void snap_add_who_of_threads(const struct snapshot *s, const unsigned *threads, unsigned n,
			     unsigned max_bytes, struct buf *out)
{
	unsigned *processes = xcalloc(n ? n : 1, sizeof(*processes));

	for (unsigned i = 0; i < n; i++)
		processes[i] = s->threads[threads[i]].process;
	snap_add_who(s, processes, n, max_bytes, out);
	free(processes);
}

void snap_add_place(const struct snap_thread *t, struct buf *out)
{
	if (t->place < 0) {
		buf_add_str(out, "outside Python");
		return;
	}
	const struct stack_frame *f = &t->frames[t->place];
	int inner = stack_inner(t->frames, t->nframes);
	buf_add_str(out, "in ");
	words_printable(f->name, out);
	buf_add_str(out, " at ");
	frame_add_short(f, out);
	if (inner >= 0) {
		buf_add_str(out, " > ");
		words_printable(t->frames[inner].name, out);
		buf_add_str(out, " (");
		frame_add_short(&t->frames[inner], out);
		buf_add_char(out, ')');
	}
}

const struct snap_place *snap_crowd(const struct snapshot *s)
{
	if (s->nplaces < 2 || s->counted < 3)
		return NULL;
	const struct snap_place *first = &s->places[0];
	unsigned others = s->counted - first->n;
	return others * 4 <= s->counted || others == 1 ? first : NULL;
}

/* Who is not where all others are: the sentence a hang is solved with. */
static void add_elsewhere(const struct snapshot *s, const struct snap_place *crowd, struct buf *out)
{
	unsigned *others = xcalloc(s->counted, sizeof(*others)), n = 0;

	for (unsigned i = 1; i < s->nplaces; i++)
		for (unsigned k = 0; k < s->places[i].n; k++)
			others[n++] = s->places[i].processes[k];
	size_t begin = out->len;
	snap_add_who(s, others, n, WHO_BYTES, out);
	out->data[begin] = (char)(out->data[begin] - 'a' + 'A');
	buf_addf(out, " %s elsewhere: the %u others are at the same place", n == 1 ? "is" : "are",
		 crowd->n);
	if (crowd->idle == crowd->n)
		buf_add_str(out, ", all asleep");
	buf_add_str(out, ".\n");
	free(others);
}

static void add_places(const struct snapshot *s, struct buf *out)
{
	unsigned shown = s->nplaces <= PLACES_MAX + 1 ? s->nplaces : PLACES_MAX, rest = s->counted;

	for (unsigned i = 0; i < shown; i++) {
		const struct snap_place *p = &s->places[i];

		buf_addf(out, "%s%u ", i ? ", " : "", p->n);
		snap_add_place(&s->threads[p->thread], out);
		if (i || p->n * 2 <= s->counted) {
			buf_add_str(out, " (");
			snap_add_who(s, p->processes, p->n, WHO_BYTES, out);
			buf_add_char(out, ')');
		}
		rest -= p->n;
	}
	if (rest)
		buf_addf(out, ", %u in %u other places", rest, s->nplaces - shown);
}

static void add_trouble(const struct snapshot *s, struct buf *out)
{
	unsigned n = 0;

	for (unsigned i = 0; i < s->nprocesses; i++)
		n += s->processes[i].trouble != NULL;
	if (n && s->counted)
		buf_addf(out, "%u %s could not be looked at; see below.\n", n,
			 n == 1 ? "process" : "processes");
}

void snapshot_answer(const struct snapshot *s, struct buf *out)
{
	const struct snap_place *crowd = snap_crowd(s);

	if (!s->counted) {
		buf_add_str(out, "no Python stack could be read\n");
		return;
	}
	if (s->counted == 1) {
		snap_add_who(s, s->places[0].processes, 1, WHO_BYTES, out);
		buf_add_str(out, " is ");
		snap_add_place(&s->threads[s->places[0].thread], out);
	} else if (s->nplaces == 1) {
		buf_addf(out, "%u %s: all ", s->counted, s->ranks ? "ranks" : "processes");
		snap_add_place(&s->threads[s->places[0].thread], out);
	} else {
		buf_addf(out, "%u %s: ", s->counted, s->ranks ? "ranks" : "processes");
		add_places(s, out);
	}
	buf_add_char(out, '\n');
	if (crowd)
		add_elsewhere(s, crowd, out);
	add_trouble(s, out);
}
