/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "activity/idle/host_work.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/mem.h"

/* --- what comes in --- */

static struct host_thread *thread_of(struct host_work *h, uint64_t id)
{
	for (size_t i = h->nthreads; i-- > 0;)
		if (h->threads[i].id == id)
			return &h->threads[i];
	*XPUSH(h->threads, h->nthreads, h->cap_threads) = (struct host_thread){.id = id};
	return &h->threads[h->nthreads - 1];
}

static bool add_slice(struct host_work *h, struct host_thread *t, enum host_kind kind,
		      const char *name, int32_t caller_line, uint64_t start_ns, uint64_t end_ns)
{
	if (h->slices >= HOST_MAX_SLICES) {
		h->left_out++;
		return false;
	}
	const struct host_call *call = host_call_find(&h->calls, kind, name, caller_line);
	h->slices++;
	t->python += kind == HOST_PYTHON;
	t->launches += call->launches;
	*XPUSH(t->list, t->n, t->cap) = (struct host_slice){start_ns, end_ns, call};
	return true;
}

void host_work_add(struct host_work *h, uint64_t thread, enum host_kind kind, const char *name,
		   uint64_t start_ns, uint64_t end_ns)
{
	if (start_ns < end_ns)
		add_slice(h, thread_of(h, thread), kind, name, 0, start_ns, end_ns);
}

void host_work_add_from(struct host_work *h, uint64_t thread, const char *name, int32_t caller_line,
			uint64_t start_ns, uint64_t end_ns)
{
	if (start_ns < end_ns)
		add_slice(h, thread_of(h, thread), HOST_PYTHON, name, caller_line, start_ns,
			  end_ns);
}

void host_work_begin(struct host_work *h, uint64_t thread, enum host_kind kind, const char *name,
		     uint64_t start_ns)
{
	struct host_thread *t = thread_of(h, thread);
	bool kept = add_slice(h, t, kind, name, 0, start_ns, UINT64_MAX);

	*XPUSH(t->open, t->nopen, t->cap_open) = kept ? t->n - 1 : SIZE_MAX;
}

void host_work_end(struct host_work *h, uint64_t thread, uint64_t end_ns)
{
	struct host_thread *t = thread_of(h, thread);

	if (t->nopen && t->open[--t->nopen] != SIZE_MAX)
		t->list[t->open[t->nopen]].end_ns = end_ns;
}

/* --- order --- */

static int outer_first(const void *a, const void *b)
{
	const struct host_slice *x = a, *y = b;

	if (x->start_ns != y->start_ns)
		return x->start_ns < y->start_ns ? -1 : 1;
	if (x->end_ns != y->end_ns)
		return x->end_ns > y->end_ns ? -1 : 1;
	/* A call of a library in a function that is as long. */
	return (x->call->kind > y->call->kind) - (x->call->kind < y->call->kind);
}

static uint64_t most_launches(const struct host_work *h)
{
	uint64_t most = 0;

	for (size_t i = 0; i < h->nthreads; i++)
		if (h->threads[i].launches > most)
			most = h->threads[i].launches;
	return most;
}

#define LITTLE 10 /* the main thread launches little: less than one of so many */

/* Lower comes first: the thread that is asked before others. */
static unsigned place_of(const struct host_work *h, const struct host_thread *t, uint64_t most)
{
	if (t->id == h->main_thread && t->python && t->launches >= most / LITTLE)
		return 0;
	if (t->launches && t->python)
		return 1;
	if (t->id == h->main_thread)
		return 2;
	return t->launches ? 3 : 4;
}

static void order_threads(struct host_work *h)
{
	uint64_t most = most_launches(h);

	for (size_t i = 1; i < h->nthreads; i++) {
		struct host_thread t = h->threads[i];
		unsigned place = place_of(h, &t, most);
		size_t k = i;

		for (; k > 0; k--) {
			struct host_thread *b = &h->threads[k - 1];
			unsigned before = place_of(h, b, most);

			if (before < place || (before == place && b->launches >= t.launches))
				break;
			h->threads[k] = *b;
		}
		h->threads[k] = t;
	}
	for (size_t i = 0; i < h->nthreads; i++)
		if (h->threads[i].n)
			qsort(h->threads[i].list, h->threads[i].n, sizeof(struct host_slice),
			      outer_first);
	h->ordered = true;
}

/* --- what a thread does at a moment --- */

#define DEPTH 256

struct cursor {
	const struct host_thread *thread;
	size_t next;
	const struct host_slice *on[DEPTH]; /* the outermost first */
	unsigned n;
	uint64_t changes_ns; /* until then it does the same */
};

