/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What a certificate authority has issued, as `sonde certs` shows it. */
#ifndef SONDE_CLI_DAEMON_CERTS_LIST_H
#define SONDE_CLI_DAEMON_CERTS_LIST_H

#include <stdbool.h>

#include "base/containers/buf.h"
#include "base/err.h"
#include "certs/certs.h"

int certs_list(struct certs *c, bool json, struct buf *out, struct err *err);

#endif
