/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Clocks of hosts: round trips that are kept beside traces, for `sonde timeline`. */
#ifndef SONDE_CLI_CTL_CLOCKS_H
#define SONDE_CLI_CTL_CLOCKS_H

#include "cli/ctl/ctl.h"

/*
 * Before and after a trace of several hosts: adds round trips to the file beside the trace, which all
 * hosts write to `log_file`: /data/prof has /data/prof.clocks.json, /tmp/trace.json has
 * /tmp/trace_clocks.json. Where this machine has no such directory, says so once.
 */
void ctl_clocks_keep(struct ctl *c, const char *log_file);

/* Where that is. */
void ctl_clocks_path(const char *log_file, struct buf *out);

#endif
