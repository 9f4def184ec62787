/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * In a CUDA process the monitor of a guest and PyTorch's own profiler (libkineto) want the same
 * library, and together neither gets anything. So the monitor is paused:
 *
 *	a trace is requested, or libkineto is seen to be busy, while the monitor is running
 *	  -> the guest gets "SONDE_PAUSE=true"; the trace is held back        ASKED
 *	its monitor is not running any more, or five seconds have passed
 *	  -> libkineto gets its config when it polls                          KEPT
 *	libkineto has been busy and is not any more, or never was, or is gone
 *	  -> the guest gets "SONDE_PAUSE=false"                               ENDING
 *	its monitor is running again, or does not want to                     NONE
 *
 * What gets lost is sent again. SONDE_PAUSE_S says for how many seconds a guest pauses if it gets
 * nothing more: it may then resume by itself, so that the end of this daemon leaves nobody waiting.
 *
 * The other way round, what would start a guest's monitor or trace waits with us while libkineto
 * is busy in the same process.
 */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/jobs/jobs_impl.h"
#include "daemon/loop.h"

#define LOG_AREA "jobs"
#include "base/log.h"

#define AGAIN_MS 1000 /* it should have paused: the request is sent again */
#define PAUSE_WAIT_MS 5000 /* so long a trace is held back */
#define RENEW_MS 30000
#define PAUSE "SONDE_PAUSE=true\nSONDE_PAUSE_S=90"
#define RESUME "SONDE_PAUSE=false"
#define RESUME_TRIES 5
#define GONE_MS 30000 /* libkineto asks every five seconds */
#define TRACE_MS 60000 /* a trace of the guest's own may take so long */

bool jobs_tracer_is_busy(const struct jobs_process *tracer, int64_t now_ms)
{
	return tracer && (tracer->received & JOBS_RECEIVED_REQUEST) &&
	       !(tracer->mask & FABRIC_ACTIVITIES) && now_ms - tracer->last_ms < GONE_MS;
}

/* --- the timer --- */

static void arm_timer(struct jobs *j)
{
	int64_t first = INT64_MAX, now = jobs_now_ms();
	const struct jobs_guest *g;

	TAILQ_FOREACH(g, &j->pauses, link)
	if (g->due_ms < first)
		first = g->due_ms;
	if (first == INT64_MAX) {
		event_del(j->pause_due);
		return;
	}
	loop_timer_start(j->pause_due, first > now ? (uint64_t)(first - now) * 1000 : 0);
}

static void check_at(struct jobs *j, struct jobs_guest *g, int64_t due_ms)
{
	g->due_ms = due_ms;
	arm_timer(j);
}

/* --- states --- */

static void send_internal_request(struct jobs *j, struct jobs_guest *g, const char *text)
{
	jobs_config_release(g->internal_request);
	g->internal_request = jobs_config_new(text);
	jobs_notify(j, g->self);
}

static void end_pause(struct jobs *j, struct jobs_guest *g)
{
	if (g->pause == JOBS_PAUSE_NONE)
		return;
	g->pause = JOBS_PAUSE_NONE;
	g->tracer = NULL;
	TAILQ_REMOVE(&j->pauses, g, link);
	arm_timer(j);
}

static void request_resume(struct jobs *j, struct jobs_guest *g)
{
	g->pause = JOBS_PAUSE_ENDING;
	g->tracer = NULL;
	g->tries = 0;
	send_internal_request(j, g, RESUME);
	check_at(j, g, jobs_now_ms() + AGAIN_MS);
}

static void confirm_pause(struct jobs *j, struct jobs_guest *g)
{
	g->pause = JOBS_PAUSE_KEPT;
	check_at(j, g, jobs_now_ms() + RENEW_MS);
}

