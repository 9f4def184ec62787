/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Counters once more, as the members "npu", "gpu" and "cpu" beside the events of a timeline: arrays
 * that programs read without searching the events. Memory is bounded: a series that gets too long
 * keeps every second point, then every fourth …, and says so ("every").
 */
#ifndef SONDE_SAMPLER_SESSION_SERIES_H
#define SONDE_SAMPLER_SESSION_SERIES_H

#include "base/containers/buf.h"
#include "sampler/counters/counters.h"

#define SERIES_POINTS 4096 /* of each, at most */

struct series_set;

struct series_set *series_new(uint64_t start_ns); /* CLOCK_MONOTONIC at ts_us 0 */
void series_free(struct series_set *s);
void series_add(struct series_set *s, const struct counter *c);
void series_clear(struct series_set *s);
/* "npu":{…},"gpu":{…},"cpu":{…} */
void series_add_json(const struct series_set *s, struct buf *out);

#endif
