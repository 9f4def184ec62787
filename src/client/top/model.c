/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "client/top/model.h"

#include "activity/live/toplist.h"
#include "base/clock.h"
#include "base/compare.h"
#include "base/containers/hmap.h"
#include "base/mem.h"
#include "unwind/symbols/demangle.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

static double get_number(const json_t *o, const char *key)
{
	double v = json_number_value(json_object_get(o, key));

	return v > 0 ? v : 0;
}

static int64_t get_id(const json_t *o, const char *key)
{
	const json_t *v = json_object_get(o, key);

	return json_is_integer(v) && json_integer_value(v) >= 0 ? json_integer_value(v) : -1;
}

static const char *get_text(const json_t *o, const char *key)
{
	const char *v = json_string_value(json_object_get(o, key));

	return v ? v : "";
}

static char *readable_name(const char *name)
{
	char *plain = demangle(name);

	return plain ? plain : xstrdup(*name ? name : "(no name)");
}

/* --- kernels --- */

struct maker {
	struct top_model *m;
	struct hmap lines; /* hash of kind and name to its place */
	const char *kinds;
};

static bool is_listed(const char *list, const char *word)
{
	size_t len = strlen(word);

	while (*list) {
		size_t n = strcspn(list, ",");

		if (n == len && !strncmp(list, word, len))
			return true;
		list += n + (list[n] == ',');
	}
	return false;
}

static struct top_line *line_of(struct maker *k, const char *kind, const char *name)
{
	struct top_model *m = k->m;
	uint64_t key = XXH3_64bits_withSeed(name, strlen(name), XXH3_64bits(kind, strlen(kind)));
	uint64_t at = hmap_get(&k->lines, key);

	if (at != HMAP_NONE)
		return &m->lines[at];
	hmap_put(&k->lines, key, m->nlines);
	struct top_line *l = XPUSH(m->lines, m->nlines, m->lines_cap);
	*l = (struct top_line){.kind = kind, .name = readable_name(name)};
	return l;
}

static void add_row(struct maker *k, const json_t *row, struct top_process *p)
{
	const char *kind = get_text(row, "kind"), *name = get_text(row, "name");
	double ns = get_number(row, "total_ns"), share = get_number(row, "share");
	double before = get_number(row, "before_calls");
	bool on_device = json_is_number(json_object_get(row, "share"));
	bool is_owner = !strcmp(kind, TOPLIST_MODULE) || !strcmp(kind, TOPLIST_LINE);

	if (on_device)
		k->m->total_ns += ns;
	if ((*k->kinds || is_owner) && !is_listed(k->kinds, kind))
		return;
	struct top_line *l = line_of(k, kind, name);
	l->calls += get_number(row, "calls");
	l->total_ns += ns;
	l->inside_ns += json_object_get(row, "inside_ns") ? get_number(row, "inside_ns") : ns;
	l->on_device = on_device || is_owner;
	l->processes++;
	if (get_number(row, "p99_ns") > l->p99_ns)
		l->p99_ns = get_number(row, "p99_ns");
	if (before > 0) {
		l->before_calls += before;
		l->before_total_ns += get_number(row, "before_total_ns");
		l->comparable_calls += get_number(row, "calls");
		l->comparable_ns += ns;
	}
	if (on_device && share > p->top_share) {
		p->top_share = share;
		free(p->top_name);
		p->top_name = readable_name(name);
	}
}

bool top_line_change(const struct top_line *l, double *out_ratio)
{
	if (l->before_calls <= 0 || l->before_total_ns <= 0 || l->comparable_calls <= 0)
		return false;
	*out_ratio =
		l->comparable_ns / l->comparable_calls / (l->before_total_ns / l->before_calls) - 1;
	return true;
}

/* --- processes --- */

static double get_part(const json_t *device, const char *key, double interval_s)
{
	double p = interval_s > 0 ? get_number(device, key) / (interval_s * 1e9) : 0;

	return p < 1 ? p : 1;
}

