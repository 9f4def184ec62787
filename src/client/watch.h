/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The states and processes of hosts, asked for again and again. */
#ifndef SONDE_CLIENT_WATCH_H
#define SONDE_CLIENT_WATCH_H

#include "client/ask.h"

/* The answers of all hosts at one moment: to getStatus, and to listProcesses. Of several hosts only
 * the number of their processes is asked for. */
struct client_round {
	struct client_answer *status, *processes;
};

struct client_watch {
	unsigned interval_s;
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
