/* SPDX-License-Identifier: MulanPSL-2.0 */
/* For who has more to say in a Chrome trace than activities (activity_chrome of activity.h). */
#ifndef SONDE_ACTIVITY_FILES_CHROME_H
#define SONDE_ACTIVITY_FILES_CHROME_H

#include "activity/files/activity.h"

#include <stdint.h>

struct chrome_trace;

/* Members of the trace's object, "\"a\":1,\"b\":2": before the first activity. */
void activity_chrome_about(struct activity_writer *w, const char *members);

/* The trace, made if it is not there yet: events may be added to it. Their times count from
 * *out_base_ns. NULL: it cannot be made. */
struct chrome_trace *activity_chrome_trace(struct activity_writer *w, int64_t *out_base_ns,
					   struct err *err);

/* What a thread is called, instead of its number alone: before its first activity. */
void activity_chrome_thread(struct activity_writer *w, int64_t pid, int64_t tid, const char *name);

#endif
