/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "sampler/live/live.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/containers/hmap.h"
#include "base/mem.h"
#include "formats/profile/profile.h"
#include "sampler/snapshot/call_site.h"

#define MOMENTS 4 /* with the GIL, running: a bit each */
#define WITH_GIL 1
#define IS_RUNNING 2
#define SEEN_WORDS 8 /* bits: so many processes are told apart */

const char *const stack_live_by_names[] = {"line", "function", NULL};
const char *const stack_live_sort_names[] = {"self",	  "total", "all-self",
					     "all-total", "name",  NULL};

struct counts {
	uint32_t self[MOMENTS], total[MOMENTS];
};

/* A function, or a line of one. Texts are interned. */
struct place {
	const char *name, *file;
	int32_t line; /* of a function its first one */
	bool is_line;
	uint8_t home; /* enum code_home, of a function */
	uint32_t next; /* of the same hash; index + 1 */
	uint64_t stamp; /* of the stack that counted it last: recursion counts once */
	struct counts now, interval; /* since the last interval; of the newest one */
	double self_s[MOMENTS], total_s[MOMENTS]; /* thread seconds of all intervals */
	uint32_t process_self, process_total; /* how many in the newest interval … */
	uint64_t seen_self[SEEN_WORDS], seen_total[SEEN_WORDS]; /* … and which since: a bit each */
	const char *via, *via_file; /* the call below it, as seen last */
	int32_t via_line;
	uint32_t course[LIVE_INTERVALS][MOMENTS]; /* totals; a ring */
};

struct interval {
	uint64_t stacks[MOMENTS], missed, rounds;
};

struct stack_live {
	bool all_threads;
	struct place *list;
	size_t n, cap;
	struct hmap by_hash;
	bool crowded;
	uint64_t stamp;
	struct interval now, last;
	uint32_t course[LIVE_INTERVALS][MOMENTS]; /* stacks; a ring */
	unsigned intervals; /* ever */
	unsigned processes; /* of the last round */
	uint64_t begin_ns,
		interval_ns; /* when the present interval began; how long the newest was */
	uint64_t all_ns;
};

struct stack_live *stack_live_new(bool all_threads)
{
	struct stack_live *l = xcalloc(1, sizeof(*l));

	l->all_threads = all_threads;
	l->begin_ns = clock_mono_ns();
	return l;
}

void stack_live_free(struct stack_live *l)
{
	if (!l)
		return;
	hmap_release(&l->by_hash);
	free(l->list);
	free(l);
}

/* --- counting --- */

static struct place *find_place(struct stack_live *l, const struct stack_frame *f, bool is_line)
{
	int32_t line = is_line ? f->line : f->first_line;
	uint64_t hash = ((uintptr_t)f->name >> 4) * 0x9e3779b97f4a7c15ull;

	hash = (hash ^ (uintptr_t)f->file ^ (uint64_t)(uint32_t)line << 1 ^ is_line) *
	       0xbf58476d1ce4e5b9ull;
	hash &= ~(1ull << 63);
	uint64_t first = hmap_get(&l->by_hash, hash);
	uint32_t at = first == HMAP_NONE ? 0 : (uint32_t)first;
	while (at) {
		struct place *p = &l->list[at - 1];

		if (p->name == f->name && p->file == f->file && p->line == line &&
		    p->is_line == is_line)
			return p;
		at = p->next;
	}
	if (l->n >= LIVE_MAX_PLACES) {
		l->crowded = true;
		return NULL;
	}
	struct place made = {.name = f->name, .file = f->file, .line = line, .is_line = is_line};
	made.home = is_line ? HOME_JOB : frame_home(f); /* that reads the whole path: once */
	made.next = first == HMAP_NONE ? 0 : (uint32_t)first;
	*XPUSH(l->list, l->n, l->cap) = made;
	hmap_put(&l->by_hash, hash, l->n);
	return &l->list[l->n - 1];
}

static void mark_seen(uint64_t seen[SEEN_WORDS], unsigned process)
{
	if (process < SEEN_WORDS * 64)
		seen[process / 64] |= 1ull << process % 64;
}

