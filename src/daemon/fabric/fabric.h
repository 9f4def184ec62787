/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The datagram endpoints of the daemon: abstract `dynolog` and `dynolog_data`, HOME/dynolog.sock
 * and HOME/dynolog_data.sock (HOME as the password database has it), and DIR/dynolog. An answer
 * leaves by the socket on which the question came, to the exact address the kernel gave. A datagram
 * that is not what it should be is dropped and counted; no peer can hold up another.
 */
#ifndef SONDE_DAEMON_FABRIC_FABRIC_H
#define SONDE_DAEMON_FABRIC_FABRIC_H

#include <jansson.h>
#include <sys/types.h>

#include "base/err.h"
#include "daemon/daemon.h"

struct fabric;

/* Called with the JSON of every well-formed "data" message, and who sent it. */
typedef void (*fabric_data_fn)(void *arg, uid_t uid, const json_t *record);

/* An endpoint that is unavailable (another daemon has it, no such directory) is logged, and opened
 * as soon as it is free; it fails only if all are unavailable. d->jobs and d->base must be there.
 */
int fabric_open(struct daemon *d, fabric_data_fn data, void *arg, struct fabric **out,
		struct err *err);
void fabric_free(struct fabric *f); /* removes the socket files that are still its own */

/* The payload of a "data" message: one JSON object with a metric. A new reference; NULL if it is no
 * JSON object, too long, too deep, or has numbers that do not fit. */
#define FABRIC_DATA_MAX 4096 /* bytes */
#define FABRIC_DATA_DEPTH 10 /* objects and arrays inside one another */
json_t *fabric_data_parse(const char *text, size_t len);

/* {"endpoints":[{"name":…,"address":…,"received":N,…}],"dropped":{"too_short":N,…}} */
json_t *fabric_describe(const struct fabric *f);

#endif
