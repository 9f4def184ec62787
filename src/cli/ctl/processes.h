/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The processes that registered with the daemons of hosts, as a table. */
#ifndef SONDE_CLI_CTL_PROCESSES_H
#define SONDE_CLI_CTL_PROCESSES_H

#include "base/text/table.h"
#include "cli/ctl/ctl.h"

/* The titles of the table; with a column of hosts if there are several. */
const char *const *ctl_process_titles(const struct ctl *c);

/* Adds the row of a process as listProcesses describes it. */
void ctl_process_row(const struct ctl *c, size_t host, const json_t *process, struct table *t);

/*
 * Asks all hosts for all their processes, page by page. lists[i] becomes the array of host i, NULL
 * where it failed; `answers` holds the last page of each. `filter` (taken) has the keys that narrow
 * it. Fails only if nobody could be asked.
 */
int ctl_processes_ask(struct ctl *c, json_t *filter, json_t **lists, struct ctl_answer *answers,
		      struct err *err);

#endif
