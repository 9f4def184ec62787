/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "client/top/monitor.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "client/profiler_config.h"

#define NS_PER_S 1000000000ull
/* A monitor that is not renewed for so long ends, and longer if hosts may take long to answer: one
 * of them must not cost the others theirs. */
#define LEASE_S 7
#define RENEWALS 4 /* in that time: some may get lost */
#define OFF_S 5 /* that one may take to be off */
#define POLL_NS (NS_PER_S / 20) /* how often that is checked */
#define NAMED 8 /* processes whose monitor is still on */

enum request_kind { START, RENEW, STOP };

__attribute__((format(printf, 2, 3))) static void report_monitor(const struct top_monitor *m,
								 const char *fmt, ...)
{
	struct buf text = {0};
	va_list ap;

	va_start(ap, fmt);
	buf_addv(&text, fmt, ap);
	va_end(ap);
	m->say(m->arg, buf_str(&text));
	buf_release(&text);
}

static unsigned lease_s(const struct top_monitor *m)
{
	return LEASE_S + m->g->timeout_ms / 1000;
}

void top_monitor_begin(struct top_monitor *m)
{
	m->hosts = xcalloc(m->g->hosts->n + 1, sizeof(*m->hosts));
	m->renew_ns = UINT64_MAX;
	if (getrandom(&m->lease, sizeof(m->lease), 0) != sizeof(m->lease))
		m->lease = clock_real_ns();
	m->lease = (m->lease & INT64_MAX) | 1; /* as JSON has numbers, and not 0 */
}

static json_t *request_for(const struct top_monitor *m, enum request_kind kind)
{
	struct npu_monitor_config config = {.start = kind == START,
					    .stop = kind == STOP,
					    .report_interval_s = m->interval_s,
					    .duration_s = (float)lease_s(m),
					    .log_file = "",
					    .filter = "",
					    .attribute = m->attribute,
					    .lease = m->lease};
	struct buf text = {0};

	snprintf(config.kinds, sizeof(config.kinds), "%s", m->kinds);
	npu_monitor_config_text(&config, &text);
	json_t *request = json_pack("{s:s,s:s,s:o,s:I}", "fn", "setKinetOnDemandRequest", "config",
				    buf_str(&text), "pids",
				    m->pids ? json_incref(m->pids) : json_pack("[i]", 0), "job_id",
				    (json_int_t)m->job_id);
	buf_release(&text);
	return request;
}

/* Sends the request, which is taken, to the hosts that are wanted. The answers are the caller's. */
static struct client_answer *ask_some(struct top_monitor *m, json_t *request, const bool *want)
{
	json_t **requests = xcalloc(m->g->hosts->n, sizeof(*requests));
	struct client_answer *answers = client_answers_new(m->g);

	for (size_t i = 0; i < m->g->hosts->n; i++)
		requests[i] = want[i] ? request : NULL;
	(void)client_ask(m->g, requests, answers, NULL);
	json_decref(request);
	free(requests);
	return answers;
}

/* out_reached: how many processes of each host the request goes to. Returns the number of hosts
 * that do not answer. */
static size_t send_request(struct top_monitor *m, enum request_kind kind, const bool *want,
			   size_t *out_reached)
{
	struct client_answer *answers = ask_some(m, request_for(m, kind), want);
	size_t failed = 0;

	for (size_t i = 0; i < m->g->hosts->n; i++) {
		failed += want[i] && !answers[i].reply;
		out_reached[i] = json_array_size(
			json_object_get(answers[i].reply, "activityProfilersTriggered"));
	}
	client_answers_free(m->g, answers);
	return failed;
}

/* --- what a host says --- */

struct host_state {
	json_int_t known, on; /* processes that can be monitored; whose monitor is on, or paused */
	json_int_t own, others, lapsed, ended, stopped, free; /* struct jobs_leases */
};

static json_int_t count_at(const json_t *o, const char *key)
{
	return json_integer_value(json_object_get(o, key));
}

static struct host_state state_of(const json_t *reply)
{
	const json_t *orders = json_object_get(reply, "orders");

