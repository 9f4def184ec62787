/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A request to profilers and monitors: a config text for the processes of a group of hosts, and its
 * outcome on each host.
 */
#ifndef SONDE_CLIENT_PROFILER_REQUEST_H
#define SONDE_CLIENT_PROFILER_REQUEST_H

#include "base/containers/buf.h"
#include "client/call_hosts.h"

enum profiler_kind { PROFILER_GPUTRACE, PROFILER_NPUTRACE, PROFILER_NPU_MONITOR };

enum profiler_state {
	PROFILER_TRIGGERED, /* at least one process gets it */
	PROFILER_NO_MATCH,
	PROFILER_BUSY, /* all that match have yet to fetch an earlier one */
	PROFILER_HELD, /* matched, but none may have it: --process-limit 0 */
	PROFILER_INEFFECTIVE, /* the daemon holds it back */
	PROFILER_UNKNOWN, /* it does not know whether it would work, and holds it back */
	PROFILER_REFUSED, /* it does not understand the request, or all that match are of others */
	PROFILER_FAILED, /* no answer */
	PROFILER_STATES
};
extern const char *const profiler_state_names[PROFILER_STATES];

struct profiler_outcome {
	enum profiler_state state;
	size_t matched, triggered, busy;
	size_t others; /* match, but belong to other users */
};

/* reply may be NULL. */
struct profiler_outcome profiler_outcome_read(const json_t *reply);

/* A --process-limit that was not given. */
#define PROFILER_NO_LIMIT UINT32_MAX
#define PROFILER_USUAL_LIMIT 3 /* as ever; see process_limit */

struct profiler_request {
	enum profiler_kind kind;
	uint64_t job_id;
	json_t *pids; /* an array; borrowed */
	/* PROFILER_NO_LIMIT: the usual one, which is for frameworks: one process of those asks for
	 * all ranks of a node. Daemons of ours send it to every process that asks for itself. */
	unsigned process_limit;
	int64_t start_step; /* of nputrace; -1: none */
	unsigned reply_ms; /* that the replies of processes are waited for; 0: as ever */
	bool with_reason; /* the answer has the reason why nothing was triggered */
	const void *options;
	/* Adds the config text. host: NULL if there is only one. */
	void (*config)(const void *options, const struct host_entry *host, struct buf *out);
};

unsigned profiler_request_limit(const struct profiler_request *q);

/* An element of each for every host. Zero-initialise. */
struct profiler_results {
	struct client_answer *answers;
	struct client_answer *explained; /* of hosts where nothing was triggered */
	struct client_answer *replies; /* of processes, where they reply */
	struct client_answer *status; /* of those that could not explain, or to see the step */
	struct profiler_outcome *outcomes;
};

/* Sends it, waits a moment for the replies of processes, and asks why nothing was triggered, or
 * whether the step is over. */
int profiler_request_send(struct client_group *g, const struct profiler_request *q,
			  struct profiler_results *out, struct err *err);
void profiler_results_release(const struct client_group *g, struct profiler_results *r);

/* NULL: there is one host only. */
const struct host_entry *profiler_host(const struct client_group *g, size_t i);
bool profiler_is_triggered(const struct profiler_results *r, size_t i);
/* Whether the step at which the trace was to begin is over. */
bool profiler_step_passed(const struct profiler_results *r, const struct profiler_request *q,
			  size_t i);
/* The object with the "reason"; NULL: there is none. */
const json_t *profiler_explanation(const struct profiler_results *r, size_t i);
size_t profiler_count_failures(const struct profiler_results *r, size_t i);
/* Processes that got it and have not replied that it failed. */
size_t profiler_count_takers(const struct profiler_results *r, size_t i);

#endif
