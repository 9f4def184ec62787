/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Whose work a device executes: the module of a model and the line of the user's program that have
 * launched it. Threads say what they launch for from some moment on (REC_WORK); launches have a
 * thread and a moment (REC_LAUNCH), and the number that the work has, too. Of a gradient the number of
 * the operation is known, and to which module that belonged.
 *
 *	REC_WORK    thread 7, from t1: module M, line L, operations from 100 on
 *	REC_LAUNCH  thread 7, t2 > t1: correlation 55              -> 55 is of M, L
 *	REC_WORK    thread 9, from t3: the gradient of operation 101
 *	REC_LAUNCH  thread 9, t4 > t3: correlation 56              -> 56 is of M, L, backward
 *
 * Of one process. Memory is bounded: what is too old to be known is nobody's.
 */
#ifndef SONDE_ACTIVITY_WINDOWS_ATTRIBUTION_H
#define SONDE_ACTIVITY_WINDOWS_ATTRIBUTION_H

#include "activity/files/activity.h"
#include "activity/windows/names.h"

struct attribution;

struct attribution *attribution_new(void);
void attribution_free(struct attribution *t); /* t may be NULL */

void attribution_place(struct attribution *t, const struct rec_python *r);
/* names: where its module has its text. */
void attribution_work(struct attribution *t, uint32_t tid, const struct rec_work *r,
		      struct texts *names);
void attribution_launch(struct attribution *t, const struct rec_launch *r);

/* False: its launch has not been reported yet. *out: NULL if that is nobody's; lives as long as t. */
bool attribution_find(const struct attribution *t, uint64_t correlation,
		      const struct activity_owner **out);

#endif