static void add_device(struct top_process *p, const json_t *device)
{
	double busy = get_part(device, "busy_ns", p->interval_s);

	if (p->device >= 0 && busy < p->busy)
		return;
	p->device = get_id(device, "device");
	p->busy = busy;
	p->kernel = get_part(device, "kernel_ns", p->interval_s);
	p->comm = get_part(device, "comm_ns", p->interval_s);
	p->copy = get_part(device, "copy_ns", p->interval_s);
	p->reported_late = get_part(device, "late_ns", p->interval_s);
}

static void add_part(struct top_part *part, bool known, const json_t *device, const char *key,
		     double interval_s)
{
	if (!known)
		return;
	part->busy_s += get_part(device, key, interval_s) * interval_s;
	part->time_s += interval_s;
}

/* device: NULL if the process has none. */
static void add_parts(struct top_model *m, const struct top_process *p, const json_t *device)
{
	bool any = p->has_kernel || p->has_comm || p->has_copy;

	add_part(&m->busy, any, device, "busy_ns", p->interval_s);
	add_part(&m->kernel, p->has_kernel, device, "kernel_ns", p->interval_s);
	add_part(&m->comm, p->has_comm, device, "comm_ns", p->interval_s);
	add_part(&m->copy, p->has_copy, device, "copy_ns", p->interval_s);
}

/* A daemon that does not report the kinds reports times of all of them. */
static bool collects_kind(const json_t *process, const char *one, const char *other)
{
	const json_t *kinds = json_object_get(process, "kinds"), *v;
	size_t i;

	json_array_foreach(kinds, i, v)
	{
		const char *kind = json_string_value(v);

		if (kind && (!strcmp(kind, one) || !strcmp(kind, other)))
			return true;
	}
	return !json_is_array(kinds);
}

static bool is_off(const json_t *process)
{
	const char *state = get_text(process, "npumonitor");

	return *state && strcmp(state, "Running") && strcmp(state, "Ready");
}

static void add_process(struct maker *k, size_t host, const json_t *o)
{
	struct top_model *m = k->m;
	const json_t *steps = json_object_get(o, "steps"), *v;
	struct top_process p = {.host = host,
				.pid = get_id(o, "pid"),
				.rank = get_id(o, "rank"),
				.device = -1,
				.from_ns = get_id(o, "from"),
				.to_ns = get_id(o, "to"),
				.interval_s = get_number(o, "interval_s"),
				.age_s = get_number(o, "age_s"),
				.has_kernel = collects_kind(o, "Kernel", "Kernel"),
				.has_comm = collects_kind(o, "Communication", "Hccl"),
				.has_copy = collects_kind(o, "MemCpy", "MemSet"),
				.late = json_is_true(json_object_get(o, "late")),
				.filtered = json_is_true(json_object_get(o, "filter")),
				.steps = get_number(steps, "count"),
				.step_ns = get_number(steps, "mean_ns")};
	size_t i;

	if (p.late && is_off(o)) /* nobody expects a report */
		return;
	json_array_foreach(json_object_get(o, "devices"), i, v) add_device(&p, v);
	/* what was reported long ago is of no interval of now */
	json_array_foreach(p.late ? NULL : json_object_get(o, "rows"), i, v) add_row(k, v, &p);
	double others = p.late ? 0 : get_number(json_object_get(o, "others"), "total_ns");
	m->total_ns += others;
	m->others_ns += others;
	size_t devices = json_array_size(json_object_get(o, "devices"));
	if (!p.late)
		m->time_ns += p.interval_s * 1e9 * (double)(devices ? devices : 1);
	json_array_foreach(p.late ? NULL : json_object_get(o, "devices"), i, v) add_parts(m, &p, v);
	if (!p.late && !devices)
		add_parts(m, &p, NULL);
	for (i = 0; i < TOPLIST_LOSSES; i++)
		m->losses[i] += p.losses[i] = get_number(o, toplist_loss_names[i]);
	*XPUSH(m->processes, m->nprocesses, m->processes_cap) = p;
}

