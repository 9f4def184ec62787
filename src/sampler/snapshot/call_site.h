/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Where a stack is, in a few words: the innermost function that was written for this job, not
 * the wait in the standard library below it.
 */
#ifndef SONDE_SAMPLER_SNAPSHOT_CALL_SITE_H
#define SONDE_SAMPLER_SNAPSHOT_CALL_SITE_H

#include "base/containers/buf.h"
#include "sampler/rounds/targets.h"

enum code_home {
	HOME_JOB,
	HOME_PACKAGE, /* installed: site-packages, launchers */
	HOME_STANDARD, /* Python's own library, native code, and <string>: texts that were run */
};

enum code_home frame_home(const struct stack_frame *f);

/*
 * The frame a stack is known by: the innermost of the job, else of a package that is no launcher,
 * else of `python -c`, else of all. -1 if there is none.
 */
int stack_call_site(const struct stack_frame *frames, unsigned n);
/* The most telling call below it, -1 if there is none: the innermost one of a package, else of
 * Python. */
int stack_inner_call(const struct stack_frame *frames, unsigned n);
/* How many of the outermost frames remain without those of the standard library at the inner end;
 * all of them if there are no others. */
unsigned stack_own_part(const struct stack_frame *frames, unsigned n);

/* The path as far as it says something: of installed files what is behind site-packages. */
const char *frame_path(const struct stack_frame *f);

/* "in all_reduce at trainer.py:88 > wait (threading.py:331)"; either may be NULL. */
void call_site_add(const struct stack_frame *site, const struct stack_frame *inner,
		   struct buf *out);
/* Whether two frames are the same line of the same function; also if both are NULL. */
bool call_site_same(const struct stack_frame *a, const struct stack_frame *b);

/* "rank 5", "ranks 0-4,6,7": the numbers in order, each once. Sorts them. */
void words_add_numbers(const char *noun, int64_t *numbers, unsigned n, unsigned max_bytes,
		       struct buf *out);

/* "ranks 0-4,6", "pid 4711", or both: who these processes are. */
struct process_id {
	pid_t pid;
	int rank; /* -1: none */
};
void words_add_processes(const struct process_id *list, unsigned n, unsigned max_bytes,
			 struct buf *out);

/* Adds a text from another process: control characters become '?'. */
void words_add_printable(const char *text, struct buf *out);

#endif
