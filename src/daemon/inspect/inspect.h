/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Questions about one process that take looking into its memory or its files: they are answered by our
 * own program, run as the user whose process it is, and by nobody with more rights.
 *
 *	getMemory	sonde mem live --json PID	goes on while somebody asks
 *	takeSnapshot	sonde snap --json -p PIDS	once; getSnapshot has its answer
 *
 * What comes back is text that this user may have made up: its size and depth are bounded, and it is
 * only passed on. With --user the daemon starts no programs, and without root it can answer for its
 * own user alone.
 */
#ifndef SONDE_DAEMON_INSPECT_INSPECT_H
#define SONDE_DAEMON_INSPECT_INSPECT_H

#include <jansson.h>

#include "daemon/access.h"
#include "daemon/daemon.h"

struct inspect;

struct inspect *inspect_new(struct daemon *d);
void inspect_free(struct inspect *i); /* ends what runs; i may be NULL */

/* Functions of the RPC; i may be NULL. */
json_t *inspect_memory(struct inspect *i, const struct access_grant *who, const json_t *request);
json_t *inspect_take_snapshot(struct inspect *i, const struct access_grant *who,
			      const json_t *request);
json_t *inspect_get_snapshot(struct inspect *i, const struct access_grant *who,
			     const json_t *request);

#endif
