/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Takes the stacks of all processes and puts equal ones together. */
#include "sampler/snapshot/snapshot.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/containers/hmap.h"
#include "base/mem.h"
#include "unwind/remote/job_steps.h"
#include "unwind/remote/objects/objects.h"

#define LOCAL_BYTES 200 /* of the text of one value */
#define LOCALS_MAX 64 /* of one frame */

/* --- variables --- */

struct local_walk {
	struct snap_thread *thread;
	struct python_process *python;
	unsigned frame, n;
};

static void add_local(void *arg, const char *name, bool is_argument, uint64_t object)
{
	struct local_walk *w = arg;
	struct snap_thread *t = w->thread;
	struct buf text = {0};

	if (w->n++ >= LOCALS_MAX)
		return;
	remote_repr(&w->python->remote, &w->python->place, object, LOCAL_BYTES, &text);
	t->locals = xgrow(t->locals, &t->locals_cap, t->nlocals + 1, sizeof(*t->locals));
	t->locals[t->nlocals++] = (struct snap_local){.frame = w->frame,
						      .name = xstrdup(name),
						      .value = xstrdup(buf_str(&text)),
						      .argument = is_argument};
	buf_release(&text);
}

/* "step" means Trainer.step, too; "*" means every function. */
static bool is_wanted(const struct snapshot_options *o, const char *function)
{
	const char *last = strrchr(function, '.');

	for (unsigned i = 0; i < o->nlocals; i++)
		if (!strcmp(o->locals[i], "*") || !strcmp(o->locals[i], function) ||
		    (last && !strcmp(o->locals[i], last + 1)))
			return true;
	return false;
}

static void take_locals(struct snapshot *s, struct snap_thread *t, struct python_process *python)
{
	for (unsigned i = t->nframes; i-- > 0;) {
		const struct stack_frame *f = &t->frames[i];
		struct local_walk walk = {.thread = t, .python = python, .frame = i};

		/* One that has returned meanwhile has no variables any more. */
		if (f->kind == FRAME_IS_PYTHON && is_wanted(&s->o, f->name))
			remote_locals(&python->remote, &python->place, f->address, f->code,
				      add_local, &walk);
	}
}

/* --- copies --- */

static void take_thread(struct snapshot *s, unsigned process, const struct target *target,
			const struct python_thread *from, bool first)
{
	unsigned n = from->nframes;

	s->threads = xgrow(s->threads, &s->threads_cap, s->nthreads + 1, sizeof(*s->threads));
	struct snap_thread *t = &s->threads[s->nthreads++];
	*t = (struct snap_thread){.process = process,
				  .tid = from->tid,
				  .thread_id = from->thread_id,
				  .interp = from->interp,
				  .name = from->name ? from->name : "",
				  .state = from->state,
				  .first = first,
				  .has_gil = from->has_gil,
				  .gc = from->gc,
				  .missed = from->missed,
				  .cut = from->cut,
				  .nframes = n,
				  .site = stack_call_site(from->frames, n)};
	t->frames = xcalloc(n ? n : 1, sizeof(*t->frames));
	if (n)
		memcpy(t->frames, from->frames, n * sizeof(*t->frames));
	take_locals(s, t, target->python);
}

static unsigned find_first(const struct python_process *p)
{
	for (unsigned i = 0; i < p->nthreads; i++)
		if (p->threads[i].main)
			return i;
	for (unsigned i = 0; i < p->nthreads; i++)
		if (p->threads[i].name && !strcmp(p->threads[i].name, "MainThread"))
			return i;
	return p->nthreads ? 0 : SNAP_NONE;
}

static bool is_named(const struct snapshot_options *o, pid_t pid)
{
	for (unsigned i = 0; i < o->nnamed; i++)
		if (o->named[i] == pid)
			return true;
	return false;
}

