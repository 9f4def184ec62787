/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Which ranks have not moved. A rank has not moved as long as its calls, the instruction in each of
 * them and all their variables stay the same, and, if it has run at all, attributes of the objects
 * whose methods run and variables of the script; what happens inside the standard library (a wait
 * that reads the clock now and then) is no movement. Time between rounds that are too far apart
 * does not count: nothing was sampled then.
 */
#ifndef SONDE_SAMPLER_HANG_HANG_H
#define SONDE_SAMPLER_HANG_HANG_H

#include <jansson.h>

#include "base/containers/buf.h"
#include "sampler/rounds/targets.h"

struct hang; /* one thread uses it */

struct hang *hang_new(void);
void hang_free(struct hang *s);

/* After every round. */
void hang_round(struct hang *s, const struct targets *t, uint64_t now_ns);

/* How many ranks have not moved for `ns`; of jobs without ranks, processes. */
unsigned hang_count(const struct hang *s, uint64_t ns, uint64_t now_ns);

/*
 * The same in words, and as JSON (an array; either may be NULL). One at the call site where most
 * others are, too, seems to wait for another: the report says so. Returns how many there are.
 */
unsigned hang_report(const struct hang *s, uint64_t ns, uint64_t now_ns, struct buf *out,
		     json_t *json);

#endif
