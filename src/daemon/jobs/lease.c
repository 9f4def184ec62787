/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Whose a monitor is. Somebody who only looks on, as `sonde top` does, lends himself one: his
 * orders carry a number of his own (SONDE_LEASE) and a DURATION that he renews, so that it ends
 * soon after he does. It is the monitor that holds to this (control.c); here it is known beforehand
 * who would be told in vain, and told who asks. After a restart nothing is known until somebody
 * renews.
 */
#include "daemon/jobs/config_text.h"
#include "daemon/jobs/jobs_impl.h"
#include "wire/request.h"

#include <string.h>

#define SETTLE_MS 5000 /* that a monitor may take to say that it is on */

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
		return false; /* nobody's trace gives way to who looks on */
	if (is_on(p, now_ms))
		return p->lease == lease;
	return !p->lease || p->lease == lease || now_ms - p->lent_ms > SETTLE_MS;
}

bool jobs_lease_lets(const struct jobs_process *p, const struct jobs_config *c)
{
	const struct jobs_config *before = p->pending;

	/* what somebody else has ordered is on its way; or the same is */
	if (before && (before->lease != c->lease || !c->stops))
		return false;
	if (c->starts && !c->stops)
		return may_start(p, c->lease, jobs_now_ms());
	return p->lease == c->lease || !p->ordered;
}

void jobs_lease_given(struct jobs_process *p, const struct jobs_config *c)
{
	if (!c->is_monitor)
		return;
	if (c->lease) {
		p->lease = c->stops ? 0 : c->lease;
		p->left = c->stops ? c->lease : 0;
		p->ordered = !c->stops;
		p->ended = false;
		p->lent_ms = jobs_now_ms();
	} else if (c->starts || c->stops) { /* one that only changes it leaves it whose it is */
		p->lease = p->left = 0;
		p->ordered = true;
		p->ended = c->stops;
	}
}

void jobs_lease_delivered(struct jobs_process *p, const struct jobs_config *c)
{
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
		out->others += p->ordered && !own;
		return;
	}
	out->lapsed += own;
	out->ended += p->ordered && !p->lease;
	out->stopped += p->ended;
	out->free += !own && (!p->ordered || p->lease);
}

bool jobs_lease_lingers(const struct jobs_process *p, uint64_t lease, int64_t now_ms)
{
	return lease && p->left == lease &&
	       (is_on(p, now_ms) || (p->pending && p->pending->lease == lease));
}

json_t *jobs_leases_json(const struct jobs_leases *l)
{
	return json_pack("{s:i,s:i,s:i,s:i,s:i,s:i}", "own", (int)l->own, "others", (int)l->others,
			 "lapsed", (int)l->lapsed, "ended", (int)l->ended, "stopped",
			 (int)l->stopped, "free", (int)l->free);
}
