/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Several hosts on one clock: that of the first of them. How far the others are ahead of it follows
 * from round trips that were measured (formats/clock_file.h), and from the collectives that hosts have
 * done together. Both limit the difference from both sides, over time; what is possible within all
 * these limits is the answer, and its bound.
 *
 *	timeline_clocks_add()	for each source: which host, which files
 *	timeline_clocks_solve()	reads the files, if there are several hosts
 */
#ifndef SONDE_TIMELINE_CLOCKS_H
#define SONDE_TIMELINE_CLOCKS_H

#include <jansson.h>

#include "base/numbers/clock_fit.h"
#include "timeline/timeline.h"

struct timeline_clock {
	const char *host; /* interned */
	bool is_base; /* the others' times are put on this clock */
	bool known; /* else times are those of its own clock, and nobody knows how wrong they are */
	/* How far it is ahead of the base, by its own time. */
	struct clock_line line;
	unsigned trips, collectives; /* limits that come from either */
	int64_t first_ns, last_ns; /* of what was recorded there, by its own clock */
};

struct timeline_clocks;

struct timeline_clocks *timeline_clocks_new(void);
void timeline_clocks_free(struct timeline_clocks *c); /* NULL is allowed */

/* Finds the files of a source, and whose they are. */
int timeline_clocks_add(struct timeline_clocks *c, const struct timeline_source *s,
			struct err *err);
/* beside: the output, where compressed traces are expanded. Sentences are added to notes. */
int timeline_clocks_solve(struct timeline_clocks *c, const char *beside, struct buf *notes,
			  struct err *err);

/* The hosts in the order in which they came; none if all is of one host. */
const struct timeline_clock *timeline_clocks_list(const struct timeline_clocks *c, size_t *out_n);
/* NULL: there is no such host. */
const struct timeline_clock *timeline_clocks_find(const struct timeline_clocks *c,
						  const char *host);
/* Events of two hosts that are closer than this have no known order; -1: none has. */
int64_t timeline_clocks_bound(const struct timeline_clocks *c);

/* An array with an object for each host; NULL: all is of one. */
json_t *timeline_clocks_json(const struct timeline_clocks *c);
/* "its clock is 3.001 ms ± 0.021 ms ahead" (of the base); what that is known from. */
void timeline_clock_words(const struct timeline_clock *k, struct buf *out);
const char *timeline_clock_from(const struct timeline_clock *k);

/* The host of a file; NULL: all is of one host. */
const char *timeline_clocks_host(const struct timeline_clocks *c, const char *path,
				 const char *given);

#endif
