/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Activities as a consumer of the recorder. */
#include "recorder/consumer.h"

#include "activity/trace/python.h"
#include "activity/windows/windows.h"
#include "base/mem.h"

#include <stdlib.h>

struct state {
	struct activities *activities;
	struct control_page *page;
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
	s->activities = activities_new();
	trace_python_ask_through(&s->page->access_denied_pid);
	publish_written(s);
	out->state = s;
	out->listener = s->activities;
	return 0;
}

static void close_activities(void *state)
{
	struct state *s = state;

	activities_free(s->activities);
	free(s);
}

static void tick(void *state, uint64_t now_ns)
{
	struct state *s = state;

	activities_tick(s->activities, now_ns);
	publish_written(s);
}

static bool is_tracing(void *state)
{
	return activities_are_tracing(((struct state *)state)->activities);
}

static void flush(void *state)
{
	activities_flush(((struct state *)state)->activities);
}

static bool is_writing(void *state)
{
	return activities_are_writing(((struct state *)state)->activities);
}

const struct consumer_ops activity_consumer = {
	.name = "activity",
	.stream = &activities_stream,
	.open = open_activities,
	.close = close_activities,
	.tick = tick,
	.is_urgent = is_tracing,
	.flush = flush,
	.is_flushing = is_writing,
};
