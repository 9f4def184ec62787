/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What took the time of an interval, for `sonde top`: the datagram sondeTop. Devices with the time
 * that they were busy, and the kernels, copies and calls with the most time.
 *
 * The source reports what has ended, every second or so. An interval therefore ends some time
 * before the newest activity that was reported, when what began in it and is not long has come too:
 * reports do not depend on when exactly the source reports. Of devices only the time inside the
 * interval counts, so that they are never busy for longer than it is; what comes too late for that
 * is reported separately. Rows count each call once, in the report of the interval in which it
 * ended, so that their times are parts of the same interval as those of devices; a call that comes
 * too late for that counts in the next report.
 */
#ifndef SONDE_ACTIVITY_LIVE_TOP_REPORT_H
#define SONDE_ACTIVITY_LIVE_TOP_REPORT_H

#include "activity/live/daemon_queue.h"
#include "activity/windows/window.h"
#include "base/containers/buf.h"

#include <stdbool.h>
#include <stdint.h>

#define TOP_ROWS 60u /* in a report */
#define TOP_HOST_ROWS 15u /* of them, calls of the host at most: their time is not a device's */
#define TOP_OWNER_ROWS 40u /* besides, by module and by line each, if they are asked for */
#define TOP_MAX_ROWS 8192u /* distinguished in an interval */
#define TOP_MAX_DEVICES 64u
#define TOP_MAX_BYTES 60000u
#define TOP_INTERVAL_S 2u /* or the report interval of the order, if that is shorter */

struct top;

/* Borrows the window. from_ns: wall clock. */
struct top *top_new(const struct window *w);
void top_free(struct top *t);
/* Owners of activities (--attribute) are about to go. */
void top_drop_owners(struct top *t);

void top_add(struct top *t, const struct activity *a);
/* A step begins. Marks "step start" do the same, as long as nobody calls this. */
void top_step(struct top *t, uint64_t wall_ns);

/* Sends it if it is due; now is CLOCK_MONOTONIC. `to` may be NULL. */
void top_tick(struct top *t, uint64_t now_ns, struct sender *to);
/* The last one: up to now, if there is anything in it. */
void top_end(struct top *t, uint64_t now_ns, struct sender *to);
/* Texts that are not used are about to go: those of rows are. */
void top_hold(struct top *t);

#endif
