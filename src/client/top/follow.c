/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "client/top/follow.h"

#include "base/clock.h"

#define NS_PER_S 1000000000ull
#define PATIENCE_S 20 /* for a first report, beyond two intervals */
#define NO_REPORT_S 6 /* the same for clients that may send none */
#define OVER_S 4 /* that what has ended may begin anew, before it is reported to be over */
#define LATE_S 2 /* that the last process is waited for, beyond two intervals */
#define POLL_NS (NS_PER_S / 4) /* how often a report that is awaited is polled */
#define OWNER_ROWS 200 /* the same, with those of modules and lines */
#define EXTRA_ROWS 40 /* of each process beyond those shown: sums of many are by all of them */

/* --- polling --- */

static int poll_hosts(struct top_follow *f, struct err *err)
{
	json_t *request = json_pack("{s:s,s:i,s:I}", "fn", "getTop", "limit",
				    (int)(f->o.lines + (f->o.attribute ? OWNER_ROWS : EXTRA_ROWS)),
				    "lease", (json_int_t)f->monitor.lease);

	if (f->o.job_id >= 0)
		json_object_set_new(request, "job_id", json_integer(f->o.job_id));
	if (f->o.pids)
		json_object_set(request, "pids", f->o.pids);
	top_model_release(&f->model);
	client_answers_free(f->g, f->answers);
	f->answers = client_answers_new(f->g);
	return client_ask_all(f->g, request, f->answers, err);
}

/* A daemon that does not know the function closes the connection. */
static void explain_old_daemons(struct top_follow *f)
{
	for (size_t i = 0; i < f->g->hosts->n; i++) {
		struct client_answer *a = &f->answers[i];

		if (a->reply && !json_is_array(json_object_get(a->reply, "processes"))) {
			const char *status = json_string_value(json_object_get(a->reply, "status"));

			err_set(&a->err, -1, "the daemon does not report what takes time: %.300s",
				status ? status : "is it one of sonde?");
			json_decref(a->reply);
			a->reply = NULL;
		}
	}
}

bool top_follow_anybody_answers(const struct top_follow *f)
{
	for (size_t i = 0; i < f->g->hosts->n; i++)
		if (f->answers[i].reply)
			return true;
	return false;
}

/* --- what follows from a poll --- */

/* Nothing more comes: the monitor has ended while we polled, or the process has. It may be a
 * matter of moments, when a daemon or a job is started anew. */
static bool is_over(struct top_follow *f, const struct top_model *m, uint64_t now)
{
	bool over = !m->running && !m->paused && (m->ended || (m->was_known && !m->known));

	if (!over)
		f->over_ns = 0;
	else if (!f->over_ns)
		f->over_ns = now;
	return over && now - f->over_ns > OVER_S * NS_PER_S;
}

/* All that are monitored are clients of others, and none has reported for longer than one of ours
 * would take. */
static bool reports_nothing(struct top_follow *f, const struct top_model *m, uint64_t now)
{
	if (m->nprocesses || m->running > m->not_reporting || !m->known)
		f->reports_nothing_since_ns = 0;
	else if (m->not_reporting && !f->reports_nothing_since_ns)
		f->reports_nothing_since_ns = now;
	/* whether it is on is not known of such at every moment */
	return f->reports_nothing_since_ns &&
	       now - f->reports_nothing_since_ns > (2 * f->o.interval_s + NO_REPORT_S) * NS_PER_S;
}

static enum top_end show_news(struct top_follow *f, const struct top_model *m)
{
	const struct top_follow_options *o = &f->o;
	uint64_t now = clock_mono_ns();
	bool is_new = o->live ||
		      top_news_is(&f->news, m, o->once, (2 * o->interval_s + LATE_S) * NS_PER_S);

