/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Between the files of libmspti. */
#ifndef SONDE_SIM_MSPTI_LIBRARY_H
#define SONDE_SIM_MSPTI_LIBRARY_H

#include "mspti/mspti.h"
#include "sim/feed.h"

#pragma GCC visibility push(hidden)

/* buffer.c: records on their way to the user. */
msptiResult buffer_callbacks(msptiBuffersCallbackRequestFunc request,
			     msptiBuffersCallbackCompleteFunc complete);
/* Copies it with its names into the current buffer; 0, or -1 when there was none and the record is
 * lost. */
int buffer_put(const void *record, size_t size);
/* The same for who tries again: what does not fit is not counted as lost. */
int buffer_try(const void *record, size_t size);
/* For many in a row: buffer_put() between them does not wait for other threads. */
void buffer_lock(void);
void buffer_unlock(void);
void buffer_flush(void);
void buffer_after_fork(void);
size_t record_size(int32_t kind);

/* names.c: the strings that the records of one buffer point to. */
struct names;
struct names *names_new(void);
const char *names_add(struct names *n, const char *text);
/* Overwrites them first: a name used after its time shows. */
void names_free(struct names *n);

/* callback.c */
void callback_call(struct sim_call *c, msptiApiCallbackSite site, const int *result);
void callback_after_fork(void);

/* marker.c: domains, external correlation. */
int marker_wants_domain(const char *name);
void external_note(uint64_t correlation);

/* activity.c */
int library_preloaded(void);
void library_want(uint32_t bits, int on);

/* flood.c: SIM_MSPTI_FLOOD */
void flood_begin(msptiActivityKind kind);

#pragma GCC visibility pop

#endif
