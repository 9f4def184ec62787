/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The snapshot for programs. The keys are in docs/snap.md. */
#include <string.h>

#include "sampler/rounds/roles.h"
#include "sampler/snapshot/snapshot.h"

/* Texts come from other processes: what is no UTF-8 must not lose the whole answer. */
static json_t *text_json(const char *s)
{
	json_t *j = json_string(s);

	if (j)
		return j;
	struct buf b = {0};
	words_add_printable(s, &b);
	j = json_string(buf_str(&b));
	buf_release(&b);
	return j ? j : json_string("?");
}

static json_t *number_or_null(int64_t n)
{
	return n >= 0 ? json_integer(n) : json_null();
}

static const char *state_name(uint8_t state)
{
	return state == THREAD_IDLE ? "idle" : state == THREAD_RUNNING ? "running" : "unknown";
}

static json_t *frame_json(const struct stack_frame *f)
{
	static const char *const homes[] = {"job", "package", "standard"};

	return json_pack(
		"{s:o, s:o, s:o, s:s, s:s}", "name", text_json(f->name), "file", text_json(f->file),
		"line", f->line > 0 ? json_integer(f->line) : json_null(), "kind",
		f->kind == FRAME_IS_NATIVE ? "native" : "python", "home", homes[frame_home(f)]);
}

/* Innermost first, as all lists of frames. */
static json_t *frames_json(const struct snap_thread *t)
{
	json_t *list = json_array();

	for (unsigned i = t->nframes; i-- > 0;)
		json_array_append_new(list, frame_json(&t->frames[i]));
	return list;
}

static json_t *locals_json(const struct snap_thread *t)
{
	json_t *list = json_array();

	for (unsigned i = 0; i < t->nlocals; i++) {
		const struct snap_local *v = &t->locals[i];

		json_array_append_new(list,
				      json_pack("{s:i, s:o, s:o, s:b}", "frame",
						(int)(t->nframes - 1 - v->frame), "name",
						text_json(v->name), "value", text_json(v->value),
						"argument", v->argument));
	}
	return list;
}

static json_t *thread_json(const struct snapshot *s, const struct snap_thread *t)
{
	const struct snap_process *p = &s->processes[t->process];
	json_t *o = json_pack(
		"{s:i, s:o, s:o, s:o, s:b, s:s, s:b, s:b, s:I, s:b}", "pid", p->pid, "rank",
		number_or_null(p->rank), "tid", t->tid ? json_integer(t->tid) : json_null(), "name",
		text_json(t->name), "main", t->first, "state", state_name(t->state), "gil",
		t->has_gil, "gc", t->gc, "interpreter", (json_int_t)t->interp, "stale", t->missed);

	if (t->nlocals)
		json_object_set_new(o, "locals", locals_json(t));
	return o;
}

static json_t *group_json(const struct snapshot *s, const struct snap_group *g)
{
	const struct snap_thread *first = &s->threads[g->threads[0]];
	json_t *threads = json_array();

	for (unsigned i = 0; i < g->n; i++)
		json_array_append_new(threads, thread_json(s, &s->threads[g->threads[i]]));
	return json_pack("{s:i, s:b, s:b, s:o, s:o, s:o}", "count", (int)g->n, "main", g->first,
			 "helpers", !g->counts, "place",
			 first->site >= 0 ? json_integer((int)first->nframes - 1 - first->site)
					  : json_null(),
			 "frames", frames_json(first), "threads", threads);
}

static json_t *process_json(const struct snap_process *p)
{
	return json_pack(
		"{s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:s, s:b, s:o}", "pid", p->pid, "steps_ended",
		p->steps >= 0 ? json_integer(p->steps) : json_null(), "rank",
		number_or_null(p->rank), "local_rank", number_or_null(p->local_rank), "device",
		number_or_null(p->device), "command", text_json(p->cmdline), "python",
		*p->version ? json_string(p->version) : json_null(), "role", role_name(p->role),
		"helper", !p->counts, "error", p->problem ? text_json(p->problem) : json_null());
}

static json_t *members_json(const struct snapshot *s, const struct snap_site *p, bool ranks)
{
	json_t *list = json_array();

	for (unsigned i = 0; i < p->n; i++) {
		const struct snap_process *one = &s->processes[p->processes[i]];

		if (!ranks)
			json_array_append_new(list, json_integer(one->pid));
		else if (one->rank >= 0)
			json_array_append_new(list, json_integer(one->rank));
	}
	return list;
}

static json_t *site_json(const struct snapshot *s, const struct snap_site *p)
{
	const struct snap_thread *t = &s->threads[p->thread];
	const struct snap_site *crowd = snapshot_crowd(s);

	return json_pack("{s:i, s:i, s:o, s:o, s:o, s:b}", "count", (int)p->n, "idle", (int)p->idle,
			 "frame", t->site >= 0 ? frame_json(&t->frames[t->site]) : json_null(),
			 "ranks", members_json(s, p, true), "pids", members_json(s, p, false),
			 "elsewhere", crowd && p != crowd);
}

json_t *snapshot_json(const struct snapshot *s)
{
	json_t *processes = json_array(), *sites = json_array(), *groups = json_array();
	struct buf answer = {0};

	for (unsigned i = 0; i < s->nprocesses; i++)
		json_array_append_new(processes, process_json(&s->processes[i]));
	for (unsigned i = 0; i < s->nsites; i++)
		json_array_append_new(sites, site_json(s, &s->sites[i]));
	for (unsigned i = 0; i < s->ngroups; i++)
		json_array_append_new(groups, group_json(s, &s->groups[i]));
	snapshot_answer(s, &answer);
	if (answer.len)
		answer.len--; /* the last newline */
	json_t *o = json_pack("{s:I, s:o, s:o, s:o, s:o}", "time_ns", (json_int_t)s->real_ns,
			      "answer", text_json(buf_str(&answer)), "places", sites, "groups",
			      groups, "processes", processes);
	buf_release(&answer);
	return o;
}
