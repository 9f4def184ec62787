/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The processes of a recording: who they are, how they ended, and how much of what the kernel
 * counts as their memory the recorded blocks account for. Every answer about host memory says the
 * last; a "no leaks" is worth nothing where most of the memory was never seen.
 *
 * In JSON, for every answer:
 *
 *	job[]          pid, command, parent (pid or null), role ("main", "worker", "child"), rank (or
 *	               null), state ("ended", "killed", "running", "unknown"), signal (name or null),
 *	               exit_status (or null), killed_by_group (its control group had no more memory)
 *	  peak_rss_bytes   the kernel's highest number, between samples, too; null: not known
 *	  peak_blocks_bytes   the most that its recorded blocks came to
 *	  memory       null where it was not sampled; samples, max_rss_bytes, and highest and last:
 *	               {time_ns, rss_bytes, pss_bytes, blocks_bytes, file_bytes, shared_bytes,
 *	               stack_bytes, heap_bytes, copied_bytes, sonde_bytes, swap_bytes,
 *	               not_covered_bytes}
 *	dropped        see dropped.h
 *	coverage       "good", "partial", "unknown", or null without host memory
 */
#ifndef SONDE_MEMORY_ANALYSIS_PROCESSES_PROCESSES_H
#define SONDE_MEMORY_ANALYSIS_PROCESSES_PROCESSES_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/containers/buf.h"
#include "base/containers/hmap.h"
#include "memory/analysis/processes/dropped.h"
#include "wire/record.h"
#include "wire/recording.h"

enum process_state { PROCESS_UNKNOWN, PROCESS_RUNNING, PROCESS_GONE };

/* A sample, and what the recorded blocks came to at that moment. */
struct process_sample {
	uint64_t time_ns;
	struct rec_usage usage; /* with the newest details */
	uint64_t blocks_bytes;
	uint64_t not_covered; /* bytes that neither blocks nor anything else below explain */
};

struct process_facts {
	uint32_t pid, ppid;
	char *command;
	bool replaced; /* by exec(): what was sampled of it may be of the next program */
	bool forked; /* it runs the program of its parent, which is in the recording */
	int32_t rank; /* -1 */
	enum process_state state;
	bool has_status;
	uint32_t status; /* as wait() gives it */
	bool group_killed;
	uint64_t group_limit;
	/* Its memory: */
	uint64_t max_rss; /* as the kernel counts it, between samples, too */
	uint64_t max_blocks; /* most that recorded blocks came to */
	uint64_t max_others; /* most that files, data of libraries and stacks came to */
	uint64_t samples;
	bool has_details;
	uint64_t inherited; /* what a fork had of its parent */
	struct process_sample first_step, highest, last;
	bool has_step;
};

struct processes {
	struct process_facts *list; /* in order of their appearance; exec() makes another */
	size_t n, cap;
	struct hmap by_pid; /* the newest of that pid: its place in the list */
	bool host; /* there are blocks of the host */
	bool recording; /* the answer comes from one, not from a dump */
	uint64_t first_ns; /* the earliest sample */
	struct dropped dropped;
};

void processes_release(struct processes *ps);

void processes_add(struct processes *ps, const struct frame_proc *p, const char *command);
void processes_end(struct processes *ps, uint32_t pid, bool ended);
/* Those without an end in the recording are running. */
void processes_running(struct processes *ps);

/* What the blocks of a process come to when a sample arrives. */
struct process_blocks {
	bool torn_down; /* the program has ended, and frees what it held */
	uint64_t bytes, blocks;
	uint64_t most_bytes; /* until now */
	uint32_t steps; /* that have ended */
};
void processes_sample(struct processes *ps, uint32_t pid, uint64_t time_ns,
		      const struct rec_usage *u, const struct process_blocks *b);
/* What became known about it, often at its end; b may be NULL: its blocks are not known here. */
void processes_note(struct processes *ps, uint32_t pid, const struct rec_process *r,
		    const struct process_blocks *b);

/* The newest of that pid, or NULL. */
struct process_facts *processes_find(const struct processes *ps, uint32_t pid);

/* "process 12", "process 12 (rank 3, worker of 10)"; ps may be NULL. */
void processes_describe(const struct processes *ps, uint32_t pid, struct buf *out);
/* "SIGKILL"; NULL: it was no signal, or nobody knows. */
const char *process_signal(const struct process_facts *p);

/* --- coverage.c --- */

enum coverage { COVERAGE_NONE, COVERAGE_UNKNOWN, COVERAGE_GOOD, COVERAGE_PARTIAL };
enum coverage processes_coverage(const struct processes *ps);
/* Of one process. Sampled: and not replaced, since then its successor may have been meant. Grew: since its first step, by more than noise. */
bool process_is_sampled(const struct process_facts *p);
bool process_is_covered(const struct process_facts *p);
uint64_t process_uncovered_growth(const struct process_facts *p);
/* Of the kernel's peak, which no sample need have met: what neither blocks nor others explain. */
uint64_t process_uncovered_peak(const struct process_facts *p);
/* That, or what was not covered at a sample: with it the peak of blocks would be higher. */
uint64_t process_not_in_peak(const struct process_facts *p);
/* One of which much host memory is not covered, or grew uncovered; NULL: there is none. */
const struct process_facts *processes_uncovered(const struct processes *ps);

/* Sentences for the reader: coverage, and how processes ended; nothing if there is nothing. */
void processes_coverage_text(const struct processes *ps, struct buf *out);
void processes_ends_text(const struct processes *ps, struct buf *out);
/* Into the object of an answer. */
void processes_json(const struct processes *ps, json_t *answer);

#endif
