/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Events and timers of the daemon's loop. Without memory the process ends, as xmalloc() does it. */
#ifndef SONDE_DAEMON_LOOP_H
#define SONDE_DAEMON_LOOP_H

#include <event2/event.h>
#include <stdint.h>

#include "daemon/daemon.h"

/* `fd` -1 and `what` 0: a timer. It is not added yet. */
struct event *loop_event_new(struct event_base *base, int fd, short what,
			     enum daemon_priority priority, event_callback_fn fn, void *arg);

/* Starts a timer, or starts it anew. */
void loop_timer_start(struct event *timer, uint64_t us);

/* e may be NULL. */
void loop_event_free(struct event *e);

#endif
