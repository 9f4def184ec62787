/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Ends traces that wait or run on the hosts of a group, and says what happened in each process. */
#ifndef SONDE_CLIENT_STOP_TRACE_H
#define SONDE_CLIENT_STOP_TRACE_H

#include "client/call_hosts.h"

enum trace_end {
	TRACE_ENDED, /* it had begun: what there is of it is written */
	TRACE_DROPPED, /* it had not */
	TRACE_NOT_ENDED, /* it goes on, or that is not known */
	TRACE_NONE,
	TRACE_ENDS
};
extern const char *const trace_end_names[TRACE_ENDS];

/* One process. The words are those of the daemon or the process; "" if there are none. */
struct stopped_process {
	int64_t pid;
	enum trace_end end;
	const char *words; /* in the answers */
	const char *path, *why; /* of its files, once they are known; NULL: not */
};

/* All processes of a host, in the order of their pids, each once. The caller frees it.
 * reply: to stopTrace; replies: to getAnswers. Either may be NULL. */
struct stopped_process *stop_trace_read(const json_t *reply, const json_t *replies, size_t *out_n);

/* An element of each for every host. Zero-initialise. */
struct stop_results {
	struct client_answer *answers, *replies, *explained;
	struct client_answer *files; /* of stop_trace_wait() */
	struct stopped_host {
		struct stopped_process *processes;
		size_t n;
		size_t ends[TRACE_ENDS];
	} * hosts;
	size_t ends[TRACE_ENDS]; /* of all hosts */
};

/* pids: an array; borrowed. */
int stop_trace(struct client_group *g, uint64_t job_id, json_t *pids, struct stop_results *out,
	       struct err *err);
/* Waits until the files of what was ended are written, so long at most. How many are not. */
size_t stop_trace_wait(struct client_group *g, struct stop_results *r, unsigned seconds,
		       struct err *err);
void stop_results_release(const struct client_group *g, struct stop_results *r);

/* The daemon did not understand the request. */
bool stop_is_refused(const struct stop_results *r, size_t i);
/* All processes that match belong to other users. */
bool stop_is_of_others(const struct stop_results *r, size_t i);
/* Why a host has no process to report: its error, or the reason of the daemon. */
const char *stop_reason(const struct stop_results *r, size_t i);

#endif
