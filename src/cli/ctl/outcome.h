/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What became of an order on one host, and what to do if nothing did. */
#ifndef SONDE_CLI_CTL_OUTCOME_H
#define SONDE_CLI_CTL_OUTCOME_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/containers/buf.h"

enum ctl_kind { CTL_GPUTRACE, CTL_NPUTRACE, CTL_NPU_MONITOR };

enum ctl_state {
	CTL_TRIGGERED, /* at least one process gets it */
	CTL_NO_MATCH,
	CTL_BUSY, /* all that match have yet to fetch an earlier one */
	CTL_HELD, /* matched, but none may have it: --process-limit 0 */
	CTL_INEFFECTIVE, /* the daemon holds it back */
	CTL_UNKNOWN, /* it cannot tell whether it would work, and holds it back */
	CTL_REFUSED, /* it does not understand the request */
	CTL_FAILED, /* no answer */
	CTL_STATES
};
extern const char *const ctl_state_names[CTL_STATES];

struct ctl_outcome {
	enum ctl_state state;
	size_t matched, triggered, busy;
};

/* reply may be NULL. */
struct ctl_outcome ctl_outcome_read(const json_t *reply);

/*
 * Adds plain words for an order that did not trigger: those of the daemon (the "reason" in its
 * answer, or in the one to explainRequest) or, where it does not know that function, what its
 * answer to getStatus suggests. Either may be NULL. `name` is "dyno" or "sonde ctl".
 */
void ctl_outcome_why(enum ctl_kind kind, const struct ctl_outcome *o, const json_t *explained,
		     const json_t *status, const char *name, struct buf *out);

/* Adds what is to know about one that did: processes left out by --process-limit or still busy.
 * Nothing, if there is nothing. */
void ctl_outcome_rest(const struct ctl_outcome *o, unsigned process_limit, struct buf *out);

/* Adds the options that a process has told it will do without. Nothing, if there are none. */
void ctl_outcome_without(const json_t *reply, struct buf *out);

/* Adds what it means for traces that have not begun, and for those that cannot begin yet. Nothing,
 * if there are none. */
void ctl_outcome_traces(const json_t *reply, const char *name, struct buf *out);

#endif