static void request_pause(struct jobs *j, struct jobs_guest *g, struct jobs_process *tracer)
{
	int64_t now = jobs_now_ms();

	if (g->pause == JOBS_PAUSE_NONE)
		TAILQ_INSERT_TAIL(&j->pauses, g, link);
	g->pause = JOBS_PAUSE_ASKED;
	g->tracer = tracer;
	g->since_ms = now;
	g->begun_ms = 0;
	g->was_busy = false;
	g->wanted = true;
	j->counts.pauses++;
	send_internal_request(j, g, PAUSE);
	check_at(j, g, now + AGAIN_MS);
}

/* --- what happens --- */

void jobs_arbiter_trace_requested(struct jobs *j, struct jobs_process *p)
{
	struct jobs_process *guest = jobs_guest_of(j, p);

	if (!guest)
		return;
	struct jobs_guest *g = guest->guest;
	bool paused = g->pause == JOBS_PAUSE_ASKED || g->pause == JOBS_PAUSE_KEPT;
	if (paused)
		g->begun_ms = 0; /* one more trace: it stays there for both */
	else if (guest->monitor == FABRIC_RUNNING || g->pause == JOBS_PAUSE_ENDING)
		request_pause(j, g, p);
}

static bool allows_tracer(struct jobs *j, struct jobs_process *p)
{
	const struct jobs_process *guest = jobs_guest_of(j, p);
	int64_t now = jobs_now_ms();

	if (!guest)
		return true;
	if (guest->trace == FABRIC_RUNNING && now - guest->status_ms < TRACE_MS)
		return false;
	if (guest->guest->pause == JOBS_PAUSE_NONE && guest->monitor == FABRIC_RUNNING)
		jobs_arbiter_trace_requested(j, p); /* it was started since */
	return guest->guest->pause != JOBS_PAUSE_ASKED;
}

bool jobs_arbiter_allows(struct jobs *j, struct jobs_process *p)
{
	if (!p->guest)
		return allows_tracer(j, p);
	return p->pending->stops || p->pending->renews ||
	       !jobs_arbiter_reason(j, p, CONFIG_NPU_MONITOR);
}

void jobs_arbiter_polled(struct jobs *j, struct jobs_process *p)
{
	struct jobs_process *guest = jobs_guest_of(j, p);
	int64_t now = jobs_now_ms();

	if (!guest)
		return;
	struct jobs_guest *g = guest->guest;
	bool busy = jobs_tracer_is_busy(p, now);
	if (g->pause == JOBS_PAUSE_NONE) {
		if (busy && guest->monitor == FABRIC_RUNNING) {
			/* not by a request of ours: somebody has called torch.profiler */
			request_pause(j, g, p);
			g->was_busy = true;
		} else if (!busy && guest->pending) {
			jobs_notify(j, guest);
		}
		return;
	}
	if (g->pause == JOBS_PAUSE_ENDING || g->tracer != p)
		return;
	if (busy)
		g->was_busy = g->was_busy || g->begun_ms;
	else if (!p->pending && (g->was_busy || (g->begun_ms && now > g->begun_ms)))
		request_resume(j, g);
}

void jobs_arbiter_delivered(struct jobs *j, struct jobs_process *p, const struct jobs_config *c)
{
	if (p->guest) {
		if (c->is_monitor && !c->renews)
			p->guest->wanted = !c->stops;
		return;
	}
	struct jobs_process *guest = jobs_guest_of(j, p);
	if (!guest || guest->guest->pause != JOBS_PAUSE_KEPT)
		return;
	guest->guest->begun_ms = jobs_now_ms() + c->wait_ms;
	guest->guest->was_busy = false;
}

void jobs_arbiter_status(struct jobs *j, struct jobs_process *p)
{
	struct jobs_guest *g = p->guest;

	if (!g)
		return;
	if (g->pause == JOBS_PAUSE_ASKED && p->monitor != FABRIC_RUNNING)
		confirm_pause(j, g);
	else if (g->pause == JOBS_PAUSE_ENDING && p->monitor == FABRIC_RUNNING &&
		 !g->internal_request)
		end_pause(j, g);
}