static uint32_t count_seen(uint64_t seen[SEEN_WORDS])
{
	uint32_t n = 0;

	for (unsigned i = 0; i < SEEN_WORDS; i++) {
		n += (uint32_t)__builtin_popcountll(seen[i]);
		seen[i] = 0;
	}
	return n;
}

static struct place *count_place(struct stack_live *l, const struct stack_frame *f, bool is_line,
				 bool self, unsigned moment, unsigned process)
{
	struct place *p = find_place(l, f, is_line);

	if (!p)
		return NULL;
	if (p->stamp != l->stamp) {
		p->stamp = l->stamp;
		p->now.total[moment]++;
		mark_seen(p->seen_total, process);
	}
	if (self) {
		p->now.self[moment]++;
		mark_seen(p->seen_self, process);
	}
	return p;
}

static void count_stack(struct stack_live *l, const struct python_thread *th, unsigned process)
{
	unsigned moment =
		(th->has_gil ? WITH_GIL : 0) | (th->state == THREAD_RUNNING ? IS_RUNNING : 0);
	int site = stack_call_site(th->frames, th->nframes);
	int inner = stack_inner_call(th->frames, th->nframes);

	l->stamp++;
	l->now.stacks[moment]++;
	for (unsigned i = th->nframes; i-- > 0;) {
		const struct stack_frame *f = &th->frames[i];

		struct place *p = count_place(l, f, false, i + 1 == th->nframes, moment, process);
		if (!p || (p->home != HOME_JOB && (int)i != site))
			continue;
		p = count_place(l, f, true, (int)i == site, moment, process);
		if (p && (int)i == site) {
			const struct stack_frame *via = inner > site ? &th->frames[inner] : NULL;

			p->via = via ? via->name : NULL;
			p->via_file = via ? via->file : NULL;
			p->via_line = via ? via->line : 0;
		}
	}
}

void stack_live_round(struct stack_live *l, const struct targets *t)
{
	l->processes = 0;
	l->now.rounds++;
	for (unsigned i = 0; i < t->n; i++) {
		const struct target *one = t->list[i];

		if (one->state != TARGET_OPEN || !one->python)
			continue;
		struct thread_filter wanted = thread_filter_of(one->python, l->all_threads);
		l->processes++;
		for (unsigned k = 0; k < one->python->nthreads; k++) {
			const struct python_thread *th = &one->python->threads[k];

			if (!thread_filter_wants(&wanted, th))
				continue;
			if (th->missed)
				l->now.missed++;
			else if (th->nframes)
				count_stack(l, th, i);
		}
	}
}

void stack_live_end_interval(struct stack_live *l, uint64_t now_ns)
{
	unsigned at = l->intervals++ % LIVE_INTERVALS;
	/* seconds of a thread: a stack stands for the time from a round to the next */
	double thread_s =
		l->now.rounds ? (double)(now_ns - l->begin_ns) / 1e9 / (double)l->now.rounds : 0;

	for (size_t i = 0; i < l->n; i++) {
		struct place *p = &l->list[i];

		for (unsigned m = 0; m < MOMENTS; m++) {
			p->self_s[m] += p->now.self[m] * thread_s;
			p->total_s[m] += p->now.total[m] * thread_s;
			p->course[at][m] = p->now.total[m];
		}
		p->interval = p->now;
		p->process_self = count_seen(p->seen_self);
		p->process_total = count_seen(p->seen_total);
		p->now = (struct counts){0};
	}
	for (unsigned m = 0; m < MOMENTS; m++)
		l->course[at][m] = (uint32_t)l->now.stacks[m];
	l->last = l->now;
	l->now = (struct interval){0};
	l->interval_ns = now_ns - l->begin_ns;
	l->all_ns += l->interval_ns;
	l->begin_ns = now_ns;
}

/* --- what is shown --- */

static bool is_in(struct thread_moments m, unsigned moment)
{
	return (!m.gil || moment & WITH_GIL) && (!m.running || moment & IS_RUNNING);
}

