/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What is missing from a recording or a dump. An answer from what is left must not read like one from
 * all of it, so one sentence about this comes before every answer:
 *
 *	incomplete	that sentence, or null
 *	lost		events, stacks, damaged_bytes (of buffers), exact (nothing more is missing)
 */
#ifndef SONDE_MEMORY_ANALYSIS_PROCESSES_LOSS_H
#define SONDE_MEMORY_ANALYSIS_PROCESSES_LOSS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/containers/buf.h"

struct loss {
	uint64_t events, stacks, damaged_bytes; /* of the processes that a question is about */
	uint64_t unread_bytes, bad_rows;
	bool cut_off; /* ends in the middle */
	bool more; /* how many more events are missing, if any, is unknown */
};

/* Is anything missing? l may be NULL. */
bool loss_any(const struct loss *l);
/* The sentence; nothing if all is there. of: which of several inputs, or NULL. */
void loss_describe(const struct loss *l, const char *of, struct buf *out);
json_t *loss_value(const struct loss *l); /* what is called `lost` above */
/* Both keys into an object. */
void loss_json(const struct loss *l, json_t *o);

#endif
