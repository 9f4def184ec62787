/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What happened to a number over time, on a grid that becomes coarser as time goes on: so many
 * buckets at most, whatever the length of a recording. All series of a grid have the same buckets;
 * when one needs a bucket behind the last, all are halved: neighbours become one, and nothing that was
 * counted is lost. Only buckets in which something happened take memory.
 */
#ifndef SONDE_REPORT_MEMORY_SERIES_H
#define SONDE_REPORT_MEMORY_SERIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GRID_MOST_BUCKETS 32768u
#define GRID_FEWEST_BUCKETS 1024u /* it is not made coarser than that to save memory */

/* A bucket is 2^shift ns long; the first begins at start_ns. Zero-initialise. */
struct grid {
	uint64_t start_ns;
	unsigned shift;
	uint32_t buckets; /* that are in use */
	bool begun;
	size_t entries; /* of all series */
};

/* The bucket of a time; what lies before the first one is counted there. */
static inline uint64_t grid_bucket(const struct grid *g, uint64_t time_ns)
{
	return time_ns < g->start_ns ? 0 : (time_ns - g->start_ns) >> g->shift;
}

void grid_begin(struct grid *g, uint64_t start_ns);
/* Every series of it has been halved. */
void grid_halved(struct grid *g);

/* What came and what went in a bucket. */
struct series_entry {
	uint32_t bucket;
	uint32_t more, less; /* how often */
	uint64_t plus, minus; /* how much */
};

struct series {
	struct series_entry *at; /* in order of buckets */
	size_t n, cap;
};

/* One that came (more) or went; `bucket` is mostly the newest. */
struct series_entry *series_entry(struct series *s, struct grid *g, uint32_t bucket);
void series_halve(struct series *s, struct grid *g);
/* Adds all of `from` to `to`, and empties it. */
void series_merge(struct series *to, struct series *from, struct grid *g);
void series_release(struct series *s);

#endif
