/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Metrics: for every kind and device the time that was spent in an interval, and every range that
 * ended in it, as datagrams of the type "data" that any dynolog daemon of the NPU tools reads. Keys
 * are in alphabetical order, kinds in that of their numbers.
 */
#include "activity/live/daemon_queue.h"
#include "activity/windows/window.h"
#include "base/clock.h"
#include "base/compare.h"
#include "base/mem.h"
#include "formats/json_value.h"

#include <stdlib.h>
#include <string.h>

#define NS_PER_S 1000000000ull
#define DEFAULT_INTERVAL_S 60
#define MAX_DEVICES 256u /* of a kind */
#define MAX_MARKS 10000u /* of an interval; the others are reported as one */
/* The daemon drops longer ones; the cut needs up to ten bytes more. */
#define MAX_NAME_BYTES 240
#define MAX_DOMAIN_BYTES 112
#define HOST_OF_PAIR 4294967295 /* the device of the host's half of a mark that a stream passes */

struct sum {
	int64_t device;
	uint64_t ns;
};

struct sums {
	struct sum *list;
	size_t n, cap;
};

struct mark_report {
	const char *name, *domain;
	int64_t device;
	uint64_t start_ns, ns;
};

struct metrics_state {
	struct sums kinds[ACTIVITY_KIND_END];
	struct mark_report *marks;
	size_t nmarks, cap;
	uint64_t more_marks, more_ns; /* beyond MAX_MARKS */
	uint64_t reported_ns; /* monotonic; 0: not yet begun */
	uint64_t interval_s;
	struct buf json, scratch;
};

static uint64_t add_saturated(uint64_t a, uint64_t b)
{
	return a > INT64_MAX - b ? INT64_MAX : a + b; /* JSON has no larger numbers */
}

/* --- receiving --- */

/* An instant takes no time: among the times of ranges it would be one of 0. */
static void add_mark(struct metrics_state *s, const struct activity *a, uint64_t ns)
{
	if (a->flag & (ACTIVITY_MARK_INSTANT | ACTIVITY_MARK_INSTANT_DEVICE))
		return;
	if (s->nmarks == MAX_MARKS) {
		s->more_marks++;
		s->more_ns = add_saturated(s->more_ns, ns);
		return;
	}
	*XPUSH(s->marks, s->nmarks, s->cap) = (struct mark_report){
		.name = a->name,
		.domain = a->detail,
		.start_ns = a->start_ns,
		.ns = ns,
		.device = a->place == ACTIVITY_ON_DEVICE	 ? (int64_t)a->device
			  : a->flag & ACTIVITY_MARK_START_DEVICE ? HOST_OF_PAIR
								 : -1,
	};
}

static void add_sum(struct window *w, const struct activity *a, uint64_t ns)
{
	struct metrics_state *s = w->state;
	struct sums *sums = &s->kinds[a->kind];
	bool api = ACTIVITY_APIS & ACTIVITY_BIT(a->kind);
	int64_t device = api ? -1 : (int64_t)a->device;
	size_t i = 0;

	while (i < sums->n && sums->list[i].device != device)
		i++;
	if (i == MAX_DEVICES) {
		w->crowded++;
		return;
	}
	if (i == sums->n) {
		sums->list = xgrow(sums->list, &sums->cap, i + 1, sizeof(*sums->list));
		sums->list[sums->n++] = (struct sum){.device = device};
	}
	sums->list[i].ns = add_saturated(sums->list[i].ns, ns);
}

static void metrics_activity(struct window *w, const struct activity *a)
{
	struct metrics_state *s = w->state;
	uint64_t ns = a->end_ns - a->start_ns;

	if (a->kind == ACTIVITY_MARKER)
		add_mark(s, a, ns);
	else
		add_sum(w, a, ns);
}

/* --- reporting --- */

static void send_json(struct window *w)
{
	struct metrics_state *s = w->state;

	if (w->to)
		sender_put(w->to, "data", s->json.data, s->json.len);
	buf_clear(&s->json);
}

