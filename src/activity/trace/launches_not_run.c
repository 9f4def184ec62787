/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Launches of the traced steps that had not run when the trace was closed: in a hang, what the
 * device waits for. A launch does not say what it runs; but steps are alike, so it is what the
 * launch in the same place of the step before has run. What is held is in order of time by now.
 */
#include "activity/trace/trace.h"
#include "base/containers/hmap.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* Is work of a device to be expected? By the names that vendors give. */
static bool is_launch(const struct trace_state *t, const struct activity *a)
{
	if (a->place != ACTIVITY_ON_HOST || !(ACTIVITY_BIT(a->kind) & ACTIVITY_APIS) ||
	    !a->correlation || !trace_within(t, a->start_ns))
		return false;
	if (strstr(a->name, "HostFunc") || strstr(a->name, "allback"))
		return false;
	return strstr(a->name, "aunch") || strstr(a->name, "cpyAsync") ||
	       strstr(a->name, "setAsync");
}

/* Correlation to the index of what has run. A collective may come as a kernel, too. */
static void find_work(const struct trace_state *t, struct hmap *out)
{
	for (size_t i = 0; i < t->nheld; i++) {
		const struct activity *a = &t->held[i];
		enum split_part part = split_part_of(a);

		if (a->place != ACTIVITY_ON_DEVICE || !a->correlation || part == SPLIT_IDLE)
			continue;
		if (part == SPLIT_COMM || hmap_get(out, a->correlation) == HMAP_NONE)
			hmap_put(out, a->correlation, i);
	}
}

/* Functions whose launches are known to run: another one may only be around such a call. */
static void find_functions(const struct trace_state *t, const struct hmap *work, struct hmap *out)
{
	for (size_t i = 0; i < t->nheld; i++) {
		const struct activity *a = &t->held[i];

		if (is_launch(t, a) && hmap_get(work, a->correlation) != HMAP_NONE)
			hmap_put(out, (uintptr_t)a->name, 1);
	}
}

static const struct activity *first_waiting(const struct trace_state *t, const struct hmap *work,
					    uint64_t *out_n)
{
	const struct activity *first = NULL;
	struct hmap functions = {0}, seen = {0};

	*out_n = 0;
	find_functions(t, work, &functions);
	for (size_t i = 0; i < t->nheld; i++) {
		const struct activity *a = &t->held[i];

		if (!is_launch(t, a) || hmap_get(work, a->correlation) != HMAP_NONE ||
		    hmap_get(&functions, (uintptr_t)a->name) == HMAP_NONE)
			continue;
		/* One call may be inside another, with the same correlation. */
		*out_n += hmap_put(&seen, a->correlation, 1) == HMAP_NONE;
		if (!first || a->start_ns < first->start_ns)
			first = a;
	}
	hmap_release(&functions);
	hmap_release(&seen);
	return first;
}

/* The launch of a thread, counted from 0, in [from, to); NULL: there are not so many. */
static const struct activity *launch_in(const struct trace_state *t, uint32_t tid, uint64_t from,
					uint64_t to, size_t place)
{
	for (size_t i = 0; i < t->nheld && t->held[i].start_ns < to; i++) {
		const struct activity *a = &t->held[i];

		if (a->tid == tid && a->start_ns >= from && is_launch(t, a) && !place--)
			return a;
	}
	return NULL;
}

static size_t launches_before(const struct trace_state *t, const struct activity *launch,
			      uint64_t from)
{
	size_t n = 0;

	for (size_t i = 0; i < t->nheld; i++) {
		const struct activity *a = &t->held[i];

		n += a->tid == launch->tid && a->start_ns >= from &&
		     a->start_ns < launch->start_ns && is_launch(t, a);
	}
	return n;
}

/* "": no step before says. */
static const char *name_of(const struct trace_state *t, const struct activity *launch,
			   const struct hmap *work)
{
	size_t step = 0;

	while (step + 1 < t->nbounds && t->bounds[step + 1].ns <= launch->start_ns)
		step++;
	if (!step || !t->w->trace.steps)
		return "";
	uint64_t from = t->bounds[step].ns;
	const struct activity *like = launch_in(t, launch->tid, t->bounds[step - 1].ns, from,
						launches_before(t, launch, from));
	if (!like || strcmp(like->name, launch->name))
		return "";
	uint64_t at = hmap_get(work, like->correlation);
	return at == HMAP_NONE ? "" : t->held[at].name;
}

void trace_waits(const struct trace_state *t, struct split_rank *r)
{
	struct hmap work = {0};

	/* What is not there may be missing for another reason. */
	if (t->w->killed || t->w->lost || t->left_out)
		return;
	find_work(t, &work);
	const struct activity *first = first_waiting(t, &work, &r->waiting);
	if (first) {
		r->waiting_ns = first->start_ns;
		split_rank_set(&r->waiting_for, xstrdup(name_of(t, first, &work)));
	}
	hmap_release(&work);
}
