/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Which call sites of a job lose memory: they allocate in step after step what nobody frees.
 *
 * The state that counts is the one at the end of the last step that ended. What a job frees in its
 * teardown hides nothing, and what it keeps until its exit, but does not add to, is no leak. A step
 * that was running when the job died is left out.
 *
 * A call site is a call stack (functions and source lines) in a pool of a device of a process.
 * Blocks without a call stack are distinguished by their size, and put together with similar sizes
 * (up to the next power of two) if no single size grows.
 *
 * Step 1 is the warm-up. A block is lost when it was allocated in step 2 or later and has lived
 * through more steps than any block of its call site that was freed. A site
 *
 *	grows          lost blocks come from two steps or more, and it goes on. This is a finding.
 *	is kept once   lost blocks come from one step: a one-time cache, or a one-time leak
 *	has stopped    it grew in some steps, and not since: a cache that has filled up
 *	rolls          no block is older than those that were freed: a buffer of the last few steps
 *	is the pool's  memory of the driver that a pool has cut its blocks from; the pool is judged
 *
 * In a job of three or four steps a site also grows if its second step is the last one and it
 * never freed anything.
 *
 * What is kept grows with blocks that are alive and with distinct call stacks, never with rows.
 * A step end costs what ended since the one before. Not thread safe.
 *
 * The JSON object (bytes, counts and times are integers; a device is text: "0", "cpu", "N/A"):
 *
 *	findings            call sites that grow, after min_bytes, which is about their places
 *	ignored_places      places that grow, but too little for min_bytes
 *	places[]            the lines of the program that lose memory, the largest first: sums of the
 *	                    sites that share pool and line. As a site (below): pid, device, pool,
 *	                    pinned, blocks, bytes, steps, first_step, last_step, span_steps,
 *	                    bytes_per_step, left_at_end, where; call_stacks (how many sites)
 *	leaks[]             all of them, the largest first: a site (below) and allocations[] (the
 *	                    first 100): address (text), bytes, step, kernel (launches before it),
 *	                    row (ID of its MALLOC row), time_ns
 *	kept[]              the `top` largest sites that hold memory without growing
 *	  site              pid, device, pool, kind ("growth", "once", "stopped", "rolling",
 *	                    "held_by_pool"), pinned, blocks, bytes, steps (in how many of them the
 *	                    blocks were allocated), first_step, last_step, span_steps (how many
 *	                    there were to lose memory in), bytes_per_step, left_at_end (of the
 *	                    site, {blocks, bytes}: also what does not count; not "held_by_pool"),
 *	                    freed_blocks,
 *	                    longest_life_steps (of a block that was freed), block_bytes (null if
 *	                    they differ), where (or null), c_stack[], python_stack[], module: of a
 *	                    model, that nearly all of it belongs to: h.*.mlp (or null)
 *	by                  "site", "module", "line"
 *	growth[]            with the last two, of each device of a process that loses memory: pid,
 *	                    device, bytes, bytes_per_step, first_step, groups[] as in owners
 *	grows_over_time[]   of processes without steps, see growth.c: pid, device, pool, confidence
 *	                    ("likely", "possible"), windows, window_ns, windows_grown, bytes,
 *	                    bytes_per_minute, block_bytes (or null), where, c_stack[],
 *	                    python_stack[]. These are no findings, but with them the job
 *	                    is not judged to be without leaks (ops->judged)
 *	steps               {source: "explicit", "range", "optimizer", "forward", name (or null)} of
 *	                    the process that has the most of them, or null
 *	processes[]         pid, command (or null), steps_ended, last_step, steps (as above),
 *	                    left_at_end: {blocks, bytes},
 *	                    driver_left: {blocks, bytes, pool_blocks, pool_bytes, places[]}: memory
 *	                    of the driver that was left at the end, less what pools were cut from,
 *	                    left_places[]: only without steps, the same for all that was left
 *	  places            device, pool, pinned, blocks, bytes, where, c_stack[], python_stack[]
 */
#ifndef SONDE_MEMORY_ANALYSIS_LEAKS_LEAKS_H
#define SONDE_MEMORY_ANALYSIS_LEAKS_LEAKS_H

#include "memory/analysis/common/analysis.h"

#define LEAKS_HOST_MIN_BYTES_PER_STEP 1024

struct leaks_options {
	/* Call sites that lost fewer bytes in all are no findings. UINT64_MAX: 0, but for host
	 * memory LEAKS_HOST_MIN_BYTES_PER_STEP in a step. */
	uint64_t min_bytes;
	unsigned by; /* enum leaks_by: how the answer begins */
};

/* As in enum groups_by. */
enum leaks_by { LEAKS_BY_SITE, LEAKS_BY_MODULE, LEAKS_BY_LINE };
extern const char *const leaks_by_names[]; /* ended by NULL */

#define LEAKS_OPTIONS_DEFAULT                                                                      \
	{                                                                                          \
		.min_bytes = UINT64_MAX                                                            \
	}

/* options may be NULL. */
struct analysis *leaks_new(const struct leaks_options *options);

/* Has a process that was through with its devices left memory of the driver behind? */
bool leaks_kept_after_end(struct analysis *a);

#endif
