/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The last hour of a number: its mean in each of COURSE_BINS equal parts of the time, in a ring.
 * Memory is the same however often the number comes. Zero-initialised: nothing is known.
 */
#ifndef SONDE_DAEMON_METRICS_COURSE_H
#define SONDE_DAEMON_METRICS_COURSE_H

#include <jansson.h>
#include <stdint.h>

#define COURSE_BINS 360
#define COURSE_BIN_NS 10000000000 /* ten seconds: an hour in all */

struct course {
	int64_t bin; /* the newest, since 1970; 0: none */
	double sum; /* of that one */
	uint32_t n;
	float means[COURSE_BINS]; /* NAN: nothing came; of the newest as far as it is known */
};

/* A value of that time (since 1970). What is older than the hour, or of a clock that was set back, is
 * left out. */
void course_add(struct course *c, int64_t time_ns, double value);

/* Values from that bin on up to the newest one of `now_ns`, null where there are none; a new list. */
json_t *course_json(const struct course *c, int64_t from_bin, int64_t now_ns);
/* The first bin that a reader has not seen who has everything before `after_ns`; an hour at most. */
int64_t course_first_bin(int64_t after_ns, int64_t now_ns);

#endif
