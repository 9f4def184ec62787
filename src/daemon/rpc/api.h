/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The functions that can be called from outside, by name: one table for RPC and HTTP.
 */
#ifndef SONDE_DAEMON_RPC_API_H
#define SONDE_DAEMON_RPC_API_H

#include <jansson.h>
#include <stddef.h>

#include "base/containers/buf.h"
#include "daemon/daemon.h"

/* Bytes of a request to a checked object (nesting, UTF-8, numbers, "fn" is there); NULL with words
 * in err. */
json_t *api_parse(const char *text, size_t len, struct err *err);

/* Carries out request["fn"]. NULL: no such function. A new reference. */
json_t *api_call(struct daemon *d, const json_t *request);

/* Serialises as everyone expects it: keys sorted, no blanks. */
void api_print(const json_t *reply, struct buf *out);

/* The names, ended by NULL; for messages and the HTTP routes. */
const char *const *api_names(void);

#endif
