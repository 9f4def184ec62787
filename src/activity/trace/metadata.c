/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What a trace says about itself, and the split of its steps. */
#include "activity/idle/host_work.h"
#include "activity/trace/trace.h"
#include "base/mem.h"
#include "formats/json_value.h"
#include "wire/trace_capabilities.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LATE_NS 2000000 /* of the first sample of stacks */

/* --- steps --- */

/* The last moment that anything is known of. */
static uint64_t last_moment(const struct trace_state *t)
{
	uint64_t last = t->last_ns;

	for (size_t i = 0; i < t->nheld; i++)
		if (t->held[i].end_ns > last)
			last = t->held[i].end_ns;
	return last;
}

static void split_by_time(const struct trace_state *t, struct step_split *s)
{
	bool cut = t->w->killed && t->last_ns < t->to_ns;
	struct split_step step = {SPLIT_NO_NUMBER, t->from_ns, cut ? t->last_ns : t->to_ns,
				  !cut && !t->ended};

	step_split_step(s, &step);
}

static void split_by_steps(const struct trace_state *t, struct step_split *s)
{
	for (size_t i = 0; i < t->nbounds && t->bounds[i].ns < t->to_ns; i++) {
		bool whole = i + 1 < t->nbounds;
		struct split_step step = {t->bounds[i].number, t->bounds[i].ns, 0, whole};

		step.end_ns = whole ? t->bounds[i + 1].ns : t->ended ? t->to_ns : last_moment(t);
		step_split_step(s, &step);
	}
}

static bool is_complete(const struct trace_state *t)
{
	if (t->ended)
		return false;
	return t->w->trace.steps ? t->to_ns != TRACE_NOT_YET
				 : !t->w->killed || t->last_ns >= t->to_ns;
}

static struct buf *next_note(struct buf *out)
{
	if (out->len)
		buf_add_str(out, "; ");
	return out;
}

static void note_end(const struct trace_state *t, struct buf *out)
{
	uint64_t steps = t->w->trace.steps, first = t->nbounds ? t->bounds[0].number : 0;

	if (!t->ended)
		return;
	buf_add_str(next_note(out), "ended by request ");
	if (!steps)
		buf_addf(out, "after %.0f ms; %llu ms were asked for",
			 (double)(t->to_ns - t->from_ns) / 1e6,
			 (unsigned long long)t->w->trace.duration_ms);
	else
		buf_addf(out, "in step %llu",
			 (unsigned long long)(t->nbounds ? t->bounds[t->nbounds - 1].number : 0));
	if (steps == 1)
		buf_add_str(out, ", before its end");
	else if (steps)
		buf_addf(out, "; steps %llu to %llu were asked for", (unsigned long long)first,
			 (unsigned long long)(first + steps - 1));
}

static bool has_no_stacks(const struct trace_state *t)
{
	return t->w->trace.stack && !t->calls.n;
}

static void note_stacks(const struct trace_state *t, struct buf *out)
{
	uint64_t first = t->first_sample_ns;

	if (has_no_stacks(t))
		buf_addf(next_note(out), "no calls of Python for --with-stack: %s",
			 t->unseen ? t->unseen : "no stack was seen in its steps");
	else if (t->w->trace.stack && !t->calls.exact && first > t->from_ns + LATE_NS)
		buf_addf(next_note(out),
			 "calls of Python are seen from %.1f ms after its beginning on",
			 (double)(first - t->from_ns) / 1e6);
}

/* What the process itself could not do, one after the other. */
static const char *next_reported(const struct trace_state *t, const char *at)
{
	const char *first = t->notes.len ? t->notes.data : "";
	const char *next = at ? at + strlen(at) + 1 : first;

	return next < first + t->notes.len ? next : NULL;
}

#define KEY_PREFIX "PROFILE_"

/*
 * "KEY words" as people read it: a key is the option that sets it, PROFILE_GC_DETECT_THRESHOLD
 * --gc-detect-threshold. That devices are traced needs no option.
 */
static void add_reported(const char *note, struct buf *out)
{
	size_t key = strcspn(note, " "), prefix = strlen(KEY_PREFIX);

	if (strncmp(note, KEY_PREFIX, prefix) || !note[key]) {
		buf_add_str(out, note);
		return;
	}
	if (strncmp(note, "PROFILE_ACTIVITIES ", key + 1)) {
		buf_add_str(out, "--");
		for (size_t i = prefix; i < key; i++)
			buf_add_char(out,
				     note[i] == '_' ? '-' : (char)tolower((unsigned char)note[i]));
		buf_add_str(out, ": ");
	}
	buf_add_str(out, note + key + 1);
}

static char *note_of(const struct trace_state *t)
{
	struct buf out = {0};

	note_end(t, &out);
	if (!is_complete(t) && (!t->ended || t->w->killed))
		buf_addf(next_note(&out),
			 "the process %s before the last step of the trace had ended",
			 t->w->killed ? "was killed or ended" : "stopped");
	else if (t->w->killed)
		buf_add_str(next_note(&out), "the process was killed or ended after the last step: "
					     "what its device had not reported is missing");
	note_stacks(t, &out);
	for (const char *at = next_reported(t, NULL); at; at = next_reported(t, at))
		add_reported(at, next_note(&out));
	if (t->left_out)
		buf_addf(next_note(&out), "%llu records had no place in the trace",
			 (unsigned long long)t->left_out);
	buf_add_char(&out, '\0');
	return out.data;
}