	return (struct host_state){.known = count_at(reply, "known"),
				   .on = count_at(reply, "running") + count_at(reply, "paused"),
				   .own = count_at(orders, "own"),
				   .others = count_at(orders, "others"),
				   .lapsed = count_at(orders, "lapsed"),
				   .ended = count_at(orders, "ended"),
				   .stopped = count_at(orders, "stopped"),
				   .free = count_at(orders, "free")};
}

/*
 * Where nobody is monitored when we come; later where ours is on, or was, and processes have joined
 * or have been without us for too long. Not after somebody else has ended it while we polled.
 */
static bool is_to_start(const struct top_monitor_host *h, const struct host_state *s)
{
	if (!s->known)
		return false;
	if (!h->tried && !h->was_on)
		return !s->on;
	if (s->others || s->ended || s->on > s->own)
		return false;
	return s->free || (s->lapsed && h->ran);
}

static void note_state(struct top_monitor_host *h, const struct host_state *s)
{
	h->was_on = h->was_on || s->on;
	h->ran = h->ran || s->own;
	/* a daemon that was started anew does not know whose it is */
	h->is_own = h->tried && (s->on > s->others || (s->lapsed && !h->ran));
	h->is_lost = h->tried && s->others;
}

static void report_started(const struct top_monitor *m, size_t n)
{
	if (n && !m->quiet)
		report_monitor(
			m,
			"the monitor was off: it is started in %zu process%s with %s, and stopped "
			"again at the end",
			n, n == 1 ? "" : "es", m->kinds);
}

static void start_monitors(struct top_monitor *m, const bool *want,
			   const struct client_answer *answers)
{
	size_t *reached = xcalloc(m->g->hosts->n + 1, sizeof(*reached)), new = 0;

	send_request(m, START, want, reached);
	for (size_t i = 0; i < m->g->hosts->n; i++) {
		struct top_monitor_host *h = &m->hosts[i];

		if (!reached[i])
			continue;
		new += h->tried ? 0 : reached[i];
		if (!h->tried)
			h->since_ns = count_at(answers[i].reply, "now");
		h->tried = h->is_own = true;
		h->ran = false;
		if (m->renew_ns == UINT64_MAX)
			m->renew_ns = clock_mono_ns() + lease_s(m) * NS_PER_S / RENEWALS;
	}
	free(reached);
	report_started(m, new);
}

void top_monitor_start(struct top_monitor *m, const struct client_answer *answers)
{
	bool *want = xcalloc(m->g->hosts->n + 1, sizeof(*want)), any = false;

	for (size_t i = 0; i < m->g->hosts->n; i++) {
		if (!answers[i].reply)
			continue;
		struct host_state s = state_of(answers[i].reply);

		note_state(&m->hosts[i], &s);
		m->was_known = m->was_known || s.known;
		want[i] = !m->only_observe && is_to_start(&m->hosts[i], &s);
		any = any || want[i];
	}
	if (any)
		start_monitors(m, want, answers);
	free(want);
}

static void drop_of(json_t *list, const json_t *pid)
{
	for (size_t i = json_array_size(list); i-- > 0;)
		if (json_equal(json_object_get(json_array_get(list, i), "pid"), pid))
			json_array_remove(list, i);
}

void top_monitor_drop_old(const struct top_monitor *m, const struct client_answer *answers)
{
	for (size_t i = 0; i < m->g->hosts->n; i++) {
		json_t *processes = json_object_get(answers[i].reply, "processes");
		json_t *slower = json_object_get(answers[i].reply, "regressions");
		json_t *waits = json_object_get(answers[i].reply, "waits");

		for (size_t k = json_array_size(processes); m->hosts[i].since_ns && k-- > 0;) {
			const json_t *p = json_array_get(processes, k);

			if (count_at(p, "to") > m->hosts[i].since_ns)
				continue;
			drop_of(slower, json_object_get(p, "pid"));
			drop_of(waits, json_object_get(p, "pid"));
			json_array_remove(processes, k);
		}
	}
}

