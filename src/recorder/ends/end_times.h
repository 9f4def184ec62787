/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * When processes ended. Who looks now and then learns of an end too late, and of what the process
 * held meanwhile: totals over several processes would be wrong by what the others allocated since.
 * A thread waits for all ends at once and does nothing but note the time.
 */
#ifndef SONDE_RECORDER_ENDS_END_TIMES_H
#define SONDE_RECORDER_ENDS_END_TIMES_H

#include <stdint.h>

struct end_times;

/* NULL: there can be no thread, and nothing is known. All functions take that. */
struct end_times *end_times_new(void);
void end_times_free(struct end_times *t);

/* The number is the caller's own for this pidfd, and never used again. The pidfd is borrowed, and
 * may be closed at any time. */
void end_times_watch(struct end_times *t, int pidfd, uint64_t number);

/*
 * When it ended (CLOCK_MONOTONIC), 0 if it lives or that is not known. If it has ended this very
 * moment, waits until the thread knows it, too, or for a tenth of a second.
 */
uint64_t end_times_get(struct end_times *t, int pidfd, uint64_t number);
void end_times_forget(struct end_times *t, uint64_t number);

#endif