static void move_cursor(struct cursor *c, uint64_t ns)
{
	const struct host_thread *t = c->thread;
	unsigned n = 0;

	if (ns < c->changes_ns)
		return;
	for (unsigned i = 0; i < c->n; i++)
		if (c->on[i]->end_ns > ns)
			c->on[n++] = c->on[i];
	for (; c->next < t->n && t->list[c->next].start_ns <= ns; c->next++)
		if (t->list[c->next].end_ns > ns && n < DEPTH)
			c->on[n++] = &t->list[c->next];
	c->n = n;
	c->changes_ns = c->next < t->n ? t->list[c->next].start_ns : UINT64_MAX;
	for (unsigned i = 0; i < n; i++)
		if (c->on[i]->end_ns < c->changes_ns)
			c->changes_ns = c->on[i]->end_ns;
}

/* The innermost for this reason; NULL. */
static const struct host_call *innermost_for(const struct cursor *c, enum idle_why why,
					     bool library)
{
	for (unsigned i = c->n; i-- > 0;)
		if (c->on[i]->call->why == why && (!library || c->on[i]->call->kind == HOST_CALL))
			return c->on[i]->call;
	return NULL;
}

static bool has_python(const struct cursor *c)
{
	for (unsigned i = 0; i < c->n; i++)
		if (c->on[i]->call->kind == HOST_PYTHON)
			return true;
	return false;
}

/* --- the reason at a moment --- */

/* Of those that are not NULL: "what", "what > inner", and the user's function. */
struct finding {
	enum idle_why why;
	const struct host_call *what, *inner, *where;
	int32_t line; /* where it stands in `where`; 0: not known */
	bool python;
};

static bool is_users(const struct host_call *c)
{
	return c->kind == HOST_PYTHON && c->file_len && c->origin == ORIGIN_USER;
}

/* The innermost function of the user's among the first n, and where it stands: at the call that is next. */
static void find_users_call(const struct cursor *c, unsigned n, struct finding *f)
{
	unsigned i = n, next;

	while (i > 0 && !is_users(c->on[i - 1]->call))
		i--;
	if (!i)
		return;
	for (next = i; next < c->n && c->on[next]->call->kind != HOST_PYTHON;)
		next++;
	f->where = c->on[i - 1]->call;
	f->line = next < c->n ? c->on[next]->call->caller_line : 0;
}

/* The first one whose work is that of all that it calls; c->n: there is none. */
static unsigned find_broad(const struct cursor *c)
{
	unsigned i = 0;

	while (i < c->n && !c->on[i]->call->broad)
		i++;
	return i;
}

/* What is telling of those behind `from`: the innermost function of a package, else the call that the
 * program makes, else any. */
static const struct host_call *explaining_call(const struct cursor *c, unsigned from)
{
	const struct host_call *call = NULL, *any = NULL;

	for (unsigned i = c->n; i-- > from;) {
		const struct host_call *k = c->on[i]->call;

		if (k->file_len && k->origin == ORIGIN_PACKAGE)
			return k;
		if (k->kind != HOST_PYTHON)
			call = k;
		if (!any)
			any = k;
	}
	return call ? call : any;
}

static unsigned behind_users(const struct cursor *c)
{
	unsigned i = c->n;

	while (i > 0 && !is_users(c->on[i - 1]->call))
		i--;
	return i;
}

static struct finding judge_python(const struct cursor *c)
{
	struct finding f = {.why = IDLE_PYTHON, .python = true};
	unsigned broad = find_broad(c);

	if (broad < c->n) {
		f.why = c->on[broad]->call->why;
		f.what = c->on[broad]->call;
		find_users_call(c, broad, &f);
		for (unsigned i = c->n; i-- > broad + 1 && !f.inner;)
			if (is_users(c->on[i]->call))
				f.inner = c->on[i]->call;
		return f;
	}
	find_users_call(c, c->n, &f);
	for (unsigned i = c->n; i-- > 0;) {
		const struct host_call *k = c->on[i]->call;

		if (k->why) {
			f.why = k->why;
			f.what = k;
			return f;
		}
	}
	f.what = explaining_call(c, behind_users(c));
	return f;
}

/* The outermost call, which is the one that the program makes; else the innermost range. */
static const struct host_call *named_call(const struct cursor *c)
{
	for (unsigned i = 0; i < c->n; i++)
		if (c->on[i]->call->kind == HOST_CALL)
			return c->on[i]->call;
	return c->on[c->n - 1]->call;
}

static struct finding judge_calls(const struct cursor *c)
{
	struct finding f = {.why = IDLE_CALL, .what = named_call(c)};

	for (unsigned i = c->n; i-- > 0;)
		if (c->on[i]->call->why) {
			f.why = c->on[i]->call->why;
			f.what = c->on[i]->call;
			break;
		}
	return f;
}

static struct finding judge_moment(const struct host_work *h, const struct cursor *cursors)
{
	const struct host_call *held = NULL, *allocates = NULL;
	struct finding f = {.why = IDLE_UNKNOWN};

