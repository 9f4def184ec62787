/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * An order: a config text for the processes of one host or many. One host's answer is told as
 * people and their scripts know it, many are told in a table, and both in plain words too.
 */
#ifndef SONDE_CLI_CTL_REQUEST_H
#define SONDE_CLI_CTL_REQUEST_H

#include "cli/ctl/ctl.h"
#include "cli/ctl/outcome.h"

/* A --process-limit that nobody has given. */
#define CTL_NO_LIMIT UINT32_MAX
#define CTL_USUAL_LIMIT 3 /* as ever; see process_limit */

struct ctl_order {
	enum ctl_kind kind;
	uint64_t job_id;
	const char *pids;
	/* CTL_NO_LIMIT: the usual one, which is for frameworks: one process of those asks for all
	 * ranks of a node. Daemons of ours tell every process that asks for itself. */
	unsigned process_limit;
	int64_t start_step; /* of nputrace; -1: none */
	bool fail_on_no_process;
	bool memory; /* processes write snapshots of their memory, too */
	/* What happens next, in words: a sentence, or what each process does then. */
	const char *success, *each;
	const void *options;
	/* Adds the config text. host: NULL if there is only one. */
	void (*config)(const void *options, const struct ctl_host *host, struct buf *out);
	/* Adds the path that a process will write; NULL: they write none. */
	void (*file)(const void *options, const struct ctl_host *host, int64_t pid,
		     struct buf *out);
};

/* Asks what processes say to what they were told, for so long at most: the answers of the hosts
 * name it. `said` has an element for every host, zeroed; one without a reply: nobody was told. */
int ctl_order_hear(struct ctl *c, unsigned ms, const struct ctl_answer *answers,
		   struct ctl_answer *said, struct err *err);

/* The exit status. */
int ctl_order_run(struct ctl *c, const struct ctl_order *o);

#endif