void jobs_arbiter_forget(struct jobs *j, struct jobs_process *p)
{
	struct jobs_guest *g;

	if (p->guest) {
		end_pause(j, p->guest);
		return;
	}
	TAILQ_FOREACH(g, &j->pauses, link)
	if (g->tracer == p) {
		g->tracer = NULL;
		check_at(j, g, 0); /* not now: the guest may be the next to be forgotten */
	}
}

/* --- time passes --- */

static void retry_pause(struct jobs *j, struct jobs_guest *g, int64_t now)
{
	if (now - g->since_ms >= PAUSE_WAIT_MS) {
		if (user_limit_take(j->log_limit, g->self->uid))
			log_warn("the monitor in process %d does not pause for a trace, which "
				 "begins all "
				 "the "
				 "same and may be empty",
				 (int)g->self->pid);
		j->counts.unpaused++;
		confirm_pause(j, g);
		return;
	}
	send_internal_request(j, g, PAUSE);
	check_at(j, g, now + AGAIN_MS);
}

static void retry_resume(struct jobs *j, struct jobs_guest *g, int64_t now)
{
	bool back = g->self->monitor == FABRIC_RUNNING;

	if (!g->internal_request && (back || !g->wanted || g->tries >= RESUME_TRIES)) {
		end_pause(j, g);
		return;
	}
	if (g->tries < RESUME_TRIES)
		g->tries++;
	send_internal_request(j, g, RESUME);
	check_at(j, g, now + AGAIN_MS * g->tries);
}

static void check_pause(struct jobs *j, struct jobs_guest *g, int64_t now)
{
	const struct jobs_process *t = g->tracer;

	if (g->pause == JOBS_PAUSE_ENDING) {
		retry_resume(j, g, now);
	} else if (!t || now - t->last_ms > GONE_MS) {
		request_resume(j, g);
	} else if (g->pause == JOBS_PAUSE_ASKED) {
		retry_pause(j, g, now);
	} else {
		send_internal_request(j, g, PAUSE); /* or it would go on by itself */
		check_at(j, g, now + RENEW_MS);
	}
}

static void on_due(evutil_socket_t fd, short what, void *arg)
{
	struct jobs *j = arg;
	int64_t now = jobs_now_ms();
	struct jobs_guest *g, *next;

	(void)fd, (void)what;
	for (g = TAILQ_FIRST(&j->pauses); g; g = next) {
		next = TAILQ_NEXT(g, link);
		if (g->due_ms <= now)
			check_pause(j, g, now);
	}
	arm_timer(j);
}

void jobs_arbiter_init(struct jobs *j)
{
	TAILQ_INIT(&j->pauses);
	j->pause_due = loop_event_new(j->base, -1, 0, DAEMON_PRIORITY_RPC, on_due, j);
}

void jobs_arbiter_release(struct jobs *j)
{
	event_free(j->pause_due);
}

/* --- words --- */

const char *jobs_arbiter_reason(const struct jobs *j, const struct jobs_process *p,
				enum config_kind kind)
{
	int64_t now = jobs_now_ms();

	if (p->guest) {
		enum jobs_pause pause = p->guest->pause;

		if (kind != CONFIG_KINETO &&
		    (pause == JOBS_PAUSE_ASKED || pause == JOBS_PAUSE_KEPT ||
		     jobs_tracer_is_busy(jobs_tracer_of(j, p), now)))
			return "waits until the trace by PyTorch's own profiler in the same "
			       "process is over";
		return NULL;
	}
	const struct jobs_process *guest = kind == CONFIG_KINETO ? jobs_guest_of(j, p) : NULL;
	if (!guest)
		return NULL;
	if (guest->trace == FABRIC_RUNNING)
		return "waits until the trace by nputrace in the same process is over";
	if (guest->monitor == FABRIC_RUNNING || guest->guest->pause == JOBS_PAUSE_ASKED)
		return "waits until the monitor in the same process is paused, which takes "
		       "seconds at most; the monitor resumes when the trace is over";
	return NULL;
}
