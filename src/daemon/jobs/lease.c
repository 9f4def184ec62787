/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Whose a monitor is. Observers, as `sonde top` is one, hold a time-limited lease: their requests
 * carry a number of their own (SONDE_LEASE) and a DURATION that they renew, so that the monitor
 * ends soon after they do. The monitor itself enforces this (control.c); here it is known
 * beforehand which requests would be in vain, and reported to the caller. After a restart nothing is
 * known until somebody renews.
 */
#include "daemon/jobs/jobs_impl.h"
#include "wire/request.h"

#include <string.h>

#define SETTLE_MS 5000 /* that a monitor may take to report that it is on */

uint64_t jobs_lease_of(const char *config)
{
	struct request_text t;
	uint64_t lease = 0;

	if (request_find(config, strlen(config), "SONDE_LEASE", &t) &&
	    !request_number(&t, INT64_MAX, &lease))
		lease = 0;
	return lease;
}

static bool is_on(const struct jobs_process *p, int64_t now_ms)
{
	int state = jobs_monitor_state(p, now_ms);

	return state == FABRIC_RUNNING || state == FABRIC_READY;
}

static bool may_start(const struct jobs_process *p, uint64_t lease, int64_t now_ms)
{
	if (p->trace == FABRIC_RUNNING || p->trace == FABRIC_READY)
		return false; /* no trace gives way to an observer */
	if (is_on(p, now_ms))
		return p->lease == lease;
	return !p->lease || p->lease == lease || now_ms - p->leased_ms > SETTLE_MS;
}

bool jobs_lease_allows(const struct jobs_process *p, const struct jobs_config *c)
{
	const struct jobs_config *before = p->pending;

	/* a request of somebody else is on its way; or the same is */
	if (before && (before->lease != c->lease || !c->stops))
		return false;
	if (c->starts && !c->stops)
		return may_start(p, c->lease, jobs_now_ms());
	return p->lease == c->lease || !p->switched;
}

void jobs_lease_assigned(struct jobs_process *p, const struct jobs_config *c)
{
	if (!c->is_monitor)
		return;
	if (c->lease) {
		p->lease = c->stops ? 0 : c->lease;
		p->stopped_lease = c->stops ? c->lease : 0;
		p->switched = !c->stops;
		p->switched_off = false;
		p->leased_ms = jobs_now_ms();
	} else if (c->starts || c->stops) { /* one that only changes it leaves it whose it is */
		p->lease = p->stopped_lease = 0;
		p->switched = true;
		p->switched_off = c->stops;
	}
}

void jobs_lease_delivered(struct jobs_process *p, const struct jobs_config *c)
{
	if (c->is_monitor && c->stops)
		p->stopped_ms = jobs_now_ms();
	/* of a guest it is not estimated */
	if (c->renews && p->monitor_until_ms)
		p->monitor_until_ms = jobs_now_ms() + c->monitor_ms;
}

void jobs_lease_count(const struct jobs_process *p, uint64_t lease, int64_t now_ms,
		      struct jobs_leases *out)
{
	bool own = lease && p->lease == lease;

	if (is_on(p, now_ms)) {
		out->own += own;
		out->others += p->switched && !own;
		return;
	}
	out->lapsed += own;
	out->ended += p->switched && !p->lease;
	out->stopped += p->switched_off;
	out->free += !own && (!p->switched || p->lease);
}

bool jobs_lease_stop_pending(const struct jobs_process *p, uint64_t lease, int64_t now_ms)
{
	return lease && p->stopped_lease == lease &&
	       (is_on(p, now_ms) || (p->pending && p->pending->lease == lease));
}

json_t *jobs_leases_json(const struct jobs_leases *l)
{
	return json_pack("{s:i,s:i,s:i,s:i,s:i,s:i}", "own", (int)l->own, "others", (int)l->others,
			 "lapsed", (int)l->lapsed, "ended", (int)l->ended, "stopped",
			 (int)l->stopped, "free", (int)l->free);
}
