/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Messages of processes: they register, report their states, and fetch configs. */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/mem.h"
#include "daemon/jobs/jobs_impl.h"

#define LOOKUPS_PER_S 100

int jobs_context(struct jobs *j, const struct jobs_sender *from, const struct fabric_context *c)
{
	int code = 0;
	struct jobs_process *p = jobs_register(j, from, c->job_id, c->pid, &code);

	if (!p)
		return code;
	if (p->received & JOBS_RECEIVED_CONTEXT)
		jobs_count(&j->per_device, jobs_device_key(p), -1);
	p->received |= JOBS_RECEIVED_CONTEXT;
	p->device = c->gpu;
	return (int)jobs_count(&j->per_device, jobs_device_key(p), 1);
}

/* Looking up ancestors reads /proc: what false claims cost is bounded for each user. */
static bool may_look_up(struct jobs *j, uid_t uid)
{
	uint64_t second = (uint64_t)jobs_now_ms() / 1000, v = hmap_get(&j->lookups, uid);
	uint64_t n = v != HMAP_NONE && v >> 16 == second ? (v & 0xffff) + 1 : 1;

	if (n > LOOKUPS_PER_S)
		return false;
	hmap_put(&j->lookups, uid, second << 16 | n);
	return true;
}

/*
 * Those of the pids by which it may be found. A process that could name any pid as that of an
 * ancestor would get what is meant for others, so an ordinary user's process must have them.
 */
static unsigned verify_pids(struct jobs *j, struct jobs_process *p, const int32_t *pids, unsigned n,
			    int32_t *out)
{
	uint64_t claim = XXH64(pids, n * sizeof(*pids), 0);

	if (!p->peer || jobs_is_trusted(j, p->uid)) {
		memcpy(out, pids, n * sizeof(*pids));
		return n;
	}
	if (p->npids && p->claim == claim)
		return 0; /* as it was */
	bool look_up = n == 1 || may_look_up(j, p->uid);
	p->claim = look_up ? claim : 0;
	if (!look_up) {
		out[0] = pids[0];
		return 1; /* until it asks again */
	}
	return jobs_verify_ancestors(p->peer->pid, pids, n, out);
}

/* Its ancestors, which change when one of them ends. */
static void set_pids(struct jobs *j, struct jobs_process *p, const int32_t *pids, unsigned n)
{
	int32_t sorted[FABRIC_MAX_PIDS];

	n = verify_pids(j, p, pids, n, sorted);
	if (!n)
		return;
	qsort(sorted, n, sizeof(*sorted), jobs_compare_pids);
	if (p->npids == n && !memcmp(p->pids, sorted, n * sizeof(*sorted)))
		return;
	p->pids = xrealloc(p->pids, n * sizeof(*sorted));
	memcpy(p->pids, sorted, n * sizeof(*sorted));
	p->npids = (uint8_t)n;
}

/* What goes to a guest whatever it does; NULL: nothing. */
static struct jobs_config **urgent_config(struct jobs_process *p)
{
	struct jobs_guest *g = p->guest;

	if (!g)
		return NULL;
	return g->internal_request ? &g->internal_request : g->stop ? &g->stop : NULL;
}

/* What is delivered now; NULL: nothing. */
static const struct jobs_config *due_config(struct jobs *j, struct jobs_process *p)
{
	struct jobs_config **first = urgent_config(p);

	if (first)
		return *first;
	if (!p->pending || !(p->mask & FABRIC_ACTIVITIES) || !jobs_arbiter_allows(j, p))
		return NULL;
	return p->pending;
}

/* A guest takes requests from the first time that it polls; its states follow at once. */
static void assume_idle(struct jobs_process *p)
{
	if (!(p->received & JOBS_RECEIVED_TRACE))
		p->trace = FABRIC_IDLE;
	if (!(p->received & JOBS_RECEIVED_MONITOR))
		p->monitor = FABRIC_IDLE;
	p->received |= JOBS_RECEIVED_TRACE | JOBS_RECEIVED_MONITOR;
}

