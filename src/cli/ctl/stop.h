/* SPDX-License-Identifier: MulanPSL-2.0 */
/* nputrace --stop: traces that wait or run end now, and the outcome in each process. */
#ifndef SONDE_CLI_CTL_STOP_H
#define SONDE_CLI_CTL_STOP_H

#include "cli/ctl/ctl.h"

enum ctl_stopped {
	CTL_ENDED, /* it had begun: what there is of it is written */
	CTL_DROPPED, /* it had not */
	CTL_NOT_ENDED, /* it goes on, or that is not known */
	CTL_NO_TRACE,
	CTL_STOPPED_STATES
};
extern const char *const ctl_stopped_names[CTL_STOPPED_STATES];

/* One process. The words are those of the daemon or the process; "" if there are none. */
struct ctl_stop_row {
	int64_t pid;
	enum ctl_stopped state;
	const char *words; /* in the answers */
};

/* All processes of a host, in the order of their pids, each once. The caller frees it.
 * reply: to stopTrace; replies: to getAnswers. Either may be NULL. */
struct ctl_stop_row *ctl_stop_read(const json_t *reply, const json_t *replies, size_t *out_n);

struct ctl_stop {
	uint64_t job_id;
	const char *pids;
};

/* The exit status. */
int ctl_stop_run(struct ctl *c, const struct ctl_stop *o);

#endif