static void send_mark(struct window *w, const struct mark_report *m)
{
	struct metrics_state *s = w->state;

	buf_addf(&s->json, "\"deviceId\":%lld,\"domain\":", (long long)m->device);
	json_text_add_cut(&s->json, m->domain, MAX_DOMAIN_BYTES, &s->scratch);
	buf_addf(&s->json,
		 ",\"duration\":%llu,\"kind\":\"Marker\",\"name\":", (unsigned long long)m->ns);
	json_text_add_cut(&s->json, m->name, MAX_NAME_BYTES, &s->scratch);
	buf_addf(&s->json, ",\"timestamp\":%llu}", (unsigned long long)m->start_ns);
	send_json(w);
}

static void send_marks(struct window *w, uint64_t wall_ns)
{
	struct metrics_state *s = w->state;

	for (size_t i = 0; i < s->nmarks; i++) {
		buf_add_char(&s->json, '{');
		send_mark(w, &s->marks[i]);
	}
	if (s->more_marks) {
		struct mark_report more = {.name = "…other",
					   .domain = "…other",
					   .device = -1,
					   .start_ns = wall_ns,
					   .ns = s->more_ns};
		buf_addf(&s->json, "{\"count\":%llu,", (unsigned long long)s->more_marks);
		send_mark(w, &more);
	}
	s->nmarks = 0;
	s->more_marks = s->more_ns = 0;
}

COMPARE_BY(by_device, struct sum, device)

static void send_kind(struct window *w, uint32_t kind, uint64_t wall_ns)
{
	struct metrics_state *s = w->state;
	struct sums *sums = &s->kinds[kind];

	if (sums->n)
		qsort(sums->list, sums->n, sizeof(*sums->list), by_device);
	for (size_t i = 0; i < sums->n; i++) {
		buf_addf(&s->json,
			 "{\"deviceId\":%lld,\"duration\":%llu,\"kind\":\"%s\",\"timestamp\":%llu}",
			 (long long)sums->list[i].device, (unsigned long long)sums->list[i].ns,
			 activity_kind_name(kind), (unsigned long long)wall_ns);
		send_json(w);
	}
	sums->n = 0;
}

static void send_report(struct window *w, uint64_t now_ns)
{
	struct metrics_state *s = w->state;
	uint64_t wall_ns = now_ns + (uint64_t)w->wall_minus_mono_ns;

	send_marks(w, wall_ns);
	for (uint32_t kind = 0; kind < ACTIVITY_KIND_END; kind++)
		if (kind != ACTIVITY_MARKER)
			send_kind(w, kind, wall_ns);
	s->reported_ns = now_ns;
	w->written = *w->seen;
}

static void metrics_tick(struct window *w, uint64_t now_ns)
{
	struct metrics_state *s = w->state;

	if (!s->reported_ns)
		s->reported_ns = now_ns;
	if (now_ns > s->reported_ns && now_ns - s->reported_ns >= s->interval_s * NS_PER_S)
		send_report(w, now_ns);
}

/* Marks point to texts, and can be sent at any time; an interval is over when it is. */
static void metrics_forget(struct window *w)
{
	send_marks(w, clock_mono_ns() + (uint64_t)w->wall_minus_mono_ns);
}

/* --- */

static void metrics_change(struct window *w)
{
	struct metrics_state *s = w->state;

	if (w->monitor.interval_s)
		s->interval_s = w->monitor.interval_s;
}

static int metrics_open(struct window *w, struct err *err)
{
	struct metrics_state *s = xcalloc(1, sizeof(*s));

	(void)err;
	s->interval_s = DEFAULT_INTERVAL_S;
	w->state = s;
	metrics_change(w);
	return 0;
}

static void metrics_close(struct window *w)
{
	struct metrics_state *s = w->state;

	send_report(w, clock_mono_ns());
	for (uint32_t kind = 0; kind < ACTIVITY_KIND_END; kind++)
		free(s->kinds[kind].list);
	free(s->marks);
	buf_release(&s->json);
	buf_release(&s->scratch);
	free(s);
}

const struct window_ops window_metrics = {
	.open = metrics_open,
	.change = metrics_change,
	.activity = metrics_activity,
	.tick = metrics_tick,
	.forget = metrics_forget,
	.close = metrics_close,
};
