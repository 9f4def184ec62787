/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Who has not moved. A rank stands still as long as its calls, the instruction in each of them and
 * all their variables stay the same, and, if it has run at all, attributes of the objects whose
 * methods run and variables of the script; what happens inside the standard library (a wait that
 * looks at the clock now and then) is no movement. Neither is time in which nobody looked.
 */
#ifndef SONDE_SAMPLER_HANG_HANG_H
#define SONDE_SAMPLER_HANG_HANG_H

#include <jansson.h>

#include "base/containers/buf.h"
#include "sampler/rounds/targets.h"

struct still;

struct still *still_new(void);
void still_free(struct still *s);

/* After every round. */
void still_round(struct still *s, const struct targets *t, uint64_t now_ns);

/* How many ranks have not moved for `ns`; of jobs without ranks, processes. */
unsigned still_count(const struct still *s, uint64_t ns, uint64_t now_ns);

/*
 * Words about those, and the same for programs (an array; either may be NULL). One that stands
 * where most others do, too, waits for somebody: said. Returns how many there are.
 */
unsigned still_report(const struct still *s, uint64_t ns, uint64_t now_ns, struct buf *out,
		      json_t *json);

#endif
