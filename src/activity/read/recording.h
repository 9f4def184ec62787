/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Activities in a recording of `sonde record`, which is one file of all processes. */
#ifndef SONDE_ACTIVITY_READ_RECORDING_H
#define SONDE_ACTIVITY_READ_RECORDING_H

#include "activity/read/read.h"
#include "recorder/stream.h"

#define ACTIVITY_ALL_PROCESSES UINT32_MAX

struct activity_recording_ops {
	/* A window of a process begins; what is returned goes to the others. about: who it is, and
	 * when it began. */
	void *(*process)(void *arg, uint32_t proc, const struct activity_about *about);
	int (*activity)(void *process, const struct activity *a);
	/* It begins; the first one is 1. May be NULL, as may end(). */
	void (*step)(void *process, uint64_t number, uint64_t wall_ns);
	void (*end)(void *process, const struct activity_about *about);
	/* Nothing was reported meanwhile: another profiler had the device's library. May be NULL. */
	void (*gap)(void *process, uint64_t from_ns, uint64_t to_ns);
};

/* `only`: the number of a process in the recording. */
int activity_recording_read(const char *path, uint32_t only,
			    const struct activity_recording_ops *ops, void *arg, struct err *err);

/* The same beside others who hear that file: between the two calls it is read, by stream_file_to()
 * with this listener. The end gives what ended it early, or 0. */
struct activity_reading;
struct activity_reading *activity_recording_begin(uint32_t only,
						  const struct activity_recording_ops *ops,
						  void *arg, struct stream_listener *out);
int activity_recording_end(struct activity_reading *r);

/* "…/events.sonde:3": for activity_read(). */
bool activity_recording_is_path(const char *path);
int activity_read_process(const char *path, activity_read_fn fn, void *arg,
			  struct activity_about *about, struct err *err);
/* Such a path for each process that has reported activities. */
int activity_recording_list(const char *file, void (*fn)(void *arg, const char *path), void *arg,
			    struct err *err);

#endif