double top_line_share(const struct top_model *m, const struct top_line *l)
{
	return m->time_ns > 0 ? l->inside_ns / m->time_ns : 0;
}

/* An older daemon has both in one list. */
static void add_slower(struct top_model *m, const json_t *list, const char *host)
{
	size_t i;
	json_t *v;

	json_array_foreach(list, i, v)
	{
		bool waits = toplist_waits(get_text(v, "kind"), get_text(v, "name"));
		json_t *copy = json_copy(v);

		json_object_set_new(copy, "host", json_string(host));
		json_array_append_new(waits ? m->waits : m->regressions, copy);
	}
}

static void add_host(struct maker *k, const struct client_group *g, size_t host,
		     const json_t *reply)
{
	struct top_model *m = k->m;
	size_t i;
	json_t *v;

	m->known += (unsigned)get_number(reply, "known");
	m->running += (unsigned)get_number(reply, "running");
	m->paused += (unsigned)get_number(reply, "paused");
	m->not_reporting += (unsigned)get_number(reply, "mute");
	m->tracing += (unsigned)get_number(reply, "tracing");
	m->registered += (unsigned)get_number(reply, "registered");
	m->others += (unsigned)client_count_others(reply);
	if (!m->refused && json_is_object(json_object_get(reply, "refused")))
		m->refused = json_object_get(reply, "refused");
	json_array_foreach(json_object_get(reply, "processes"), i, v) add_process(k, host, v);
	add_slower(m, json_object_get(reply, "regressions"), g->hosts->v[host].label);
	add_slower(m, json_object_get(reply, "waits"), g->hosts->v[host].label);
}

/* --- all of it --- */

COMPARE_BY_MOST(by_time, struct top_line, total_ns)

static int by_rank(const void *a, const void *b)
{
	const struct top_process *x = a, *y = b;
	uint64_t r = (uint64_t)x->rank, s = (uint64_t)y->rank; /* -1 comes last */

	if (r != s)
		return r < s ? -1 : 1;
	if (x->host != y->host)
		return x->host < y->host ? -1 : 1;
	return x->pid < y->pid ? -1 : x->pid > y->pid;
}

struct cause {
	struct toplist_regression slow;
	json_t *o;
	size_t at; /* as it came */
};

static int by_cause(const void *a, const void *b)
{
	const struct cause *x = a, *y = b;
	int order = toplist_by_cause(&x->slow, &y->slow);

	return order ? order : x->at < y->at ? -1 : x->at > y->at;
}

/* Each daemon puts its own in order; here those of all are. */
static void sort_by_cause(json_t **list)
{
	size_t n = json_array_size(*list), i;
	struct cause *causes = xcalloc(n + 1, sizeof(*causes));
	json_t *o, *sorted = json_array();

	json_array_foreach(*list, i, o) causes[i] =
		(struct cause){{.mean_ns = (uint64_t)get_number(o, "mean_ns"),
				.baseline_ns = (uint64_t)get_number(o, "baseline_ns"),
				.calls = (uint64_t)get_number(o, "calls")},
			       o,
			       i};
	if (n)
		qsort(causes, n, sizeof(*causes), by_cause);
	for (i = 0; i < n; i++)
		json_array_append(sorted, causes[i].o);
	free(causes);
	json_decref(*list);
	*list = sorted;
}

