/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What mstx tells libmspti, beside the tool that fills the slots: both see every mark. A domain
 * and a range have the handle of the tool if it gave one, else one of ours, which the tool never
 * gets to see.
 */
#ifndef SONDE_SIM_MARKS_H
#define SONDE_SIM_MARKS_H

#include "mstx/ms_tools_ext.h"

#pragma GCC visibility push(hidden)

/* Remembers the name behind @tools, or behind a handle made here if that is NULL. */
mstxDomainHandle_t marks_domain(mstxDomainHandle_t tools, const char *name);
/* NULL for a handle of ours. */
mstxDomainHandle_t marks_tools_domain(mstxDomainHandle_t domain);

void marks_instant(mstxDomainHandle_t domain, const char *message, void *stream);
/* Returns @tools, or an id of ours if that is 0 and libmspti wants the range. */
mstxRangeId marks_start(mstxDomainHandle_t domain, const char *message, void *stream,
			mstxRangeId tools);
void marks_end(mstxRangeId id);
int marks_is_ours(mstxRangeId id);

#pragma GCC visibility pop

#endif