	for (size_t i = 0; i < h->nthreads; i++) {
		const struct cursor *c = &cursors[i];

		if (!held)
			held = innermost_for(c, IDLE_COLLECTOR, false);
		if (!allocates && (c->thread->launches || c->thread->id == h->main_thread))
			allocates = innermost_for(c, IDLE_ALLOCATION, true);
	}
	for (size_t i = 0; i < h->nthreads && !f.why; i++) {
		const struct cursor *c = &cursors[i];

		if (has_python(c) && (c->thread->launches || c->thread->id == h->main_thread))
			f = judge_python(c);
	}
	for (size_t i = 0; i < h->nthreads && !f.why; i++)
		if (cursors[i].n &&
		    (cursors[i].thread->launches || cursors[i].thread->id == h->main_thread))
			f = judge_calls(&cursors[i]);
	if (held) /* wherever it begins: that says nothing */
		return (struct finding){.why = IDLE_COLLECTOR, .python = f.python};
	if (allocates)
		return (struct finding){.why = IDLE_ALLOCATION,
					.what = allocates,
					.where = f.where,
					.line = f.line,
					.python = f.python};
	return f;
}

/* --- what is counted --- */

static char *call_text(const struct host_call *a, int32_t line, const struct host_call *b)
{
	struct buf text = {0};

	if (a)
		host_call_add(a, line, &text);
	if (a && b)
		buf_add_str(&text, " > ");
	if (b)
		host_call_add(b, 0, &text);
	char *made = xstrdup(buf_str(&text));
	buf_release(&text);
	return made;
}

struct counting {
	struct host_work *h;
	struct split_idle *out;
	struct hmap shares; /* of this step: reason to its place */
	size_t last; /* the reason of the piece before; SIZE_MAX */
	uint64_t last_end_ns, last_ns;
};

static size_t reason_of(struct counting *k, const struct finding *f)
{
	const uint64_t parts[] = {f->why, (uintptr_t)f->what, (uintptr_t)f->inner,
				  (uintptr_t)f->where, (uint64_t)(uint32_t)f->line};
	struct split_idle *out = k->out;
	uint64_t key = XXH3_64bits(parts, sizeof(parts)), at = hmap_get(&k->h->reasons, key);

	if (at != HMAP_NONE)
		return (size_t)at;
	if (out->nreasons >= IDLE_MAX_REASONS - 1 && f->why)
		return reason_of(k, &(struct finding){.why = IDLE_UNKNOWN});
	*XPUSH(out->reasons, out->nreasons, k->h->cap_reasons) =
		(struct idle_reason){.why = f->why,
				     .what = call_text(f->what, 0, f->inner),
				     .where = call_text(f->where, f->line, NULL)};
	hmap_put(&k->h->reasons, key, out->nreasons - 1);
	return out->nreasons - 1;
}

static void count_piece(struct counting *k, size_t step, const struct finding *f, uint64_t from,
			uint64_t to)
{
	struct split_idle *out = k->out;
	size_t reason = reason_of(k, f);
	struct idle_reason *r = &out->reasons[reason];
	uint64_t at = hmap_get(&k->shares, reason), ns = to - from;

	if (at == HMAP_NONE) {
		at = out->nshares;
		*XPUSH(out->shares, out->nshares, k->h->cap_shares) =
			(struct idle_share){(uint32_t)step, (uint32_t)reason, 0};
		hmap_put(&k->shares, reason, at);
	}
	out->shares[at].ns += ns;
	out->ns += ns;
	out->python_ns += f->python ? ns : 0;
	r->ns += ns;
	if (reason == k->last && from == k->last_end_ns) {
		k->last_ns += ns;
	} else {
		r->times++;
		k->last_ns = ns;
	}
	if (k->last_ns > r->longest_ns)
		r->longest_ns = k->last_ns;
	k->last = reason;
	k->last_end_ns = to;
}

static void explain_gap(struct host_work *h, struct cursor *cursors, struct counting *k,
			size_t step, uint64_t from, uint64_t to)
{
	while (from < to) {
		uint64_t until = to;

		for (size_t i = 0; i < h->nthreads; i++) {
			move_cursor(&cursors[i], from);
			if (cursors[i].changes_ns < until)
				until = cursors[i].changes_ns;
		}
		struct finding f = judge_moment(h, cursors);
		count_piece(k, step, &f, from, until);
		from = until;
	}
}

static void explain_step(struct host_work *h, struct cursor *cursors, struct counting *k,
			 const struct split_rank *r, size_t step, const struct spans *busy,
			 size_t *at)
{
	uint64_t from = r->steps[step].start_ns, to = r->steps[step].end_ns;

	while (*at < busy->n && busy->at[*at].end <= from)
		++*at;
	for (size_t i = *at; from < to; i++) {
		bool last = i >= busy->n || busy->at[i].start >= to;

		explain_gap(h, cursors, k, step, from, last ? to : busy->at[i].start);
		if (last)
			break;
		if (busy->at[i].end > from)
			from = busy->at[i].end;
	}
}

