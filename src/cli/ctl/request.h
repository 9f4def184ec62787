/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A request: a config text for the processes of one host or many, and its outcome on each host. One
 * host's answer is printed as people and their scripts know it, many in a table, and both in plain
 * words too.
 */
#ifndef SONDE_CLI_CTL_REQUEST_H
#define SONDE_CLI_CTL_REQUEST_H

#include "cli/ctl/ctl.h"

enum ctl_kind { CTL_GPUTRACE, CTL_NPUTRACE, CTL_NPU_MONITOR };

enum ctl_state {
	CTL_TRIGGERED, /* at least one process gets it */
	CTL_NO_MATCH,
	CTL_BUSY, /* all that match have yet to fetch an earlier one */
	CTL_HELD, /* matched, but none may have it: --process-limit 0 */
	CTL_INEFFECTIVE, /* the daemon holds it back */
	CTL_UNKNOWN, /* it does not know whether it would work, and holds it back */
	CTL_REFUSED, /* it does not understand the request, or all that match are of others */
	CTL_FAILED, /* no answer */
	CTL_STATES
};
extern const char *const ctl_state_names[CTL_STATES];

struct ctl_outcome {
	enum ctl_state state;
	size_t matched, triggered, busy;
	size_t others; /* match, but belong to other users */
};

/* reply may be NULL. */
struct ctl_outcome ctl_outcome_read(const json_t *reply);

/*
 * Adds plain words for a request that did not trigger: those of the daemon (the "reason" in its
 * answer, or in the one to explainRequest) or, where it does not know that function, what its
 * answer to getStatus suggests. Either may be NULL. `name` is "dyno" or "sonde ctl".
 */
void ctl_outcome_why(enum ctl_kind kind, const struct ctl_outcome *o, const json_t *explained,
		     const json_t *status, const char *name, struct buf *out);

/* Adds what is to know about one that did: processes left out by --process-limit, still busy, or of
 * other users.
 * Nothing, if there is nothing. */
void ctl_outcome_rest(const struct ctl_outcome *o, unsigned process_limit, struct buf *out);

/* A --process-limit that was not given. */
#define CTL_NO_LIMIT UINT32_MAX
#define CTL_USUAL_LIMIT 3 /* as ever; see process_limit */

struct ctl_request {
	enum ctl_kind kind;
	uint64_t job_id;
	const char *pids;
	/* CTL_NO_LIMIT: the usual one, which is for frameworks: one process of those asks for all
	 * ranks of a node. Daemons of ours send it to every process that asks for itself. */
	unsigned process_limit;
	int64_t start_step; /* of nputrace; -1: none */
	bool fail_on_no_process;
	bool memory; /* processes write snapshots of their memory, too */
	/* What happens next, in words: a sentence, or what each process does then. */
	const char *success, *each;
	const void *options;
	/* Adds the config text. host: NULL if there is only one. */
	void (*config)(const void *options, const struct host_entry *host, struct buf *out);
	/* Adds the path that a process will write; NULL: they write none. */
	void (*file)(const void *options, const struct host_entry *host, int64_t pid,
		     struct buf *out);
};

/* The exit status. */
int ctl_request_run(struct ctl *c, const struct ctl_request *o);

#endif