#define SUM(list_, moments_)                                                                       \
	({                                                                                         \
		__typeof__(*(list_) + 0) sum_ = 0;                                                 \
		for (unsigned m_ = 0; m_ < MOMENTS; m_++)                                          \
			sum_ += is_in(moments_, m_) ? (list_)[m_] : 0;                             \
		sum_;                                                                              \
	})

static void add_place_name(const struct place *p, struct buf *out)
{
	char label[FRAME_LABEL_BYTES];

	frame_label(label, p->name, p->file, p->line);
	words_add_printable(label, out);
}

static char *via_of(const struct place *p)
{
	char label[FRAME_LABEL_BYTES];
	struct buf out = {0};

	if (!p->is_line || !p->via)
		return NULL;
	frame_label(label, p->via, p->via_file, p->via_line);
	words_add_printable(label, &out);
	char *text = xstrdup(buf_str(&out));
	buf_release(&out);
	return text;
}

static double share(uint64_t part, uint64_t whole)
{
	return whole ? (double)part / (double)whole : 0;
}

static void fill_row(const struct stack_live *l, const struct place *p,
		     const struct stack_live_view *v, const struct stack_live_table *t,
		     struct stack_live_row *r)
{
	unsigned first = l->intervals > LIVE_INTERVALS ? l->intervals - LIVE_INTERVALS : 0;

	r->via = via_of(p);
	r->self = share(SUM(p->interval.self, v->moments), t->stacks);
	r->total = share(SUM(p->interval.total, v->moments), t->stacks);
	r->self_s = SUM(p->self_s, v->moments);
	r->total_s = SUM(p->total_s, v->moments);
	r->processes = p->process_self ? p->process_self : p->process_total;
	for (unsigned i = first; i < l->intervals; i++) {
		unsigned at = i % LIVE_INTERVALS;
		uint64_t all = 0;

		for (unsigned m = 0; m < MOMENTS; m++)
			all += l->course[at][m];
		r->intervals[i - first] = all ? SUM(p->course[at], v->moments) * 1000000 / all : 0;
	}
}

static double sort_value(const struct stack_live_row *r, unsigned sort)
{
	const double values[] = {r->self, r->total, r->self_s, r->total_s};

	return values[sort < LIVE_NAME ? sort : 0];
}

static int compare_doubles(double a, double b)
{
	return (a > b) - (a < b);
}

static int compare_rows(const void *pa, const void *pb, void *arg)
{
	const struct stack_live_row *a = pa, *b = pb;
	const struct stack_live_view *v = arg;
	int order = v->sort == LIVE_NAME
			    ? strcmp(a->name, b->name)
			    : compare_doubles(sort_value(b, v->sort), sort_value(a, v->sort));

	order = order ? order : compare_doubles(b->self, a->self);
	order = order ? order : compare_doubles(b->total, a->total);
	order = order ? order : compare_doubles(b->self_s, a->self_s);
	order = order ? order : strcmp(a->name, b->name);
	return v->inverted ? -order : order;
}

void stack_live_table(struct stack_live *l, const struct stack_live_view *v,
		      struct stack_live_table *out)
{
	const struct thread_moments all = {0}, gil = {.gil = true}, running = {.running = true};
	const struct interval *t = &l->last;
	struct buf name = {0};

	*out = (struct stack_live_table){
		.processes = l->processes, .crowded = l->crowded, .stacks = SUM(t->stacks, all)};
	out->shown = SUM(t->stacks, v->moments);
	out->gil = share(SUM(t->stacks, gil), out->stacks);
	out->running = share(SUM(t->stacks, running), out->stacks);
	out->missed = share(t->missed, out->stacks + t->missed);
	out->interval_s = (double)l->interval_ns / 1e9;
	out->all_s = (double)l->all_ns / 1e9;
	out->nintervals = l->intervals < LIVE_INTERVALS ? l->intervals : LIVE_INTERVALS;
	for (size_t i = 0; i < l->n; i++) {
		const struct place *p = &l->list[i];

		if (p->is_line != (v->by == STACK_LIVE_LINE) || !(SUM(p->total_s, v->moments) > 0))
			continue;
		buf_clear(&name);
		add_place_name(p, &name);
		if (v->filter && !strcasestr(buf_str(&name), v->filter))
			continue;
		struct stack_live_row r = {.name = xstrdup(buf_str(&name))};
		fill_row(l, p, v, out, &r);
		*XPUSH(out->list, out->n, out->cap) = r;
	}
	if (out->n)
		qsort_r(out->list, out->n, sizeof(*out->list), compare_rows, (void *)v);
	buf_release(&name);
}