void host_work_explain(struct host_work *h, const struct split_rank *r, const struct spans *busy,
		       struct split_idle *out)
{
	struct counting k = {.h = h, .out = out, .last = SIZE_MAX};
	struct cursor *cursors;
	size_t at = 0;

	if (!h->ordered)
		order_threads(h);
	cursors = xcalloc(h->nthreads + 1, sizeof(*cursors));
	for (size_t i = 0; i < h->nthreads; i++)
		cursors[i].thread = &h->threads[i];
	for (size_t i = 0; i < r->nsteps; i++) {
		hmap_release(&k.shares);
		if (r->steps[i].whole)
			explain_step(h, cursors, &k, r, i, busy, &at);
	}
	hmap_release(&k.shares);
	free(cursors);
}

/* --- the end --- */

/* The same place may have come as several calls, and from several devices. */
static size_t find_same(const struct split_idle *out, size_t n, const struct idle_reason *r)
{
	for (size_t i = 0; i < n; i++)
		if (idle_reason_is_same(&out->reasons[i], r))
			return i;
	return n;
}

static void join_reason(struct idle_reason *into, struct idle_reason *r)
{
	into->ns += r->ns;
	into->times += r->times;
	if (r->longest_ns > into->longest_ns)
		into->longest_ns = r->longest_ns;
	free(r->what);
	free(r->where);
}

/* moved[i]: where reason i is now. */
static void join_reasons(struct split_idle *out, uint32_t *moved)
{
	size_t n = 0;

	for (size_t i = 0; i < out->nreasons; i++) {
		size_t at = find_same(out, n, &out->reasons[i]);

		moved[i] = (uint32_t)at;
		if (at == n)
			out->reasons[n++] = out->reasons[i];
		else
			join_reason(&out->reasons[at], &out->reasons[i]);
	}
	out->nreasons = n;
}

struct placed {
	struct idle_reason reason;
	uint32_t was;
};

static int by_time(const void *a, const void *b)
{
	const struct placed *x = a, *y = b;

	if (x->reason.ns != y->reason.ns)
		return x->reason.ns > y->reason.ns ? -1 : 1;
	return x->was < y->was ? -1 : x->was > y->was;
}

static void sort_reasons(struct split_idle *out, const uint32_t *moved)
{
	size_t n = out->nreasons;
	struct placed *all = xcalloc(n + 1, sizeof(*all));
	uint32_t *now = xcalloc(n + 1, sizeof(*now));

	for (size_t i = 0; i < n; i++)
		all[i] = (struct placed){out->reasons[i], (uint32_t)i};
	if (n)
		qsort(all, n, sizeof(*all), by_time);
	for (size_t i = 0; i < n; i++) {
		out->reasons[i] = all[i].reason;
		now[all[i].was] = (uint32_t)i;
	}
	for (size_t i = 0; i < out->nshares; i++)
		out->shares[i].reason = now[moved[out->shares[i].reason]];
	free(all);
	free(now);
}

static int by_step(const void *a, const void *b)
{
	const struct idle_share *x = a, *y = b;

	if (x->step != y->step)
		return x->step < y->step ? -1 : 1;
	return x->reason < y->reason ? -1 : x->reason > y->reason;
}

/* Devices, and calls that are the same, had shares of their own. */
static void join_shares(struct split_idle *out)
{
	size_t n = 0;

	if (out->nshares)
		qsort(out->shares, out->nshares, sizeof(*out->shares), by_step);
	for (size_t i = 0; i < out->nshares; i++) {
		struct idle_share *last = n ? &out->shares[n - 1] : NULL;

		if (last && last->step == out->shares[i].step &&
		    last->reason == out->shares[i].reason)
			last->ns += out->shares[i].ns;
		else
			out->shares[n++] = out->shares[i];
	}
	out->nshares = n;
}

void host_work_finish(struct host_work *h, struct split_idle *out)
{
	uint32_t *moved = xcalloc(out->nreasons + 1, sizeof(*moved));

	for (size_t i = 0; i < h->nthreads; i++) {
		out->python |= h->threads[i].python != 0;
		out->calls |= h->threads[i].n > h->threads[i].python;
	}
	out->looked = true;
	out->left_out = h->left_out;
	join_reasons(out, moved);
	sort_reasons(out, moved);
	join_shares(out);
	free(moved);
}

void host_work_release(struct host_work *h)
{
	for (size_t i = 0; i < h->nthreads; i++) {
		free(h->threads[i].list);
		free(h->threads[i].open);
	}
	free(h->threads);
	hmap_release(&h->reasons);
	host_calls_release(&h->calls);
	*h = (struct host_work){0};
}