static void take_process(struct snapshot *s, unsigned index, const struct targets *targets)
{
	const struct target *t = targets->list[index];
	struct snap_process *p = &s->processes[index];

	*p = (struct snap_process){.pid = t->pid,
				   .rank = t->rank,
				   .local_rank = t->local_rank,
				   .device = t->device,
				   .steps = -1,
				   .cmdline = xstrdup(t->cmdline ? t->cmdline : ""),
				   .role = t->role,
				   .counts = t->counts,
				   .first_thread = SNAP_NONE};
	if ((t->state == TARGET_REFUSED && (t->err.code != -ENOEXEC || is_named(&s->o, t->pid))) ||
	    t->state == TARGET_WAITING)
		p->problem = xstrdup(t->err.text);
	if (t->state != TARGET_OPEN || !t->python)
		return;
	p->steps = job_steps_read(t->pid);
	uint32_t version = t->python->place.layout.version;
	snprintf(p->version, sizeof(p->version), "%u.%u.%u", version >> 24, version >> 16 & 0xff,
		 version >> 8 & 0xff);
	unsigned first = find_first(t->python);
	if (first != SNAP_NONE) {
		p->first_thread = s->nthreads;
		take_thread(s, index, t, &t->python->threads[first], true);
	}
	for (unsigned i = 0; s->o.all_threads && i < t->python->nthreads; i++)
		if (i != first)
			take_thread(s, index, t, &t->python->threads[i], false);
}

/* --- groups --- */

/*
 * What makes two stacks different: the functions, and the lines from the outermost to its
 * call site. Lines of libraries below it only with --exact: all of them wait there in a loop.
 */
static bool line_counts(const struct snapshot *s, const struct snap_thread *t, unsigned frame)
{
	return s->o.exact || (int)frame <= t->site;
}

static uint64_t mix_hash(uint64_t hash, uint64_t value)
{
	hash ^= value + 0x9e3779b97f4a7c15u + (hash << 6) + (hash >> 2);
	hash *= 0xff51afd7ed558ccdu;
	return hash ^ hash >> 33;
}

static uint64_t stack_hash(const struct snapshot *s, const struct snap_thread *t)
{
	uint64_t hash = t->first + 2u * s->processes[t->process].counts;

	for (unsigned i = 0; i < t->nframes; i++) {
		hash = mix_hash(hash, (uintptr_t)t->frames[i].name);
		hash = mix_hash(hash, (uintptr_t)t->frames[i].file);
		if (line_counts(s, t, i))
			hash = mix_hash(hash, (uint64_t)t->frames[i].line);
	}
	return hash;
}

static bool same_stack(const struct snapshot *s, const struct snap_thread *a,
		       const struct snap_thread *b)
{
	if (a->nframes != b->nframes || a->first != b->first ||
	    s->processes[a->process].counts != s->processes[b->process].counts)
		return false;
	for (unsigned i = 0; i < a->nframes; i++) {
		const struct stack_frame *x = &a->frames[i], *y = &b->frames[i];

		if (x->name != y->name || x->file != y->file ||
		    (line_counts(s, a, i) && x->line != y->line))
			return false;
	}
	return true;
}

static struct snap_group *group_of(struct snapshot *s, struct hmap *by_hash, unsigned thread)
{
	const struct snap_thread *t = &s->threads[thread];
	uint64_t hash = stack_hash(s, t), found;

	while ((found = hmap_get(by_hash, hash)) != HMAP_NONE) {
		struct snap_group *g = &s->groups[found];
		if (same_stack(s, &s->threads[g->threads[0]], t))
			return g;
		hash++; /* another stack with this hash */
	}
	hmap_put(by_hash, hash, s->ngroups);
	s->groups = xgrow(s->groups, &s->groups_cap, s->ngroups + 1, sizeof(*s->groups));
	struct snap_group *g = &s->groups[s->ngroups++];
	*g = (struct snap_group){.counts = s->processes[t->process].counts, .first = t->first};
	return g;
}

/* Those that the answer speaks of first, then helpers, then other threads; larger ones before. */
static int by_weight(const void *a, const void *b)
{
	const struct snap_group *x = a, *y = b;

	if (x->first != y->first)
		return y->first - x->first;
	if (x->counts != y->counts)
		return y->counts - x->counts;
	if (x->n != y->n)
		return x->n < y->n ? 1 : -1;
	return x->threads[0] < y->threads[0] ? -1 : 1;
}

static void make_groups(struct snapshot *s)
{
	struct hmap by_hash = {0};

	for (unsigned i = 0; i < s->nthreads; i++) {
		struct snap_group *g = group_of(s, &by_hash, i);

		g->threads = xgrow(g->threads, &g->cap, g->n + 1, sizeof(*g->threads));
		g->threads[g->n++] = i;
	}
	hmap_release(&by_hash);
	if (s->ngroups)
		qsort(s->groups, s->ngroups, sizeof(*s->groups), by_weight);
}

