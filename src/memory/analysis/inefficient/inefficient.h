/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Memory that was held while nobody used it: blocks of PyTorch's caching pool and of ATB's that
 * were allocated too early, freed too late, or left idle in between.
 *
 * Time is counted in calls. Each pool (process, device, PTA or ATB) has its own clock. A call is an
 * operator that is not inside another one of its thread, with all that happens in it; or a MALLOC,
 * FREE or ACCESS outside of any. PTA's clock counts ATen's operators, ATB's counts ATB's. Threads
 * that use one device share its clock; how deep operators nest is known for each thread. An END
 * without START counts for nothing. A START whose END is missing is forgotten when an outer one
 * ends, when a step begins or ends on that thread, and when too much is nested in it.
 *
 * A block is marked, in the attribute `inefficient` of its MALLOC row, by these rules. last_malloc
 * and last_free are the newest calls of the pool that have ended and had a MALLOC or FREE in them.
 *
 *	early_allocation	at the first ACCESS in another call than the MALLOC, if
 *				call(MALLOC) < last_free < call(ACCESS)
 *	late_deallocation	at the FREE, if an ACCESS was the event before it and
 *				call(ACCESS) < last_malloc < call(FREE)
 *	temporary_idleness	at an ACCESS, if the event before it was one, too, and more than
 *				idle_calls calls (3000) lie between them; once for each block
 *
 * These rules also hit much of what every healthy job does, such as the weights, which wait for the
 * first step, or a variable that outlives its last use by a line or two. A marked block is a
 * finding, which is what is reported and what --fail-on asks about, if besides
 *
 *	- it lay unused for more than half of its life, and for at least 10 calls (an idle one for
 *	  idle_calls), and its MALLOC was seen, not only that it was there when recording began;
 *	- early or idle: it was not allocated before the first operator ran on its device, or
 *	  before the first step of a job with steps: there the model is set up, which every step
 *	  needs;
 *	- early: the operator that allocated it did not compute it as well. One that only makes a
 *	  tensor, such as empty or zeros, does not count.
 *
 * The bytes that a kind costs are those of its findings that were in their useless time when the
 * pool last stood at its peak. Of findings that are still alive at the end that is counted, too;
 * whether those are freed too late cannot be said.
 *
 * Kept: 32 bytes for each live block (in struct block), more for marked ones that are alive, 16 to
 * 32 bytes for each marked block of the whole input, and the places. Not thread safe.
 *
 * The JSON object (a device is text; a kind is one of the three names above):
 *
 *	judged		false: no ACCESS rows of such a pool, so that nothing can be said
 *	rows, accesses, operators (outermost), blocks
 *	idle_calls, min_bytes, types[]	what was asked for
 *	pools[]		pid, command (or null), device, pool, blocks, peak_bytes, peak_time_ns,
 *			unused_at_peak_bytes, never_accessed: {blocks, bytes},
 *			kinds: {<kind>: {blocks, bytes, at_peak_bytes, marked_blocks, marked_bytes}}
 *	places_total, places[]	the `top` most costly: kind, pid, device, pool, blocks, bytes,
 *			at_peak_bytes, longest_calls, where (or null), c_stack[], python_stack[],
 *			examples[]: allocation_id (or null), address, bytes, calls,
 *			before, after
 *			(operators at both ends of the useless time, or null)
 */
#ifndef SONDE_MEMORY_ANALYSIS_INEFFICIENT_INEFFICIENT_H
#define SONDE_MEMORY_ANALYSIS_INEFFICIENT_INEFFICIENT_H

#include "base/err.h"
#include "memory/analysis/common/analysis.h"

enum inefficient_kind { INEFFICIENT_EARLY, INEFFICIENT_LATE, INEFFICIENT_IDLE, INEFFICIENT_KINDS };

#define INEFFICIENT_ALL ((1u << INEFFICIENT_KINDS) - 1)
#define INEFFICIENT_IDLE_CALLS 3000

struct inefficient_options {
	uint64_t min_bytes; /* smaller blocks are passed over */
	unsigned kinds; /* bit set; 0: all */
	uint32_t idle_calls; /* 0: INEFFICIENT_IDLE_CALLS */
};

/* o may be NULL: everything. */
struct analysis *inefficient_new(const struct inefficient_options *o);

/*
 * The value of the attribute for a block, "early_allocation,late_deallocation", in the order in
 * which it was detected; NULL where it is not marked. a is of inefficient_new().
 */
const char *inefficient_of(struct analysis *a, uint32_t pid, uint64_t allocation_id);
uint64_t inefficient_marked(const struct analysis *a); /* blocks */

/* Says of each block that it is marked, once for each kind, with what inefficient_of() would say. */
typedef void (*inefficient_marks)(void *arg, uint32_t pid, uint64_t allocation_id,
				  const char *kinds);
void inefficient_listen(struct analysis *a, inefficient_marks marks, void *arg);

/* Marks the rows of the dump files behind the path; a recording is not changed. Adds to notes what
 * was done. */
int inefficient_amend(struct analysis *a, const char *path, enum row_compat compat,
		      struct buf *notes, struct err *err);

const char *inefficient_kind_name(enum inefficient_kind kind);
/* By its name or by "early", "late", "idle"; INEFFICIENT_KINDS for anything else. */
enum inefficient_kind inefficient_kind_find(const char *text, size_t len);

#endif
