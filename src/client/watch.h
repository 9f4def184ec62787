/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The states and processes of hosts, asked for again and again. */
#ifndef SONDE_CLIENT_WATCH_H
#define SONDE_CLIENT_WATCH_H

#include "client/call_hosts.h"

#define WATCH_PROCESSES_MAX 256 /* of each host */

/* The answers of all hosts at one moment: to getStatus, to listProcesses and, if it was asked for, to
 * getTop. */
struct client_round {
	struct client_answer *status, *processes, *top;
};

struct client_watch {
	unsigned interval_s;
	bool ranks; /* of several hosts the processes, too, and not only how many; getTop of all */
	unsigned rounds; /* 0: until show() or wait() end it */
	/* A round. False ends it. */
	bool (*show)(void *arg, const struct client_round *r);
	/* Waits until then (monotonic), or returns before to show a round at once. False ends it.
	 */
	bool (*wait)(void *arg, uint64_t until_ns);
	void *arg;
};

/* Fails if no host could be asked. */
int client_watch(struct client_group *g, const struct client_watch *w, struct err *err);

#endif
