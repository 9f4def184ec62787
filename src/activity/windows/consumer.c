/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Activities as a consumer of the recorder. */
#include "recorder/consumer.h"
#include "formats/json_value.h"
#include "recorder/session.h"

#include "activity/trace/python.h"
#include "activity/windows/record.h"
#include "activity/windows/windows.h"
#include "base/mem.h"

#include <stdlib.h>

struct state {
	const char *dir;
	struct activities *activities;
	struct control_page *page;
	bool terminal;
	uint64_t said; /* activities, when they were last reported, + 1 */
};

static void publish_written(struct state *s)
{
	atomic_store(&s->page->activities_written, activities_written(s->activities));
}

static int open_activities(const struct recorder_session *session, struct consumer *out,
			   struct err *err)
{
	struct state *s = xcalloc(1, sizeof(*s));

	(void)err;
	s->page = session->page;
	s->dir = session->dir;
	s->terminal = session->terminal;
	s->activities = activities_new();
	trace_python_ask_through(&s->page->access_denied_pid);
	publish_written(s);
	out->state = s;
	out->listener = s->activities;
	out->checkpoint = session->page->record.on ? &activities_checkpoint : NULL;
	return 0;
}

static void close_activities(void *state)
{
	struct state *s = state;

	activities_free(s->activities);
	free(s);
}

static void tick_windows(void *state, uint64_t now_ns)
{
	struct state *s = state;

	activities_tick(s->activities, now_ns);
	publish_written(s);
}

static bool is_tracing(void *state)
{
	return activities_are_tracing(((struct state *)state)->activities);
}

static void flush_windows(void *state)
{
	activities_flush(((struct state *)state)->activities);
}

static bool is_writing(void *state)
{
	return activities_are_writing(((struct state *)state)->activities);
}

/* `sonde record`: where the time of the devices went. */
static void add_shares(const struct record_totals *t, struct buf *text)
{
	uint64_t all = 0;

	for (unsigned p = 0; p < SPLIT_PARTS; p++)
		all += t->part_ns[p];
	if (!all)
		return;
	double percent = 100.0 / (double)all;
	buf_addf(text,
		 "sonde record: devices were busy %.0f %% of the time: %.0f %% compute, %.0f %% "
		 "communication and %.0f %% copies that nothing hides.\n",
		 percent * (double)(all - t->part_ns[SPLIT_IDLE]),
		 percent * (double)t->part_ns[SPLIT_COMPUTE],
		 percent * (double)t->part_ns[SPLIT_COMM],
		 percent * (double)t->part_ns[SPLIT_COPY]);
}

/* Parts of the time of all devices; null: none was used. */
static json_t *shares_json(const struct record_totals *t)
{
	static const char *const keys[SPLIT_PARTS] = {[SPLIT_COMPUTE] = "compute_percent",
						      [SPLIT_COMM] = "communication_percent",
						      [SPLIT_COPY] = "copies_percent",
						      [SPLIT_IDLE] = "idle_percent"};
	json_t *o = json_object();
	uint64_t all = 0;

	for (unsigned p = 0; p < SPLIT_PARTS; p++)
		all += t->part_ns[p];
	for (unsigned p = 0; p < SPLIT_PARTS && all; p++)
		json_object_set_new(o, keys[p],
				    json_real(100.0 * (double)t->part_ns[p] / (double)all));
	if (all)
		return o;
	json_decref(o);
	return json_null();
}

static void answer_activities(const struct state *s, const struct record_totals *t)
{
	json_t *o = json_object();

	put_number(o, "activities", t->activities);
	put_number(o, "lost_activities", t->lost);
	json_object_set_new(o, "device_time", shares_json(t));
	session_answer(s->dir, o);
}

static void report_activities(void *state, const struct consumer_report *now)
{
	const struct record_totals *t = record_totals();
	struct state *s = state;
	struct buf text = {0};

	if (!s->page->record.on || !s->page->record.kinds || s->said == t->activities + 1 ||
	    now->removed)
		return;
	s->said = t->activities + 1;
	answer_activities(s, t);
	if (!t->activities && !now->running)
		buf_addf(&text, "sonde record: no work of a device was reported%s.\n",
			 t->windows || atomic_load(&s->page->unrecorded)
				 ? ""
				 : ": no process has used one with MSPTI or CUPTI");
	else
		add_shares(t, &text);
	if (t->lost)
		buf_addf(&text, "sonde record: %llu activities of devices were lost.\n",
			 (unsigned long long)t->lost);
	if (text.len)
		session_add_line(s->page, s->terminal, &text, t->lost != 0);
	buf_release(&text);
}

const struct consumer_ops activity_consumer = {
	.name = "activity",
	.stream = &activities_stream,
	.open = open_activities,
	.close = close_activities,
	.tick = tick_windows,
	.is_urgent = is_tracing,
	.flush = flush_windows,
	.is_flushing = is_writing,
	.report = report_activities,
};
