/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "timeline/explain.h"

#include <stdlib.h>
#include <string.h>

#include "activity/idle/host_work.h"
#include "base/containers/hmap.h"
#include "base/mem.h"
#include "timeline/timeline_impl.h"

/* Allocations that a recording of memory reports have no length. Those that follow each other this
 * quickly are one piece of work. */
#define BURST_NS 200000

struct explained {
	const char *host;
	uint32_t pid;
	int32_t rank;
	struct step_split *split;
	struct host_work work;
	uint64_t first_ns, last_ns; /* of its devices' work; 0, 0: there is none */
	struct split_step *steps; /* of traces */
	size_t nsteps, cap_steps;
	struct split_step *seen; /* of recordings of memory, whose times are those of the job */
	size_t nseen, cap_seen;
	uint64_t burst_ns, burst_last_ns; /* allocations; 0: there was none */
	bool cut; /* the trace does not go to the end of its last step */
};

struct explain {
	uint64_t from_ns, to_ns;
	struct explained **list; /* in the order of the timeline's processes */
	size_t n, cap;
	struct buf name;
};

struct explain *explain_new(uint64_t from_ns, uint64_t to_ns)
{
	struct explain *e = xcalloc(1, sizeof(*e));

	e->from_ns = from_ns;
	e->to_ns = to_ns;
	return e;
}

static struct explained *explained_of(struct explain *e, const struct timeline_process *p)
{
	while (e->n <= p->index)
		*XPUSH(e->list, e->n, e->cap) = NULL;
	struct explained *x = e->list[p->index];
	if (x)
		return x;
	x = e->list[p->index] = xcalloc(1, sizeof(*x));
	x->host = p->host;
	x->pid = p->pid;
	x->rank = p->rank;
	x->work.main_thread = p->pid;
	x->split = step_split_new();
	return x;
}

/* --- what comes in --- */

static void add_work(struct explained *x, uint64_t start_ns, uint64_t end_ns,
		     const struct timeline_event *event)
{
	static const uint8_t kinds[] = {[ROLE_COMPUTE] = ACTIVITY_KERNEL,
					[ROLE_COMM] = ACTIVITY_COMMUNICATION,
					[ROLE_COPY] = ACTIVITY_MEMCPY};
	struct activity a = {ACTIVITY_EMPTY};

	a.kind = kinds[event->role];
	a.place = ACTIVITY_ON_DEVICE;
	a.name = event->name;
	a.device = event->device;
	a.start_ns = start_ns;
	a.end_ns = end_ns;
	if (!x->last_ns || start_ns < x->first_ns)
		x->first_ns = start_ns;
	if (end_ns > x->last_ns)
		x->last_ns = end_ns;
	step_split_add(x->split, &a, true);
}

static enum host_kind kind_of(enum timeline_role role)
{
	return role == ROLE_PYTHON ? HOST_PYTHON : role == ROLE_CALL ? HOST_CALL : HOST_RANGE;
}

static enum timeline_role role_of(const struct timeline_event *event)
{
	if (!event->role && event->category && !strcmp(event->category, "python_function"))
		return ROLE_PYTHON;
	return event->role;
}

static uint64_t thread_of(const struct timeline_track *k, const struct timeline_event *event)
{
	return event->thread ? event->thread : k->where.id;
}

static const struct chrome_arg *find_arg(const struct timeline_event *event, const char *key)
{
	for (unsigned i = 0; i < event->nargs; i++)
		if (!strcmp(event->args[i].key, key))
			return &event->args[i];
	return NULL;
}

/* Until the next call. */
static const char *name_of(struct explain *e, const struct timeline_event *event)
{
	const struct chrome_arg *file = NULL, *line;

	if (event->full_name)
		return event->full_name;
	if (role_of(event) == ROLE_PYTHON)
		file = find_arg(event, "file");
	if (!file || file->type != CHROME_TEXT || !*file->text)
		return event->name;
	line = find_arg(event, "line");
	buf_clear(&e->name);
	buf_addf(&e->name, "%s(%lld): %s", file->text,
		 line && line->type == CHROME_INT ? (long long)line->i : 0, event->name);
	return buf_str(&e->name);
}

void explain_slice(struct explain *e, struct timeline_track *k, uint64_t start_ns, uint64_t end_ns,
		   const struct timeline_event *event)
{
	enum timeline_role role = role_of(event);

	if (role == ROLE_NONE)
		return;
	struct explained *x = explained_of(e, k->process);

	if (role <= ROLE_COPY)
		add_work(x, start_ns, end_ns, event);
	else if (role == ROLE_PYTHON)
		host_work_add_from(&x->work, thread_of(k, event), name_of(e, event),
				   event->caller_line, start_ns, end_ns);
	else
		host_work_add(&x->work, thread_of(k, event), kind_of(role), name_of(e, event),
			      start_ns, end_ns);
}

/* A track has slices without ends of one thread. */
void explain_begin(struct explain *e, struct timeline_track *k, uint64_t time_ns,
		   const struct timeline_event *event)
{
	enum timeline_role role = role_of(event);

	if (role <= ROLE_COPY)
		return;
	k->thread = thread_of(k, event);
	host_work_begin(&explained_of(e, k->process)->work, k->thread, kind_of(role),
			name_of(e, event), time_ns);
}

