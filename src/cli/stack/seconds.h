/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Times as people type them. */
#ifndef SONDE_CLI_STACK_SECONDS_H
#define SONDE_CLI_STACK_SECONDS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/text/args.h"

/* "0.1", "60", "1e-3", "5ms", "200us", "2m", "1.5h": seconds unless a unit is behind it. */
bool stack_seconds(const char *text, uint64_t *out_ns);
/* For rows of options: nanoseconds in a uint64_t; at least opt->min microseconds. */
int stack_parse_seconds(struct args *a, const struct opt *opt, const char *value, struct err *err);

#endif
