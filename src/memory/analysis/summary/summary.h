/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What happened in a recording or a dump, in plain words and as JSON.
 *
 * Rows are taken in stream order (by time within a process), from a tracker or from a dump reader.
 * What is kept grows with blocks that are alive at once and with distinct call stacks, never with
 * rows; a MALLOC or FREE row costs a few dozen nanoseconds plus the hash of its call stack. The
 * texts may be asked for at any time, and rows may go on afterwards. Not thread safe.
 *
 * Blocks are known by process and allocation_id. A FREE with shadow:true is the one that was made
 * up for a block which nobody freed: such a block counts as alive at the end, unless the same pool
 * goes on afterwards (then it was freed while nobody recorded, or its address was handed out anew).
 *
 * HAL (of NVIDIA: CUDA) is the driver: the other pools of a device carve their blocks out of it. A
 * device's peak is therefore that of HAL where there is one, and never the sum of both.
 *
 * The JSON object (bytes, counts and times are integers; times are ns since the epoch, *_after_ns
 * are since the first row; a device is text: "0", "cpu", "N/A"):
 *
 *	first_time_ns, last_time_ns, duration_ns, rows
 *	nameless_mallocs  rows with neither an id nor an address: whether they were freed is unknown
 *	time_ordered   false: MALLOC and FREE rows went back in time, so the peaks are not exact
 *	counts         mallocs, frees (rows of the job's own), unmatched_frees (of them: no MALLOC
 *	               known), synthetic_frees (made up, see above), accesses, operator_launches,
 *	               kernel_launches, marks, ranges, steps, snapshots, ooms
 *	lost           events, stacks, damaged_bytes; of the whole: exact (false: at least these)
 *	devices[]      device, peak_bytes, peak_time_ns, peak_after_ns, peak_source ("driver" or
 *	               "pools"), peak_is_lower_bound (rows of processes came too late)
 *	processes[]    pid, command (or null), rows, first_time_ns, last_time_ns, counts, lost,
 *	               frees_recorded (false: it has no FREE row at all), pools[], gpus[]
 *	  pools[]      device, pool, events (mallocs + frees), mallocs, frees, unmatched_frees,
 *	               synthetic_frees, teardown_frees, carried_over_blocks, peak_bytes, peak_blocks, peak_time_ns, peak_after_ns,
 *	               alive_at_end, alive_at_peak: {blocks, bytes, places_total, places[]}
 *	    places[]   blocks, bytes, where (innermost frame that is not plumbing, or null),
 *	               c_stack[], python_stack[] (lines as recorded, innermost first); the `top`
 *	               largest
 *	  gpus[]       what a GPU has in use: device, time_ns, total_bytes (or null), used_bytes =
 *	               pool_bytes (of them tensor_bytes) + rest_of_process_bytes (context and
 *	               libraries) + others_bytes (other processes and the driver; job_bytes of them
 *	               are of processes of this job, or null); the last two are
 *	               null where nobody tells them apart, and not_told_bytes is their sum
 *	  mapped_files  of files, in no pool: mappings, peak_bytes, left_bytes
 *	ooms[]         the first ones: pid, device, time_ns, after_ns, requested_bytes, function
 *	notes[], coverage, job[]: memory/analysis/processes/processes.h
 */
#ifndef SONDE_MEMORY_ANALYSIS_SUMMARY_SUMMARY_H
#define SONDE_MEMORY_ANALYSIS_SUMMARY_SUMMARY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/containers/buf.h"
#include "memory/dump/row.h"
#include "memory/options/asked.h"

struct summary;

struct summary *summary_new(void);
void summary_free(struct summary *s); /* s may be NULL */

void summary_add(struct summary *s, const struct row *row); /* copies what it keeps */
void summary_detected_step(struct summary *s,
			   const struct row *row); /* which is no row of a dump */

/*
 * Names a process: once for each, before its rows or after them. A second call for a pid that has
 * had rows since the first begins another process (the id was used again, or exec). cmdline is
 * printable text, or NULL.
 */
void summary_process(struct summary *s, uint32_t pid, const char *cmdline);

/* What is known to be missing of a process; several calls add up. */
void summary_lost(struct summary *s, uint32_t pid, uint64_t lost_events, uint64_t lost_stacks,
		  uint64_t damaged_bytes);

/* What is missing from the file besides. */
struct loss;
void summary_missing(struct summary *s, const struct loss *missing);

/* A sentence for the reader, such as "The recording was cut off." */
void summary_note(struct summary *s, const char *text);

/* Calls of Python functions that were traced, and by how many threads; db: into a table. */
void summary_calls(struct summary *s, uint64_t calls, uint64_t threads, bool db);

/* What the recording was asked for. */
void summary_asked(struct summary *s, const struct mem_asked *asked);

/* Who the processes are; borrowed until the texts are written. */
struct processes;
struct process_blocks;
void summary_processes(struct summary *s, const struct processes *processes);
/* What a process has of host memory now; false: none. */
bool summary_host(struct summary *s, uint32_t pid, struct process_blocks *out);

/* Did MALLOC or FREE rows of a process go back in time, so that the answer is not exact? */
bool summary_unordered(const struct summary *s);

/* Adds the text to out. For each pool the `top` largest places that hold memory are listed. */
void summary_text(struct summary *s, unsigned top, bool colour, struct buf *out);

/* Adds the JSON text and a newline to out; -ENOMEM, and nothing added, if it cannot be made. */
int summary_json(struct summary *s, unsigned top, struct buf *out);

#endif