/* What its host did: why the devices idle. */
static void add_host(const struct trace_state *t, struct host_work *h)
{
	h->main_thread = t->w->pid;
	for (size_t i = 0; i < t->nheld; i++) {
		const struct activity *a = &t->held[i];
		bool call = activity_is_api(a->kind);

		if (a->place == ACTIVITY_ON_HOST && (call || a->kind == ACTIVITY_MARKER) &&
		    trace_belongs(t, a) == TRACE_IN)
			host_work_add(h, a->tid, call ? HOST_CALL : HOST_RANGE, a->name,
				      a->start_ns, a->end_ns);
	}
	for (size_t i = 0; i < t->calls.n; i++) {
		const struct trace_call *c = &t->calls.list[i];

		host_work_add_from(h, c->tid, c->text, c->caller_line, c->start_ns, c->end_ns);
	}
}

struct split_rank *trace_split(const struct trace_state *t)
{
	struct split_rank *r = split_rank_new();
	struct step_split *s = step_split_new();
	struct host_work host = {0};

	split_rank_set(&r->host, trace_host_name());
	split_rank_set(&r->request, xstrdup(t->request));
	split_rank_set(&r->job, xstrdup(t->job));
	split_rank_set(&r->parent, xstrdup(t->started_by));
	split_rank_set(&r->note, note_of(t));
	r->rank = t->w->rank;
	r->pid = t->w->pid;
	r->lost = t->w->lost;
	r->left_out = t->left_out;
	r->world = t->world;
	r->local_world = t->local_world;
	r->chosen = t->w->trace.ranks.len > 0 || t->w->trace.others_left_out;
	r->ended = t->ended && !t->w->killed;
	trace_waits(t, r);
	if (t->w->trace.steps)
		split_by_steps(t, s);
	else
		split_by_time(t, s);
	for (size_t i = 0; i < t->nheld; i++) {
		enum trace_belongs b = trace_belongs(t, &t->held[i]);

		if (b != TRACE_OUT && t->held[i].place == ACTIVITY_ON_DEVICE)
			step_split_add(s, &t->held[i], b == TRACE_IN);
	}
	add_host(t, &host);
	step_split_host(s, &host);
	step_split_finish(s, r);
	host_work_release(&host);
	return r;
}

/* A host name that can be part of a file's. */
char *trace_host_name(void)
{
	char host[256] = "";

	gethostname(host, sizeof(host) - 1);
	for (char *p = host; *p; p++)
		if (*p == '/' || (unsigned char)*p <= ' ')
			*p = '_';
	return xstrdup(*host ? host : "localhost");
}

/* --- about --- */

static json_t *asked_json(const struct trace_state *t)
{
	json_t *o = json_object();
	const char *end = t->w->text + t->w->text_len;

	for (const char *line = t->w->text; line < end;) {
		const char *stop = memchr(line, '\n', (size_t)(end - line));
		size_t len = (size_t)((stop ? stop : end) - line);
		const char *sign = memchr(line, '=', len);

		if (sign) {
			const char *key = line;
			size_t n = (size_t)(sign - line);
			struct request_text value;

			while (n && *key == ' ')
				key++, n--;
			char *name = xstrndup(key, n);
			if (request_find(t->w->text, t->w->text_len, name, &value))
				json_object_set_new(o, name, text_value(value.at, value.len));
			free(name);
		}
		line += len + 1;
	}
	return o;
}

static json_t *refused_json(const struct trace_state *t)
{
	static const struct trace_refusal refusals[] = TRACE_REFUSALS;
	json_t *list = json_array();
	struct request_text v;

	for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++)
		if (request_find(t->w->text, t->w->text_len, refusals[i].key, &v) && v.len &&
		    !request_is(&v, refusals[i].off) && !request_is(&v, "None"))
			json_array_append_new(list, json_string(refusals[i].key));
	for (const char *at = next_reported(t, NULL); at; at = next_reported(t, at))
		json_array_append_new(list, json_stringn(at, strcspn(at, " ")));
	if (has_no_stacks(t))
		json_array_append_new(list, json_string("PROFILE_WITH_STACK"));
	if (t->w->trace.host_sys & REQUEST_HOST_OSRT)
		json_array_append_new(list, json_string("PROFILE_HOST_SYS=osrt"));
	return list;
}

/* Members of the trace's object, without the braces around them. */
char *trace_about(const struct trace_state *t, const struct split_rank *r)
{
	json_t *all = json_object(), *o = json_object(), *rank = json_object();
	size_t n = r->nsteps;

	put_known(rank, "rank", r->rank >= 0, (uint64_t)(uint32_t)r->rank);
	if (r->world)
		put_number(rank, "world_size", r->world);
	json_object_set_new(all, "distributedInfo", rank);
	put_text(o, "request", r->request);
	put_text(o, "host", r->host);
	put_number(o, "pid", r->pid);
	put_known(o, "start_step", n && r->steps[0].number != SPLIT_NO_NUMBER,
		  n ? r->steps[0].number : 0);
	put_known(o, "stop_step", n && r->steps[0].number != SPLIT_NO_NUMBER,
		  n ? r->steps[n - 1].number + 1 : 0);
	put_bool(o, "complete", is_complete(t));
	put_number(o, "lost", r->lost);
	put_number(o, "left_out", r->left_out);
	put_text(o, "note", r->note);
	json_object_set_new(o, "asked", asked_json(t));
	json_object_set_new(o, "not_honoured", refused_json(t));
	json_object_set_new(all, "sonde", o);
	char *text = json_dumps(all, 0) /* HTA looks for "rank": with a blank */;
	json_decref(all);
	if (!text)
		return NULL;
	char *inner = xstrndup(text + 1, strlen(text) - 2);
	free(text);
	return inner;
}
