/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The course of a number in at most COURSE_BINS equal parts of the time since its beginning: when they
 * are full, each two become one. So a course takes as much memory after a week as after a second.
 */
#ifndef SONDE_BASE_NUMBERS_BIN_COURSE_H
#define SONDE_BASE_NUMBERS_BIN_COURSE_H

#include <stddef.h>
#include <stdint.h>

#define COURSE_BINS 240

struct bin_course {
	uint64_t bins[COURSE_BINS]; /* the highest of each part of the time */
	unsigned last; /* the newest bin */
};

/* Each two bins become one. */
void bin_course_halve(struct bin_course *c);
/* The number, which was `before` until now, changes in that bin or, if that is older, in the newest. */
static inline void bin_course_set(struct bin_course *c, unsigned bin, uint64_t before, uint64_t now)
{
	while (c->last < bin)
		c->bins[++c->last] = before;
	if (now > c->bins[c->last])
		c->bins[c->last] = now;
}

/* A course with a time of its own. Zero-initialise. */
struct timed_course {
	struct bin_course course;
	uint64_t first_ns, bin_ns; /* bin_ns is 0 until there is something */
	uint64_t end_ns; /* of the newest bin */
	uint64_t now;
};

/* Makes room for a change at that time, which is not in the newest bin. */
void timed_course_move(struct timed_course *t, uint64_t time_ns);
static inline void timed_course_set(struct timed_course *t, uint64_t time_ns, uint64_t now)
{
	if (time_ns >= t->end_ns)
		timed_course_move(t, time_ns);
	if (now > t->course.bins[t->course.last])
		t->course.bins[t->course.last] = now;
	t->now = now;
}
/* How many bins there are. */
static inline size_t timed_course_count(const struct timed_course *t)
{
	return t->bin_ns ? t->course.last + 1u : 0;
}

#endif
