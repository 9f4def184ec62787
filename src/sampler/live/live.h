/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Where the Python of all processes spends its time, counted while it runs: how often a function, or
 * a line of the job's own code, was the innermost (self) or anywhere in a stack (total). Counts are
 * kept for each kind of moment (with or without the GIL, running or asleep), so what is shown can be
 * changed at any time. Memory grows with distinct functions, up to LIVE_MAX_PLACES.
 *
 *	stack_live_new(o) … stack_live_round(l) again and again … stack_live_end_interval(l) … stack_live_view()
 */
#ifndef SONDE_SAMPLER_LIVE_LIVE_H
#define SONDE_SAMPLER_LIVE_LIVE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/containers/buf.h"
#include "sampler/rounds/targets.h"
#include "sampler/rounds/thread_filter.h"

#define LIVE_MAX_PLACES 65536
#define LIVE_INTERVALS 32 /* of which the course is kept */

enum stack_live_by { STACK_LIVE_LINE, STACK_LIVE_FUNCTION };
enum stack_live_sort { LIVE_SELF, LIVE_TOTAL, LIVE_SELF_ALL, LIVE_TOTAL_ALL, LIVE_NAME };
extern const char *const stack_live_by_names[], *const stack_live_sort_names[]; /* ended by NULL */

struct stack_live_view {
	unsigned by, sort;
	bool inverted;
	struct thread_moments moments;
	const char *filter; /* a part of the name */
};

/* Shares are of the stacks of the newest interval, times of all of them. */
struct stack_live_row {
	char *name; /* printable: "step (train.py:18)" */
	const char *via; /* what it waits in or calls most, printable; NULL: nothing worth a word */
	double self, total; /* shares */
	double self_s, total_s; /* thread seconds */
	unsigned processes; /* in which it was the innermost, or anywhere if in none */
	uint64_t intervals[LIVE_INTERVALS]; /* total of each, per million; the newest is the last */
};

struct stack_live_table {
	struct stack_live_row *list;
	size_t n, cap;
	unsigned processes;
	uint64_t stacks, shown; /* of the newest interval; of them: of the moments in the view */
	double gil, running; /* parts of the stacks of the newest interval */
	double missed; /* part of the threads of the newest interval whose stack was not read */
	double interval_s, all_s;
	unsigned nintervals;
	bool crowded; /* there were more functions than are counted */
};

struct stack_live;

struct stack_live *stack_live_new(bool all_threads);
void stack_live_free(struct stack_live *l);
/* After targets_round(): counts what it copied. */
void stack_live_round(struct stack_live *l, const struct targets *t);
/* The interval since the last call is the newest one now. */
void stack_live_end_interval(struct stack_live *l, uint64_t now_ns);

void stack_live_table(struct stack_live *l, const struct stack_live_view *v,
		      struct stack_live_table *out);
void stack_live_table_release(struct stack_live_table *t);
/* A sentence or two. */
void stack_live_describe(const struct stack_live_table *t, const struct stack_live_view *v,
			 struct buf *out);
json_t *stack_live_json(const struct stack_live_table *t, const struct stack_live_view *v,
			unsigned top);

#endif
