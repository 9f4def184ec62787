/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Datagrams that were dropped, counted by reason. The first of each reason is logged. */
#ifndef SONDE_DAEMON_FABRIC_DROPS_H
#define SONDE_DAEMON_FABRIC_DROPS_H

#include <jansson.h>
#include <stdint.h>

#include "daemon/jobs/jobs.h"
#include "wire/fabric.h"

/* A fault of fabric_parse() is one of these, too. */
enum fabric_drop {
	FABRIC_DROP_EMPTY = FABRIC_FAULTS,
	FABRIC_DROP_TOO_LONG,
	FABRIC_DROP_UNKNOWN_TYPE,
	FABRIC_DROP_DESCRIPTORS,
	FABRIC_DROP_NO_CREDENTIALS,
	FABRIC_DROP_RATE,
	FABRIC_DROP_BAD_JSON,
	FABRIC_DROP_REFUSED,
	FABRIC_DROPS
};

struct fabric_drops {
	uint64_t counts[FABRIC_DROPS];
};

/* why: an enum fabric_fault or an enum fabric_drop. */
void fabric_drop(struct fabric_drops *d, const struct jobs_sender *from, unsigned why);

/* {"too_short":N,…} */
json_t *fabric_drops_describe(const struct fabric_drops *d);

#endif