	if (is_new && !f->ops->show(f->arg, m, f->answers))
		return TOP_BROKEN;
	if (is_new)
		top_news_shown(&f->news, m);
	if (o->live)
		return TOP_GO_ON;
	f->shown += is_new;
	if ((o->once && f->shown) || (o->count && f->shown >= o->count))
		return TOP_DONE;
	/* a caller that waits for so many reports, or the first of a monitor that is on, gets them,
	 * or learns that none comes */
	bool over = is_over(f, m, now), bounded = o->once || o->count;
	bool hopeless =
		(!m->running && !m->paused && (o->no_start || !m->known)) || m->reports_nothing;
	if ((over && bounded) || (!f->shown && (now > f->patience_ns || (hopeless && o->once))))
		return TOP_NOTHING;
	if (over && !f->over_reported)
		f->ops->report_nothing(f->arg, m);
	f->over_reported = over;
	return TOP_GO_ON;
}

static enum top_end handle_answers(struct top_follow *f)
{
	struct top_model *m = &f->model;

	explain_old_daemons(f);
	top_news_note(&f->news, f->g, f->answers);
	top_monitor_start(&f->monitor, f->answers);
	top_monitor_drop_old(&f->monitor, f->answers);
	top_model_make(m, f->g, f->answers, f->o.kinds);
	top_monitor_describe(&f->monitor, f->answers, m);
	m->reports_nothing = reports_nothing(f, m, clock_mono_ns());
	enum top_end end = show_news(f, m);
	if (end == TOP_NOTHING)
		f->ops->report_nothing(f->arg, m);
	f->empty = !m->nprocesses;
	return end;
}

/* --- the loop --- */

/* Until the next poll. False: the user wants to end. */
static bool wait_for_poll(struct top_follow *f)
{
	uint64_t moment = f->o.live && !f->empty ? f->o.interval_s * NS_PER_S : POLL_NS;
	uint64_t until = clock_mono_ns() + moment;
	bool more = true;

	for (bool again = true; again && more && !f->ops->must_end();) {
		uint64_t due = f->monitor.renew_ns;

		again = due < until;
		more = f->ops->wait(f->arg, again ? due : until);
		if (clock_mono_ns() >= f->monitor.renew_ns)
			top_monitor_renew(&f->monitor);
		else
			again = false; /* a key, or a terminal of another size */
	}
	return more;
}

static void begin_polling(struct top_follow *f)
{
	f->monitor = (struct top_monitor){.g = f->g,
					  .pids = f->o.pids,
					  .job_id = f->o.job_id < 0 ? 0 : f->o.job_id,
					  .interval_s = f->o.interval_s,
					  .kinds = f->o.start_kinds,
					  .attribute = f->o.attribute,
					  .only_observe = f->o.no_start,
					  .quiet = f->o.live,
					  .say = f->ops->say,
					  .arg = f->arg};
	top_news_begin(&f->news, f->g);
	top_monitor_begin(&f->monitor);
	f->patience_ns = clock_mono_ns() + (2 * f->o.interval_s + PATIENCE_S) * NS_PER_S;
}

enum top_end top_follow_run(struct top_follow *f, struct err *err)
{
	enum top_end end = TOP_GO_ON;
	uint64_t reached_ns = 0;

	begin_polling(f);
	while (end == TOP_GO_ON && !f->ops->must_end()) {
		if (poll_hosts(f, err) < 0) {
			client_answers_free(f->g, f->answers);
			f->answers = NULL;
			return TOP_UNREACHABLE;
		}
		if (top_follow_anybody_answers(f)) {
			if (!reached_ns && f->ops->reached)
				f->ops->reached(f->arg);
			reached_ns = clock_mono_ns();
		} else if (!reached_ns ||
			   (!f->o.live && clock_mono_ns() - reached_ns > PATIENCE_S * NS_PER_S)) {
			return TOP_UNREACHABLE;
		}
		end = handle_answers(f);
		if (end == TOP_GO_ON && !wait_for_poll(f))
			end = TOP_DONE;
	}
	return end == TOP_GO_ON ? TOP_DONE : end;
}

void top_follow_end(struct top_follow *f)
{
	top_monitor_end(&f->monitor);
	top_model_release(&f->model);
	client_answers_free(f->g, f->answers);
	top_news_release(&f->news);
}