void top_monitor_describe(const struct top_monitor *m, const struct client_answer *answers,
			  struct top_model *model)
{
	for (size_t i = 0; i < m->g->hosts->n; i++) {
		const struct top_monitor_host *h = &m->hosts[i];
		struct host_state s = state_of(answers[i].reply);

		model->lost_monitor = model->lost_monitor || h->is_lost;
		model->starting = model->starting || (h->is_own && !s.on);
		if (h->was_on && !s.on && s.ended) {
			model->ended++;
			model->stopped += s.stopped > 0;
		}
	}
	model->was_known = m->was_known;
}

/* --- the lease --- */

static bool find_own(const struct top_monitor *m, bool *out)
{
	bool any = false;

	for (size_t i = 0; i < m->g->hosts->n; i++) {
		out[i] = m->hosts[i].is_own;
		any = any || out[i];
	}
	return any;
}

void top_monitor_renew(struct top_monitor *m)
{
	bool *own = xcalloc(m->g->hosts->n + 1, sizeof(*own));
	size_t *reached = xcalloc(m->g->hosts->n + 1, sizeof(*reached));

	if (find_own(m, own))
		send_request(m, RENEW, own, reached);
	m->renew_ns = clock_mono_ns() + lease_s(m) * NS_PER_S / RENEWALS;
	free(reached);
	free(own);
}

/* --- the end --- */

/* Adds the pids whose monitor is on, though it was reported to stop; hosts that do not answer have
 * nobody to name. */
static size_t find_lingering(struct top_monitor *m, const bool *want, struct buf *out)
{
	json_t *request = json_pack("{s:s,s:i,s:I}", "fn", "getTop", "limit", 0, "lease",
				    (json_int_t)m->lease);
	struct client_answer *answers = ask_some(m, request, want);
	size_t found = 0, k;
	json_t *pid;

	for (size_t i = 0; i < m->g->hosts->n; i++) {
		json_array_foreach(json_object_get(answers[i].reply, "lingering"), k, pid)
		{
			if (found++ >= NAMED)
				continue;
			buf_addf(out, "%s%lld", out->len ? ", " : "",
				 (long long)json_integer_value(pid));
			if (m->g->hosts->n > 1)
				buf_addf(out, " (%s)", m->g->hosts->v[i].label);
		}
	}
	client_answers_free(m->g, answers);
	return found;
}

/* Once it is reported off, another request may come at once, which one that is on refuses. */
static size_t wait_until_off(struct top_monitor *m, const bool *want, struct buf *out)
{
	const struct timespec moment = {0, POLL_NS};
	uint64_t until = clock_mono_ns() + OFF_S * NS_PER_S;
	size_t on = find_lingering(m, want, out);

	while (on && clock_mono_ns() < until) {
		nanosleep(&moment, NULL);
		buf_clear(out);
		on = find_lingering(m, want, out);
	}
	if (on > NAMED)
		buf_add_str(out, ", …");
	return on;
}

static void stop_monitors(struct top_monitor *m, const bool *want)
{
	size_t *reached = xcalloc(m->g->hosts->n + 1, sizeof(*reached)), sum = 0;
	size_t failed = send_request(m, STOP, want, reached);
	struct buf pids = {0};

	for (size_t i = 0; i < m->g->hosts->n; i++)
		sum += reached[i];
	size_t on = sum ? wait_until_off(m, want, &pids) : 0;
	if (failed)
		report_monitor(
			m, "the request to stop the monitor failed: it ends by itself within %u s",
			lease_s(m));
	if (on)
		report_monitor(
			m,
			"after the request to stop, the monitor is still on in %zu process%s (%s): "
			"it ends by itself within %u s",
			on, on == 1 ? "" : "es", buf_str(&pids), lease_s(m));
	else if (sum && !failed)
		report_monitor(m, "the monitor is stopped again");
	buf_release(&pids);
	free(reached);
}

void top_monitor_end(struct top_monitor *m)
{
	bool *own = xcalloc(m->g->hosts->n + 1, sizeof(*own)), lost = false;

	if (find_own(m, own))
		stop_monitors(m, own);
	for (size_t i = 0; i < m->g->hosts->n; i++)
		lost = lost || m->hosts[i].is_lost;
	if (lost)
		report_monitor(m, "the monitor stays on: somebody else has requested it meanwhile");
	free(own);
	free(m->hosts);
	m->hosts = NULL;
}
