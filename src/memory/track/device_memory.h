/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Samples of device memory for the recording: how much each device that the job uses has, how much
 * of it is used, and by which process. Processes that are not recorded belong to the job, too, if they
 * descend from one of it or have its environment. The recorder takes them, never the job, in a thread of their
 * own, since the driver may take its time. Without the vendor's library (DCMI or
 * NVML) there are none.
 *
 * All calls come from the recorder's one thread.
 */
#ifndef SONDE_MEMORY_TRACK_DEVICE_MEMORY_H
#define SONDE_MEMORY_TRACK_DEVICE_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/containers/buf.h"
#include "memory/track/track.h"
#include "wire/control_page.h"

struct device_memory;

/* Of that session, borrowed: its page says which processes of the job are not recorded. NULL: none. */
struct device_memory *device_memory_new(const char *dir, struct control_page *page);
/* A thread that hangs in the driver is left behind: the process is about to end. */
void device_memory_free(struct device_memory *m); /* m may be NULL */

/*
 * As cheap as a few compares. Requests a sample when one is due: every half a second
 * while `events` come, at once when a process uses a device for the first time and when memory was
 * refused. True: samples have arrived; the payload of a FRAME_BATCH with them was added to batch.
 */
bool device_memory_poll(struct device_memory *m, const struct track *t, bool events,
			struct buf *batch);

/*
 * Before the end of a process: if memory was refused and no sample has come yet, waits for
 * it, a fraction of a second at most.
 */
void device_memory_settle(struct device_memory *m, const struct track *t);

#endif
