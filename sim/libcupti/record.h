/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Between the files of this library. */
#ifndef SONDE_SIM_LIBCUPTI_RECORD_H
#define SONDE_SIM_LIBCUPTI_RECORD_H

#include <stddef.h>
#include <stdint.h>

uint64_t sim_now(void);
int sim_thread_ids(void);
/* Into the open buffer, if the kind is on; complete once the clock says `ends`. */
void sim_note(int kind, const void *record, size_t bytes, uint64_t ends);
/* Is this call of the runtime or the driver reported, by its kind or alone? */
int sim_call_is_on(int kind, uint32_t cbid);
/* The registered clock, as the library reads it at the beginning and the end of a reported call. */
uint64_t sim_call_clock(void);
/* What has not ended by then has no end. */
void sim_cut_unfinished(uint8_t *buffer, size_t used, uint64_t now);
void sim_convert(uint8_t *buffer, size_t used, uint64_t offset);

#endif
