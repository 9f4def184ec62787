/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Where the time of all ranks goes, and why their devices idle, from the same sources as the timeline:
 * what passes through timeline_slice() and its like is counted here by its role. Of each process:
 * the work of its devices, what its host does (activity/idle), and its steps.
 */
#ifndef SONDE_TIMELINE_EXPLAIN_H
#define SONDE_TIMELINE_EXPLAIN_H

#include "activity/steps/job_summary.h"
#include "timeline/timeline.h"

struct explain;

struct explain *explain_new(uint64_t from_ns, uint64_t to_ns); /* wall clock; 0: no limit */
/* The ranks that have work of devices, judged; false: there is none. Frees e. */
bool explain_finish(struct explain *e, struct split_job *out);
void explain_free(struct explain *e); /* may be NULL */

/* --- of timeline.c --- */

void explain_slice(struct explain *e, struct timeline_track *k, uint64_t start_ns, uint64_t end_ns,
		   const struct timeline_event *event);
void explain_begin(struct explain *e, struct timeline_track *k, uint64_t time_ns,
		   const struct timeline_event *event);
void explain_end(struct explain *e, struct timeline_track *k, uint64_t time_ns);
/* start_ns or end_ns is 0 where the other moment is another call. */
void explain_step(struct explain *e, const struct timeline_process *p, uint64_t number,
		  uint64_t start_ns, uint64_t end_ns);
void explain_allocation(struct explain *e, const struct timeline_process *p, uint64_t time_ns);
void explain_cut(struct explain *e, const struct timeline_process *p);

#endif
