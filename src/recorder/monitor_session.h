/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A session that the monitor inside a job made for itself: a resident monitor runs for weeks, so no
 * recording is kept, only what its windows write. The directory goes when
 * the job has ended.
 */
#ifndef SONDE_RECORDER_MONITOR_SESSION_H
#define SONDE_RECORDER_MONITOR_SESSION_H

#include <stdbool.h>
#include <stdint.h>

bool is_monitor_session(const char *dir);
void monitor_session_remove(const char *dir);
/* What killed recorders have left beside this one, of processes that need it no more. */
void monitor_session_sweep(const char *dir);

/*
 * The program that the process of the session runs. By exec() it becomes another, which may have no
 * monitor: then nothing ends the windows, and the process lives on.
 */
struct monitor_image {
	uint32_t pid;
	uint64_t mark, checked_ns;
};
void monitor_image_note(struct monitor_image *image, uint32_t pid);
/* Whether it is another by now. Checks from time to time; `pid` 0: it is not known. */
bool monitor_image_is_gone(struct monitor_image *image, uint64_t now_ns);

#endif
