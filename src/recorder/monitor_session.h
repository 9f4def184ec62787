/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A session that the monitor inside a job made for itself: a resident monitor runs for weeks, so no
 * recording is kept, only what its windows write where they were told to. The directory goes when
 * the job has ended.
 */
#ifndef SONDE_RECORDER_MONITOR_SESSION_H
#define SONDE_RECORDER_MONITOR_SESSION_H

#include <stdbool.h>

bool is_monitor_session(const char *dir);
void monitor_session_remove(const char *dir);

#endif
