/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "daemon/loop.h"

#include "base/mem.h"

struct event *loop_event_new(struct event_base *base, int fd, short what,
			     enum daemon_priority priority, event_callback_fn fn, void *arg)
{
	struct event *e = event_new(base, fd, what, fn, arg);

	BUG_ON(!e);
	event_priority_set(e, priority);
	return e;
}

void loop_timer_start(struct event *timer, uint64_t us)
{
	event_add(timer, &(struct timeval){(time_t)(us / 1000000), (suseconds_t)(us % 1000000)});
}

void loop_event_free(struct event *e)
{
	if (e)
		event_free(e);
}