/* --- call sites --- */

const struct stack_frame *snapshot_site(const struct snap_thread *t)
{
	return t->site >= 0 ? &t->frames[t->site] : NULL;
}

static void add_to_site(struct snapshot *s, unsigned process)
{
	const struct snap_thread *t = &s->threads[s->processes[process].first_thread];
	unsigned i = 0;

	while (i < s->nsites &&
	       !call_site_same(snapshot_site(&s->threads[s->sites[i].thread]), snapshot_site(t)))
		i++;
	if (i == s->nsites) {
		s->sites = xgrow(s->sites, &s->sites_cap, i + 1, sizeof(*s->sites));
		s->sites[i] = (struct snap_site){
			.thread = s->processes[process].first_thread,
		};
		s->nsites++;
	}
	struct snap_site *p = &s->sites[i];
	p->processes = xgrow(p->processes, &p->cap, p->n + 1, sizeof(*p->processes));
	p->processes[p->n++] = process;
	p->idle += t->state == THREAD_IDLE;
}

static int by_size(const void *a, const void *b)
{
	const struct snap_site *x = a, *y = b;

	if (x->n != y->n)
		return x->n < y->n ? 1 : -1;
	return x->processes[0] < y->processes[0] ? -1 : 1;
}

static void make_sites(struct snapshot *s)
{
	s->ranks = true;
	for (unsigned i = 0; i < s->nprocesses; i++) {
		const struct snap_process *p = &s->processes[i];

		if (!p->counts || p->first_thread == SNAP_NONE)
			continue;
		add_to_site(s, i);
		s->counted++;
		s->ranks = s->ranks && p->rank >= 0;
	}
	if (s->nsites)
		qsort(s->sites, s->nsites, sizeof(*s->sites), by_size);
}

const struct snap_site *snapshot_crowd(const struct snapshot *s)
{
	if (s->nsites < 2 || s->counted < 3)
		return NULL;
	const struct snap_site *first = &s->sites[0];
	unsigned others = s->counted - first->n;
	return others * 4 <= s->counted || others == 1 ? first : NULL;
}

struct snapshot *snapshot_take(const struct targets *targets, const struct snapshot_options *o)
{
	struct snapshot *s = xcalloc(1, sizeof(*s));

	s->o = *o;
	s->real_ns = clock_real_ns();
	s->nprocesses = targets->n;
	s->processes = xcalloc(targets->n ? targets->n : 1, sizeof(*s->processes));
	for (unsigned i = 0; i < targets->n; i++)
		take_process(s, i, targets);
	make_groups(s);
	make_sites(s);
	return s;
}

static void thread_release(struct snap_thread *t)
{
	for (unsigned i = 0; i < t->nlocals; i++) {
		free(t->locals[i].name);
		free(t->locals[i].value);
	}
	free(t->locals);
	free(t->frames);
}

void snapshot_free(struct snapshot *s)
{
	if (!s)
		return;
	for (unsigned i = 0; i < s->nprocesses; i++) {
		free(s->processes[i].cmdline);
		free(s->processes[i].problem);
	}
	for (unsigned i = 0; i < s->nthreads; i++)
		thread_release(&s->threads[i]);
	for (unsigned i = 0; i < s->ngroups; i++)
		free(s->groups[i].threads);
	for (unsigned i = 0; i < s->nsites; i++)
		free(s->sites[i].processes);
	free(s->processes);
	free(s->threads);
	free(s->groups);
	free(s->sites);
	free(s);
}

unsigned snapshot_processes(const struct snapshot *s)
{
	unsigned n = 0;

	for (unsigned i = 0; i < s->nprocesses; i++)
		n += s->processes[i].first_thread != SNAP_NONE;
	return n;
}

uint64_t snapshot_hash(const struct snapshot *s)
{
	uint64_t hash = s->nprocesses;

	for (unsigned i = 0; i < s->nthreads; i++) {
		hash = mix_hash(hash, (uint64_t)s->processes[s->threads[i].process].pid);
		hash = mix_hash(hash, stack_hash(s, &s->threads[i]));
	}
	return hash;
}
