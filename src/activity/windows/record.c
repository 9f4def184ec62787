/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Windows of `sonde record`. What they hold is in the recording already; while it is being made only
 * sums are kept, for the answer at its end. Busy times are of unions of work: what a part adds to
 * those before it is not hidden behind them.
 */
#include "activity/windows/record.h"

#include "activity/live/busy.h"
#include "activity/steps/step_split.h"
#include "activity/windows/window.h"
#include "base/mem.h"

#include <stdlib.h>

#define MAX_DEVICES 64u

struct device_work {
	uint32_t device;
	uint64_t first_ns, last_ns;
	struct busy upto[SPLIT_IDLE]; /* work of this part and of those before it */
};

struct record_state {
	struct device_work devices[MAX_DEVICES];
	unsigned n;
	uint64_t activities;
};

static struct record_totals totals; /* of windows that have closed */

static int open_record(struct window *w, struct err *err)
{
	(void)err;
	w->state = xcalloc(1, sizeof(struct record_state));
	totals.windows++;
	return 0;
}

static struct device_work *work_of(struct record_state *s, uint32_t device)
{
	for (unsigned i = 0; i < s->n; i++)
		if (s->devices[i].device == device)
			return &s->devices[i];
	if (s->n == MAX_DEVICES)
		return NULL;
	s->devices[s->n] = (struct device_work){.device = device};
	return &s->devices[s->n++];
}

static void record_activity(struct window *w, const struct activity *a)
{
	struct record_state *s = w->state;
	enum split_part part = split_part_of(a);
	struct device_work *d =
		part == SPLIT_IDLE || a->place != ACTIVITY_ON_DEVICE ? NULL : work_of(s, a->device);

	s->activities++;
	w->written = *w->seen;
	if (!d)
		return;
	if (!d->first_ns || a->start_ns < d->first_ns)
		d->first_ns = a->start_ns;
	if (a->end_ns > d->last_ns)
		d->last_ns = a->end_ns;
	for (unsigned p = part; p < SPLIT_IDLE; p++)
		busy_add(&d->upto[p], a->start_ns, a->end_ns);
}

/* Nothing points to a text. */
static void forget_texts(struct window *w)
{
	(void)w;
}

static void add_device(struct device_work *d)
{
	uint64_t before = 0, all = d->last_ns - d->first_ns;

	for (unsigned p = 0; p < SPLIT_IDLE; p++) {
		uint64_t busy = busy_take(&d->upto[p], d->last_ns);

		totals.part_ns[p] += busy > before ? busy - before : 0;
		before = busy;
		busy_release(&d->upto[p]);
	}
	totals.part_ns[SPLIT_IDLE] += all > before ? all - before : 0;
	totals.devices++;
}

static void close_record(struct window *w)
{
	struct record_state *s = w->state;

	for (unsigned i = 0; i < s->n; i++)
		add_device(&s->devices[i]);
	totals.activities += s->activities;
	totals.lost += w->lost;
	free(s);
}

const struct record_totals *record_totals(void)
{
	return &totals;
}

const struct window_ops window_recorded = {
	.open = open_record,
	.activity = record_activity,
	.forget = forget_texts,
	.close = close_record,
};