int jobs_poll(struct jobs *j, const struct jobs_sender *from, const struct fabric_request *r,
	      unsigned npids, struct buf *out)
{
	int code = 0;

	j->delivering = NULL;
	BUG_ON(npids < 1 || npids > FABRIC_MAX_PIDS);
	struct jobs_process *p = jobs_register(j, from, r->job_id, r->pids[0], &code);
	/* the config of one that has died is not for another who got its pid */
	if (p && p->pending && p->peer && !jobs_peer_lives(p->peer)) {
		jobs_peer_forget(j, p->peer);
		p = jobs_register(j, from, r->job_id, r->pids[0], &code);
	}
	if (!p)
		return code;
	set_pids(j, p, r->pids, npids);
	if (p->guest && !(p->received & JOBS_RECEIVED_REQUEST))
		assume_idle(p);
	p->received |= JOBS_RECEIVED_REQUEST;
	p->mask = (uint8_t)(r->mask & (FABRIC_EVENTS | FABRIC_ACTIVITIES));
	jobs_arbiter_polled(j, p);
	const struct jobs_config *due = due_config(j, p);
	if (!due)
		return 0;
	buf_add(out, due->text, due->len);
	if (p->guest && due->leaves_out) /* frameworks get what they know */
		buf_add_str(out, "\nSONDE_OTHERS_LEFT_OUT=true");
	buf_add_char(out, '\n');
	j->delivering = p;
	return 0;
}

void jobs_delivered(struct jobs *j, bool sent)
{
	struct jobs_process *p = j->delivering;

	j->delivering = NULL;
	if (!p || !sent)
		return;
	struct jobs_config **first = urgent_config(p), **which = first ? first : &p->pending;
	struct jobs_config *c = *which;
	*which = NULL;
	if (!first) {
		p->pending = p->after;
		p->after = NULL;
		jobs_lease_delivered(p, c);
		if (c->is_monitor && !p->guest && !c->renews)
			j->monitor_ms = c->monitor_ms;
		j->counts.delivered++;
		jobs_arbiter_delivered(j, p, c);
	}
	jobs_config_release(c);
	/* it asks for one at a time */
	if (first && (urgent_config(p) || p->pending))
		jobs_notify(j, p);
}

static int8_t known_state(int32_t state)
{
	return state >= FABRIC_UNINITIALIZED && state <= FABRIC_READY ? (int8_t)state
								      : JOBS_STATE_UNKNOWN;
}

static void set_monitor(const struct jobs *j, struct jobs_process *p, int8_t state)
{
	/* The monitor of a framework does not report its end; that of a guest does. */
	if (!p->guest && state == FABRIC_RUNNING &&
	    jobs_monitor_state(p, p->last_ms) != FABRIC_RUNNING)
		p->monitor_until_ms = j->monitor_ms ? p->last_ms + j->monitor_ms : 0;
	p->monitor = state;
	p->received |= JOBS_RECEIVED_MONITOR;
}

void jobs_status(struct jobs *j, const struct jobs_sender *from, enum fabric_kind kind,
		 const struct fabric_status *s)
{
	int code = 0;
	struct jobs_process *p = jobs_register(j, from, s->job_id, s->pid, &code);

	if (!p)
		return;
	p->status_ms = p->last_ms;
	if (kind == FABRIC_MONITOR_STATUS) {
		set_monitor(j, p, known_state(s->state));
		jobs_arbiter_status(j, p);
		return;
	}
	int trace = known_state(s->state);
	if (trace == FABRIC_IDLE && (p->trace == FABRIC_RUNNING || p->trace == FABRIC_READY))
		p->traces_ended++;
	p->trace = (int8_t)trace;
	if (p->guest && trace != FABRIC_RUNNING)
		p->guest->ends_trace = false;
	if (s->current_step > p->current_step && p->current_step >= 0)
		p->step_ms = p->last_ms;
	p->current_step = s->current_step;
	p->start_step = s->start_step;
	p->stop_step = s->stop_step;
	p->received |= JOBS_RECEIVED_TRACE;
}
