/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Round trips to hosts, kept in a file beside traces: what `sonde timeline` puts hosts on one clock
 * with. {"sonde_clocks":1,"trips":[{"by":…,"host":…,"label":…,"asked_ns":…,"answered_ns":…,
 * "time_ns":…},…]}. The file comes from outside: every value is checked.
 */
#ifndef SONDE_FORMATS_CLOCK_FILE_H
#define SONDE_FORMATS_CLOCK_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define CLOCK_FILE_NAME "clocks.json"
#define CLOCK_FILE_BYTES (32u << 20)
#define CLOCK_FILE_TRIPS 100000u /* that a file keeps: the newest */
/* Times are below this, so that differences of differences fit. */
#define CLOCK_FILE_TIME_MAX INT64_C(4000000000000000000)

struct clock_trip {
	const char *by; /* who asked: one clock; interned, as the names are */
	const char *host; /* as it calls itself */
	const char *label; /* as it was called by who asked */
	int64_t asked_ns, answered_ns; /* by the clock of who asked, whatever it counts from */
	int64_t time_ns; /* the host's wall clock in between */
};

struct clock_trips {
	struct clock_trip *list;
	size_t n, cap;
};

void clock_trips_add(struct clock_trips *t, const struct clock_trip *trip);
void clock_trips_release(struct clock_trips *t);

/* For `by` of who reads CLOCK_MONOTONIC: that of this kernel since it was started. */
const char *clock_file_own_name(void);

/* Adds the trips of a file. -EINVAL: it is something else. */
int clock_file_read(const char *path, struct clock_trips *out, struct err *err);
/* The same of a text. */
int clock_file_parse(const char *text, size_t len, struct clock_trips *out, struct err *err);

/* Adds trips to a file, which is made if it is not there. Readers see the old one or the new. */
int clock_file_add(const char *path, const struct clock_trips *t, struct err *err);

/* Whether this may be the beginning of such a file. */
bool clock_file_begins(const char *text, size_t len);

#endif