void explain_end(struct explain *e, struct timeline_track *k, uint64_t time_ns)
{
	if (k->thread)
		host_work_end(&explained_of(e, k->process)->work, k->thread, time_ns);
}

void explain_step(struct explain *e, const struct timeline_process *p, uint64_t number,
		  uint64_t start_ns, uint64_t end_ns)
{
	struct explained *x = explained_of(e, p);
	struct split_step *last = x->nseen ? &x->seen[x->nseen - 1] : NULL;

	if (start_ns && end_ns)
		*XPUSH(x->steps, x->nsteps, x->cap_steps) =
			(struct split_step){number, start_ns, end_ns, true};
	else if (start_ns)
		*XPUSH(x->seen, x->nseen, x->cap_seen) =
			(struct split_step){number, start_ns, 0, false};
	else if (last && last->number == number && !last->end_ns)
		last->end_ns = end_ns;
}

static void end_burst(struct explained *x)
{
	if (x->burst_last_ns > x->burst_ns)
		host_work_add(&x->work, x->pid, HOST_CALL, HOST_ALLOCATIONS, x->burst_ns,
			      x->burst_last_ns);
}

void explain_allocation(struct explain *e, const struct timeline_process *p, uint64_t time_ns)
{
	struct explained *x = explained_of(e, p);

	if (!x->burst_last_ns || time_ns > x->burst_last_ns + BURST_NS) {
		end_burst(x);
		x->burst_ns = time_ns;
	}
	x->burst_last_ns = time_ns;
}

void explain_cut(struct explain *e, const struct timeline_process *p)
{
	explained_of(e, p)->cut = true;
}

/* --- steps --- */

static int by_start(const void *a, const void *b)
{
	const struct split_step *x = a, *y = b;

	if (x->start_ns != y->start_ns)
		return x->start_ns < y->start_ns ? -1 : 1;
	return x->end_ns < y->end_ns ? -1 : x->end_ns > y->end_ns;
}

static bool is_asked_for(const struct explain *e, const struct split_step *s)
{
	return s->start_ns >= e->from_ns && (!e->to_ns || s->end_ns <= e->to_ns);
}

/* In order, and none in another: two files may have told of the same. */
static size_t put_steps(const struct explain *e, struct explained *x, struct split_step *list,
			size_t n)
{
	uint64_t last_ns = 0;
	size_t put = 0;

	if (n)
		qsort(list, n, sizeof(*list), by_start);
	for (size_t i = 0; i < n; i++) {
		struct split_step *s = &list[i];

		if (s->start_ns < last_ns || s->end_ns <= s->start_ns || !is_asked_for(e, s))
			continue;
		s->whole = !(x->cut && i + 1 == n);
		last_ns = s->end_ns;
		step_split_step(x->split, s);
		put++;
	}
	return put;
}

/* The job's steps, of which the devices were observed for a part of the time. */
static size_t put_seen(const struct explain *e, struct explained *x)
{
	size_t n = 0;

	for (size_t i = 0; i < x->nseen; i++)
		if (x->seen[i].start_ns >= x->first_ns && x->seen[i].end_ns <= x->last_ns)
			x->seen[n++] = x->seen[i];
	return put_steps(e, x, x->seen, n);
}

/* Without steps: from the first work of its devices to the last. */
static void put_whole_time(const struct explain *e, struct explained *x)
{
	struct split_step s = {SPLIT_NO_NUMBER, x->first_ns, x->last_ns, true};

	if (s.start_ns < e->from_ns)
		s.start_ns = e->from_ns;
	if (e->to_ns && s.end_ns > e->to_ns)
		s.end_ns = e->to_ns;
	step_split_step(x->split, &s);
}

/* --- the end --- */

static void finish_process(const struct explain *e, struct explained *x, struct split_job *out)
{
	struct split_rank *r = split_rank_new();

	end_burst(x);
	if (!put_steps(e, x, x->steps, x->nsteps) && !put_seen(e, x))
		put_whole_time(e, x);
	step_split_host(x->split, &x->work);
	step_split_finish(x->split, r);
	r->rank = x->rank;
	r->pid = x->pid;
	split_rank_set(&r->host, xstrdup(x->host ? x->host : ""));
	if (r->ndevices)
		split_job_add(out, r);
	else
		split_rank_free(r);
}

void explain_free(struct explain *e)
{
	for (size_t i = 0; e && i < e->n; i++) {
		struct explained *x = e->list[i];

		if (!x)
			continue;
		if (x->split)
			step_split_free(x->split);
		host_work_release(&x->work);
		free(x->steps);
		free(x->seen);
		free(x);
	}
	if (!e)
		return;
	free(e->list);
	buf_release(&e->name);
	free(e);
}

bool explain_finish(struct explain *e, struct split_job *out)
{
	for (size_t i = 0; i < e->n; i++) {
		struct explained *x = e->list[i];

		if (!x)
			continue;
		finish_process(e, x, out);
		x->split = NULL;
	}
	explain_free(e);
	if (out->nranks)
		split_job_judge(out);
	return out->nranks != 0;
}
