/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What a certificate authority has issued, as `sonde certs` shows it. */
#ifndef SONDE_CLI_CERTS_LIST_H
#define SONDE_CLI_CERTS_LIST_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"
#include "daemon/certs.h"

int certs_list(struct certs *c, bool json, struct buf *out, struct err *err);

#endif
