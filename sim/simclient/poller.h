/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * DynMonitorProc: the one process of a node that asks the daemon for configs and puts them where
 * all ranks look at every step.
 */
#ifndef SIM_CLIENT_POLLER_H
#define SIM_CLIENT_POLLER_H

#include <stdatomic.h>
#include <stddef.h>
#include <sys/types.h>

#include "client.h"
#include "config.h"

/* The page of a launch. `version` is odd while the text is being written. */
struct board {
	_Atomic uint32_t version;
	_Atomic uint32_t step, step_ms; /* of rank 0, as it goes */
	uint32_t len;
	char text[CONFIG_TEXT_MAX];
};

struct board *board_map(void);
/* Whether there is a text newer than *seen; copies it then. */
bool board_read(struct board *b, uint32_t *seen, char *out, size_t *out_len);

/* Forks it; SIGTERM ends it. -1: fork() failed. */
pid_t poller_start(const struct client_options *o, struct board *b);

#endif
