/* SPDX-License-Identifier: MulanPSL-2.0 */
/* What was held over time: all courses have the same bins. */
#include <stdlib.h>

#include "base/mem.h"
#include "memory/live/live_impl.h"

#define FIRST_BIN_NS 10000000u

static unsigned bin_of(struct live *l, uint64_t time_ns)
{
	if (!l->bin_ns) {
		l->bin_ns = FIRST_BIN_NS;
		l->first_ns = time_ns;
	}
	uint64_t after = time_ns > l->first_ns ? time_ns - l->first_ns : 0;
	while (after / l->bin_ns >= LIVE_BINS) {
		for (size_t i = 0; i < l->ncourses; i++)
			bin_course_halve(&l->courses[i]->over_time);
		l->last_bin /= 2;
		l->bin_ns *= 2;
	}
	unsigned bin = (unsigned)(after / l->bin_ns);
	if (bin > l->last_bin)
		l->last_bin = bin;
	return bin;
}

static void set_now(struct live_course *c, unsigned bin, uint64_t now, uint64_t time_ns)
{
	bin_course_set(&c->over_time, bin, c->now, now);
	c->now = now;
	if (now > c->peak) {
		c->peak = now;
		c->peak_ns = time_ns;
	}
}

static struct live_course *add_course(struct live *l, uint32_t device,
				      const struct block_device *of)
{
	if (l->ncourses >= LIVE_MAX_COURSES)
		return NULL;
	struct live_course *c = xcalloc(1, sizeof(*c));
	c->device = device;
	c->of = of;
	return *XPUSH(l->courses, l->ncourses, l->cap_courses) = c;
}

/* That of the device of all processes. */
static struct live_course *course_of_all(struct live *l, uint32_t device)
{
	for (size_t i = 0; i < l->ncourses; i++)
		if (!l->courses[i]->of && l->courses[i]->device == device)
			return l->courses[i];
	return add_course(l, device, NULL);
}

/* What a process has of a device; the pools' blocks are inside the driver's, where these are known. */
static uint64_t held_by(const struct block_device *d)
{
	return d->has_driver ? d->driver_bytes : d->pool_bytes;
}

void live_course_row(struct live *l, const struct block_change *change, uint64_t time_ns)
{
	struct block_device *d = change->pool->device;
	struct live_course *c = d->own[0] ? (void *)(uintptr_t)d->own[0] : NULL;
	struct live_course *all = d->own[1] ? (void *)(uintptr_t)d->own[1] : NULL;
	unsigned bin = bin_of(l, time_ns);

	if (!all)
		all = course_of_all(l, d->device);
	if (!c)
		c = add_course(l, d->device, d);
	d->own[0] = (uintptr_t)c;
	d->own[1] = (uintptr_t)all;
	uint64_t now = held_by(d);
	uint64_t before = d->own[2];
	d->own[2] = now;
	if (change->what == BLOCKS_LEFT && before > now) {
		if (c)
			c->left += before - now;
		if (all)
			all->left += before - now;
	}
	if (c)
		set_now(c, bin, now, time_ns);
	if (all)
		set_now(all, bin, all->now + now - before, time_ns);
}

size_t live_courses(const struct live *l, const struct live_course *const **out)
{
	*out = (const struct live_course *const *)l->courses;
	return l->ncourses;
}

uint64_t live_bin_ns(const struct live *l, uint64_t *out_first_ns)
{
	*out_first_ns = l->first_ns;
	return l->bin_ns;
}

size_t live_course_bins(const struct live *l, const struct live_course *c, uint64_t out[LIVE_BINS])
{
	for (unsigned i = 0; i <= l->last_bin; i++)
		out[i] = i <= c->over_time.last ? c->over_time.bins[i] : c->now;
	return l->ncourses ? l->last_bin + 1u : 0;
}

void live_courses_release(struct live *l)
{
	for (size_t i = 0; i < l->ncourses; i++)
		free(l->courses[i]);
	free(l->courses);
	l->courses = NULL;
	l->ncourses = l->cap_courses = 0;
	l->bin_ns = l->first_ns = 0;
	l->last_bin = 0;
}
