/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What the host of a rank did, and from that why its devices had nothing to do. Zero-initialise, add
 * slices of its threads in any order, then ask for each device. Keeps 24 bytes for each slice.
 *
 * At a moment several threads do something. It counts, the first of these that there is:
 *   1. Python's collector, in any thread: it holds all of them up
 *   2. an allocation by the driver, in a thread that launches work
 *   3. Python of the thread that launches work; of several the main one, unless it launches little
 *   4. Python of other threads that launch work
 *   5. calls and ranges of threads that launch work, or of the main one
 */
#ifndef SONDE_ACTIVITY_IDLE_HOST_WORK_H
#define SONDE_ACTIVITY_IDLE_HOST_WORK_H

#include "activity/idle/host_calls.h"
#include "activity/steps/step_split.h"

#define HOST_MAX_SLICES 40000000u /* of a rank; beyond that they are counted */

struct host_slice {
	uint64_t start_ns, end_ns;
	const struct host_call *call;
};

struct host_thread {
	uint64_t id;
	struct host_slice *list;
	size_t n, cap;
	uint64_t launches;
	uint64_t python; /* slices */
	size_t *open; /* slices that have begun without an end */
	size_t nopen, cap_open;
};

struct host_work {
	uint64_t main_thread; /* its id: the number of the process */
	struct host_calls calls;
	struct host_thread *threads;
	size_t nthreads, cap_threads;
	uint64_t slices, left_out;
	bool ordered;
	struct hmap reasons; /* hash of a finding to its place among the reasons */
	size_t cap_reasons, cap_shares;
};

void host_work_add(struct host_work *h, uint64_t thread, enum host_kind kind, const char *name,
		   uint64_t start_ns, uint64_t end_ns);
/* A function of Python, of which is known at which line its caller has called it. */
void host_work_add_from(struct host_work *h, uint64_t thread, const char *name, int32_t caller_line,
			uint64_t start_ns, uint64_t end_ns);
/* Slices whose ends come later, nested and in order of time. */
void host_work_begin(struct host_work *h, uint64_t thread, enum host_kind kind, const char *name,
		     uint64_t start_ns);
void host_work_end(struct host_work *h, uint64_t thread, uint64_t end_ns);

/*
 * Explains the idle time of a device in the rank's whole steps: what lies in none of its `busy`
 * spans, which are tidy. Once for each device, then host_work_finish(). Nothing is added after the
 * first.
 */
void host_work_explain(struct host_work *h, const struct split_rank *r, const struct spans *busy,
		       struct split_idle *out);
/* The reasons of all devices by their time; what is left open in the steps of `out`. */
void host_work_finish(struct host_work *h, struct split_idle *out);
void host_work_release(struct host_work *h);

#endif
