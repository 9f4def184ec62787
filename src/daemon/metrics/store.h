/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The latest sample of every source and device, and of every kind of activity, with sums of what
 * adds up. Bounded: what processes send cannot make it grow without end.
 */
#ifndef SONDE_DAEMON_METRICS_STORE_H
#define SONDE_DAEMON_METRICS_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/containers/hmap.h"
#include "device/metrics.h"

#define STORE_MAX 1024 /* samples kept */
#define STORE_DATA_MAX 512 /* of them what processes send: devices always find room */
#define STORE_FORGET_S 600 /* what was silent for so long makes room for others */

/* A sample that owns what it points to: one block of memory. */
struct stored {
	struct sample sample;
	uint64_t heard_ns; /* CLOCK_MONOTONIC, when it was stored */
	uint64_t records; /* how many of its key there were */
	double *sums; /* of each metric, since the first */
	struct stored *next; /* for lists of its owner */
};

struct stored *stored_copy(const struct sample *s); /* free() it */

struct store {
	struct hmap index; /* hash of the key -> position */
	struct stored **items;
	size_t n, cap, ndata;
	uint64_t full_until_ns; /* before that nothing can make room */
	uint64_t refused; /* samples that found no room */
};

/* Keeps a copy in the place of the last one of its source, device, kind and domain. False: there is
 * no room for one more. */
bool store_put(struct store *st, const struct sample *s, uint64_t now_ns);
void store_release(struct store *st);

#endif