void stack_live_table_release(struct stack_live_table *t)
{
	for (size_t i = 0; i < t->n; i++) {
		free(t->list[i].name);
		free((char *)t->list[i].via);
	}
	free(t->list);
	*t = (struct stack_live_table){0};
}

/* --- words --- */

static const struct stack_live_row *most_self(const struct stack_live_table *t)
{
	const struct stack_live_row *most = NULL;

	for (size_t i = 0; i < t->n; i++)
		if (t->list[i].self > 0 && (!most || t->list[i].self > most->self))
			most = &t->list[i];
	return most;
}

static void describe_whole(const struct stack_live_table *t, struct buf *out)
{
	buf_addf(
		out,
		"%u process%s: in %.0f %% of the stacks the thread runs, in %.0f %% it has the GIL",
		t->processes, t->processes == 1 ? "" : "es", t->running * 100, t->gil * 100);
	if (t->missed >= 0.005)
		buf_addf(out, "; %.0f %% could not be read", t->missed * 100);
	buf_add_str(out, ".\n");
}

void stack_live_describe(const struct stack_live_table *t, const struct stack_live_view *v,
			 struct buf *out)
{
	const struct stack_live_row *most = most_self(t);

	describe_whole(t, out);
	if (!t->stacks)
		buf_add_str(out, "No stack was read in this interval.\n");
	else if (most)
		buf_addf(out, "Most time is in %s%s%s: %.0f %%, in %u of %u process%s.\n",
			 most->name, most->via ? " > " : "", most->via ? most->via : "",
			 most->self * 100, most->processes, t->processes,
			 t->processes == 1 ? "" : "es");
	else if (v->moments.gil || v->moments.running)
		buf_addf(out, "No thread %s in this interval.\n",
			 v->moments.gil ? "had the GIL when it was sampled" : "ran");
	if (t->crowded)
		buf_addf(out, "Only the first %u functions and lines are counted.\n",
			 (unsigned)LIVE_MAX_PLACES);
}

static json_t *row_json(const struct stack_live_row *r)
{
	json_t *o = json_pack("{s:s, s:f, s:f, s:f, s:f, s:i}", "name", r->name, "self", r->self,
			      "total", r->total, "self_s", r->self_s, "total_s", r->total_s,
			      "processes", (int)r->processes);

	json_object_set_new(o, "via", r->via ? json_string(r->via) : json_null());
	return o;
}

json_t *stack_live_json(const struct stack_live_table *t, const struct stack_live_view *v,
			unsigned top)
{
	json_t *rows = json_array();
	struct buf words = {0};

	stack_live_describe(t, v, &words);
	for (size_t i = 0; i < t->n && i < top; i++)
		json_array_append_new(rows, row_json(&t->list[i]));
	json_t *o = json_pack(
		"{s:s, s:s, s:b, s:b, s:i, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:I, s:o}", "answer",
		buf_str(&words), "by", stack_live_by_names[v->by], "gil_only", v->moments.gil,
		"running_only", v->moments.running, "processes", (int)t->processes, "stacks",
		(json_int_t)t->stacks, "stacks_shown", (json_int_t)t->shown, "gil", t->gil,
		"running", t->running, "missed", t->missed, "turn_s", t->interval_s, "seconds",
		t->all_s, "rows_total", (json_int_t)t->n, "rows", rows);
	buf_release(&words);
	return o;
}
