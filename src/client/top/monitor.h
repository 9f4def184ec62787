/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The monitor that `sonde top` shows. Where it is off it is started, on a lease that is renewed as
 * long as this runs: if this is killed, it ends some seconds later. A monitor that somebody else
 * has requested, before or meanwhile, is shown, and neither renewed nor stopped.
 */
#ifndef SONDE_CLIENT_TOP_MONITOR_H
#define SONDE_CLIENT_TOP_MONITOR_H

#include "client/top/model.h"

struct top_monitor {
	struct client_group *g;
	json_t *pids; /* an array; NULL: all */
	int64_t job_id;
	unsigned interval_s;
	const char *kinds;
	bool attribute; /* to modules and lines */
	bool only_observe; /* nothing is started */
	bool quiet; /* that it was started is shown elsewhere */
	/* A message about what was started or stopped. */
	void (*say)(void *arg, const char *text);
	void *arg;
	/* From here on its own. */
	uint64_t lease;
	uint64_t renew_ns; /* when top_monitor_renew() is due (monotonic); UINT64_MAX: never */
	struct top_monitor_host {
		bool tried; /* it was started by us */
		bool ran; /* and was on since */
		bool was_on; /* by whomever */
		int64_t since_ns; /* wall clock of the host before it was started; 0: it was not */
		bool is_own, is_lost; /* at the last poll: it is ours; it was, and is another's */
	} * hosts;
	bool was_known; /* there were processes to show */
};

void top_monitor_begin(struct top_monitor *m); /* what the caller sets is set */

/* After each poll: starts what is to be started, and adds to the model what is to be reported. */
void top_monitor_start(struct top_monitor *m, const struct client_answer *answers);
/* Takes what an earlier monitor has reported out of the answers of hosts where ours was started:
 * that is long ago, and says nothing of now. */
void top_monitor_drop_old(const struct top_monitor *m, const struct client_answer *answers);
void top_monitor_describe(const struct top_monitor *m, const struct client_answer *answers,
			  struct top_model *model);

/* At renew_ns. */
void top_monitor_renew(struct top_monitor *m);

/* Stops what is ours, waits until it is off, for some seconds, reports that, and releases all. */
void top_monitor_end(struct top_monitor *m);

#endif
