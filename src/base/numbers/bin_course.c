/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "base/numbers/bin_course.h"

#define FIRST_BIN_NS 1000u

/* What is behind `last` is not known yet. */
void bin_course_halve(struct bin_course *c)
{
	for (unsigned i = 0; i < COURSE_BINS / 2; i++) {
		uint64_t a = c->bins[2 * i], b = 2 * i < c->last ? c->bins[2 * i + 1] : 0;

		c->bins[i] = a > b ? a : b;
	}
	c->last /= 2;
}

void timed_course_move(struct timed_course *t, uint64_t time_ns)
{
	if (!t->bin_ns) {
		t->bin_ns = FIRST_BIN_NS;
		t->first_ns = time_ns;
	}
	uint64_t after = time_ns > t->first_ns ? time_ns - t->first_ns : 0;
	while (after / t->bin_ns >= COURSE_BINS) {
		bin_course_halve(&t->course);
		t->bin_ns *= 2;
	}
	bin_course_set(&t->course, (unsigned)(after / t->bin_ns), t->now, t->now);
	t->end_ns = t->first_ns + (t->course.last + 1) * t->bin_ns;
}
