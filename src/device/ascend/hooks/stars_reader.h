/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * When kernels really ran: one thread per device ("sonde-stars") reads the STARS channel and
 * reports begin and end of every task in the device's own time.
 *
 * A reader exists only in a process that launched kernels while they were wanted. A forked child
 * has none of its parent's; it gets its own at its own first launch. Readers end by themselves when
 * the driver closes the channel.
 *
 * All functions: any thread; errno is preserved. Nothing waits except stars_reader_stop().
 */
#ifndef SONDE_DEVICE_ASCEND_HOOKS_STARS_READER_H
#define SONDE_DEVICE_ASCEND_HOOKS_STARS_READER_H

#include "device/ascend/abi.h"
#include "device/ascend/hooks/stars.h"

#include <stdbool.h>
#include <stdint.h>

/*
 * Opens the channel of a device (the driver's number) and starts its reader. Once per process and
 * device, however often it is called and whether or not it succeeds. The driver is borrowed for
 * good.
 */
void stars_reader_start(const struct prof_driver *driver, uint32_t device,
			enum stars_format format);

/* A launch that the runtime announced, before the device can have begun it. */
void stars_reader_launched(const struct prof_task_track *t);

/* How the runtime packs stream numbers into records. */
void stars_reader_expanded(bool expanded);

/* Closes all channels, after their records have been read: at most STARS_STOP_NS. */
#define STARS_STOP_NS 300000000ull
void stars_reader_stop(void);

#endif
