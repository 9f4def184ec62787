/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What is printed of a request to profilers (client/profiler_request.h): one host's answer as
 * people and their scripts know it, those of many in a table, and both in plain words too.
 */
#ifndef SONDE_CLI_CTL_REQUEST_H
#define SONDE_CLI_CTL_REQUEST_H

#include "cli/ctl/ctl.h"
#include "client/wait.h"

/*
 * Adds plain words for a request that did not trigger: those of the daemon (the "reason" in its
 * answer, or in the one to explainRequest) or, where it does not know that function, what its
 * answer to getStatus suggests. Either may be NULL. `name` is "dyno" or "sonde ctl".
 */
void ctl_outcome_why(enum profiler_kind kind, const struct profiler_outcome *o,
		     const json_t *explained, const json_t *status, const char *name,
		     struct buf *out);

/* Adds what is to know about one that did: processes left out by --process-limit, still busy, or of
 * other users. Nothing, if there is nothing. */
void ctl_outcome_rest(const struct profiler_outcome *o, unsigned process_limit, struct buf *out);

/* --wait */
struct ctl_wait {
	bool on;
	unsigned timeout_s;
};
#define CTL_WAIT_TIMEOUT_S 600
#define CTL_WAIT_ROWS(at, help_)                                                                   \
	OPTION_FLAG("wait", at + offsetof(struct ctl_wait, on), help_, .group = "Waiting"),        \
		OPTION_UINT("wait-timeout", "SECONDS", at + offsetof(struct ctl_wait, timeout_s),  \
			    1, INT32_MAX, "600", "How long --wait waits at most.")

struct ctl_request {
	struct profiler_request q; /* without `pids` and `with_reason` */
	const char *pids; /* as on the command line */
	bool fail_on_no_process;
	bool memory; /* processes write snapshots of their memory, too */
	/* What happens next, in words: a sentence, or what each process does then. */
	const char *success, *each;
	/* Adds the path that a process will write; NULL: they write none. */
	void (*file)(const void *options, const struct host_entry *host, int64_t pid,
		     struct buf *out);
	/* Where traces go: the clocks of several hosts are kept beside it; NULL: nowhere. */
	const char *log_file;
	struct ctl_wait wait;
	enum wait_for wait_for;
	uint64_t duration_ms; /* of a trace by time; 0: by steps */
};

/* Prints how it went in each process that was waited for, as text; adds it to the JSON of a host; the
 * exit status that follows from it. */
int ctl_wait_print(struct ctl *c, const struct wait *w);
void ctl_wait_add_json(const struct wait *w, size_t host, json_t *row);
int ctl_wait_status(const struct ctl *c, const struct wait *w);

/* Sends it and prints the outcome. The exit status. */
int ctl_request_run(struct ctl *c, const struct ctl_request *o);

#endif
