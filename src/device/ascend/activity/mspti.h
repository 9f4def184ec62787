/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Activities of MSPTI: what the files activity*.c of this folder share, and what tests use. */
#ifndef SONDE_DEVICE_ASCEND_ACTIVITY_MSPTI_H
#define SONDE_DEVICE_ASCEND_ACTIVITY_MSPTI_H

#include "device/activity.h"
#include "device/ascend/abi_mspti.h"

#define MSPTI_BUFFER_BYTES (8u << 20)
#define MSPTI_BUFFERS 32u /* that the library may have at a time */

/* Of the library in this process, which is loaded if need be; NULL: there is none. */
const struct mspti *mspti_find(void);
/* Is it in the process; or is the runtime that it reports about, and it would be found? */
bool mspti_can_be_found(void);

/* Instead of a library, for tests. NULL: as before. */
void mspti_use(const struct mspti *fns);

/*
 * What has gone wrong since start, in words for people: kinds that the library refuses, another
 * subscriber. "" if nothing has. For the thread that calls start.
 */
const char *mspti_problem(void);

/*
 * Tells every activity of the buffer, or just counts them. Any thread. False: it ended before the
 * buffer did, and nobody knows how many are behind.
 */
bool mspti_walk(const struct mspti *fns, uint8_t *buffer, size_t valid, bool emit,
		uint64_t *out_records);

/* Calls that launch something (launches.c): wanted from the next switch on; what the library calls;
 * false: they are wanted, and it does not tell them. */
void mspti_launches_want(bool on);
void mspti_on_call(void *arg, int domain, uint32_t call, const struct mspti_call *data);
bool mspti_launches_switch(const struct mspti *fns, void *subscriber, bool on);

/*
 * Buffers. One that was taken is the library's until it gives it back, even if that is never. NULL:
 * it has as many as it may have.
 */
uint8_t *mspti_buffer_take(void);
/* It comes back: true for who may read it now, and gives it away then. False: it is none of ours.
 */
bool mspti_buffer_claim(const uint8_t *buffer);
/* `keep`: for the next who takes one. */
void mspti_buffer_return(const uint8_t *buffer, bool keep);
/* Unmaps those that nobody has. */
void mspti_buffers_free(void);
/* In a forked child, which has copies: the library may still write into its own. */
void mspti_buffers_forget(void);
/* Counts those that were taken. */
uint64_t mspti_buffers_taken(void);
/* Has one of the first `taken` not been given away yet? */
bool mspti_buffers_are_out(uint64_t taken);
/* Those are not asked for any more. */
void mspti_buffers_abandon(uint64_t taken);

#endif
