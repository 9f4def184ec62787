/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Why memory ran out: every request that the driver refused (OOM_TRIGGER rows), what was there at
 * that moment, and one of five verdicts with the numbers that prove it:
 *
 *	leak            what was allocated step by step and never freed would have been enough
 *	fragmentation   enough is free inside a pool, or on the device, but in pieces
 *	other process   without what others hold on the device the request would have fitted
 *	oversized request  more than the device, or the machine, has in all
 *	real exhaustion none of these: the job needs more than there is
 *
 * The first that applies is given. Requests of one process for the same size, less than two seconds
 * apart, are one incident: frameworks give back what they cached and ask again. If that request is
 * then granted the job did not notice; such an incident is reported, but it is not a finding.
 *
 * Host memory: a refused malloc() or mmap(); the total is then the limit of the process. Processes
 * that the kernel killed because their control group had no more memory are findings, too.
 *
 * What is alive comes from MALLOC and FREE rows; without them the OOM_TOP_ALLOC and
 * OOM_RECENT_ALLOC rows are used. The device's size comes from SNAPSHOT or START_TRACE rows, what
 * others hold from device_used and process_used; where they are missing the verdict is from this
 * process' view.
 *
 * The JSON object (bytes and times are integers, null where unknown; times are ns since the epoch):
 *
 *	requests	how often memory was refused
 *	incidents[]	pid, command, device, tid, time_ns, after_ns, step (0: outside), count,
 *			granted_later, requested_bytes, function, where, c_stack[], python_stack[],
 *			verdict ("real exhaustion", …), reason, advice, own_view_only
 *	  device_memory	total_bytes (or what the process may use of them), process_bytes,
 *			kept_bytes (by the driver's pools), outside_bytes (its context and libraries), others_bytes, job_bytes
 *			(of them, by other processes of this job; null: none is known), limit_bytes,
 *			space_bytes (of the host: in use of what is limited), machine_bytes,
 *			free_bytes
 *	  pools[]	pool, reserved_bytes, allocated_bytes, blocks, free_bytes, free_pieces,
 *			largest_free_bytes (the last three null where the pool's memory is not seen)
 *	  leak		bytes, blocks, places, first_step, last_step, where
 *	  largest[], recent[]	pool, address, bytes, time_ns, step, where, owner
 */
#ifndef SONDE_MEMORY_ANALYSIS_OOM_OOM_H
#define SONDE_MEMORY_ANALYSIS_OOM_OOM_H

#include "memory/analysis/common/analysis.h"

/* Gives an analysis; end it with analysis_free(). */
struct analysis *oom_new(void);

#endif