static void find_slowest(struct top_model *m)
{
	struct toplist_rank *ranks = xcalloc(m->nprocesses + 1, sizeof(*ranks));
	size_t *at = xcalloc(m->nprocesses + 1, sizeof(*at)), n = 0;

	for (size_t i = 0; i < m->nprocesses; i++) {
		const struct top_process *p = &m->processes[i];

		if (p->rank < 0 || p->late || p->rank > INT32_MAX)
			continue;
		m->several_jobs = m->several_jobs || (n && ranks[n - 1].rank == p->rank);
		at[n] = i;
		ranks[n++] =
			(struct toplist_rank){.rank = (int32_t)p->rank,
					      .interval_ns = (uint64_t)(p->interval_s * 1e9),
					      .comm_ns = (uint64_t)(p->comm * p->interval_s * 1e9),
					      .steps = (uint64_t)p->steps,
					      .step_mean_ns = (uint64_t)p->step_ns};
	}
	if (!m->several_jobs) {
		m->slowest = toplist_slowest(ranks, n);
		m->slowest.at = at[m->slowest.at];
	}
	free(ranks);
	free(at);
}

void top_model_make(struct top_model *m, const struct client_group *g,
		    const struct client_answer *answers, const char *kinds)
{
	struct maker k = {.m = m, .kinds = kinds};

	*m = (struct top_model){.regressions = json_array(), .waits = json_array()};
	for (size_t i = 0; i < g->hosts->n; i++)
		if (answers[i].reply)
			add_host(&k, g, i, answers[i].reply);
		else if (!m->failed++)
			m->why_failed = answers[i].err.text;
	if (m->nlines)
		qsort(m->lines, m->nlines, sizeof(*m->lines), by_time);
	if (m->nprocesses)
		qsort(m->processes, m->nprocesses, sizeof(*m->processes), by_rank);
	sort_by_cause(&m->regressions);
	sort_by_cause(&m->waits);
	find_slowest(m);
	hmap_release(&k.lines);
}

void top_model_release(struct top_model *m)
{
	for (size_t i = 0; i < m->nlines; i++)
		free(m->lines[i].name);
	for (size_t i = 0; i < m->nprocesses; i++)
		free(m->processes[i].top_name);
	free(m->lines);
	free(m->processes);
	json_decref(m->regressions);
	json_decref(m->waits);
	*m = (struct top_model){0};
}

void top_news_begin(struct top_news *n, const struct client_group *g)
{
	*n = (struct top_news){.hosts = xcalloc(g->hosts->n + 1, sizeof(*n->hosts))};
}

void top_news_release(struct top_news *n)
{
	free(n->hosts);
	*n = (struct top_news){0};
}

void top_news_note(struct top_news *n, const struct client_group *g,
		   const struct client_answer *answers)
{
	for (size_t i = 0; i < g->hosts->n; i++)
		if (answers[i].reply && !n->hosts[i].since_ns)
			n->hosts[i].since_ns =
				json_integer_value(json_object_get(answers[i].reply, "now"));
}

static bool is_new(const struct top_news *n, const struct top_process *p, bool begun)
{
	const struct top_host_news *h = &n->hosts[p->host];

	return begun ? p->from_ns >= h->since_ns : p->to_ns > h->shown_ns;
}

bool top_news_is(struct top_news *n, const struct top_model *m, bool begun, uint64_t patience_ns)
{
	size_t fresh = 0, anew = 0;
	uint64_t now = clock_mono_ns();

	for (size_t i = 0; i < m->nprocesses; i++) {
		const struct top_process *p = &m->processes[i];

		fresh += !p->late;
		anew += !p->late && is_new(n, p, begun);
	}
	if (!anew)
		return false;
	if (!n->some_ns)
		n->some_ns = now;
	return (anew == fresh && fresh >= m->running) || now - n->some_ns > patience_ns;
}

void top_news_shown(struct top_news *n, const struct top_model *m)
{
	n->some_ns = 0;
	for (size_t i = 0; i < m->nprocesses; i++) {
		const struct top_process *p = &m->processes[i];
		struct top_host_news *h = &n->hosts[p->host];

		if (!p->late && p->to_ns > h->shown_ns)
			h->shown_ns = p->to_ns;
	}
}
