/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The functions that can be called from outside, by name: one table for RPC and HTTP.
 */
#ifndef SONDE_DAEMON_RPC_API_H
#define SONDE_DAEMON_RPC_API_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/containers/buf.h"
#include "daemon/access.h"
#include "daemon/daemon.h"

/* Bytes of a request to a checked object (nesting, UTF-8, numbers, "fn" is there); NULL with words
 * in err. */
json_t *api_parse(const char *text, size_t len, struct err *err);

/* Whether it changes nothing: a link or a reload of a page may call it. */
bool api_is_read_only(const char *fn);

/* Why the caller may not call it, in words; NULL: it may, or there is no such function. */
const char *api_refusal(const struct access_grant *who, const char *fn);

/* Carries out request["fn"] for somebody. NULL: no such function. A new reference; who may not call
 * it gets RPC_REFUSED and why as its "status". */
json_t *api_call(struct daemon *d, const struct access_grant *who, const json_t *request);

/* Serialises as everyone expects it: keys sorted, no blanks. */
void api_print(const json_t *reply, struct buf *out);

/* The names, ended by NULL; for messages and the HTTP routes. */
const char *const *api_names(void);

#endif
