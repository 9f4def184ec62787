/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Native stacks of chosen threads of another process. A thread is stopped (ptrace) only while its
 * registers and its stack are copied; unwinding and names come afterwards, from the copy and the
 * binaries (libdw).
 *
 *	stop.c      stops one thread, reads its registers
 *	unwind.c    copies its stack (up to 1 MiB) and Python's raw frames, lets it go; walks the
 *	            copy with libdwfl
 *	modules.c   /proc/PID/maps as modules for libdwfl; file.c opens what is mapped
 *	symbol.c    instruction -> function, file, line (unwind/symbols)
 *	merge.c     puts native and Python frames together; cold.c finds the part of the
 *	            interpreter's loop that has no name
 *
 * libdwfl is used for unwinding and for collecting symbol tables; our callbacks decide which files
 * it sees, and it never opens one by itself. One thread at a time per native_process.
 */
#ifndef SONDE_UNWIND_REMOTE_NATIVE_NATIVE_H
#define SONDE_UNWIND_REMOTE_NATIVE_NATIVE_H

#include "unwind/remote/python.h"

struct native_process; /* modules and symbols of one process */

struct native_counts {
	uint64_t captures; /* threads that were stopped and copied */
	uint64_t stopped_ns; /* how long they stood still at most, all together */
	uint64_t unwound; /* copies that were unwound */
	uint64_t unwind_ns; /* and how long that took, names included */
};

int native_process_open(pid_t pid, struct native_process **out, struct err *err);
void native_process_close(struct native_process *p);
const struct native_counts *native_counts(const struct native_process *p);

/*
 * Stops the thread, calls `stopped` (may be NULL) while it stands still, copies registers and
 * stack, lets it go. The copy stays in `p` under the tid until it is taken or replaced. Errors:
 * -ESRCH, -EPERM with words, -EBUSY if somebody else traces it.
 */
int native_capture_thread(struct native_process *p, pid_t tid, void (*stopped)(void *arg),
			  void *arg, struct err *err);

/*
 * Unwinds the copy: frames outermost first. `is_eval` of a frame means that it is the
 * interpreter's loop (place->eval_start..end, or by its name), `is_internal` that it is another
 * function of the binary that holds the interpreter. `place` may be NULL: then nothing is internal.
 */
struct native_stack {
	struct stack_frame *frames; /* outermost first */
	bool *is_eval, *is_internal;
	unsigned n;
	bool whole; /* reached the thread's first function */
};
int native_unwind(struct native_process *p, pid_t tid, const struct python_place *place,
		  struct native_stack *out, struct err *err);
void native_stack_release(struct native_stack *s);

/*
 * One stack of both: each run of the interpreter's loop is replaced by the Python frames that ran
 * in it (up to and with the next one flagged entry). Where the two do not fit, all Python frames
 * are there and in order, with the native ones that surely belong innermost. Functions of the
 * interpreter itself are left out, but for those that the innermost Python frame called. Outermost
 * first; *out is grown with xgrow.
 */
void native_merge(const struct native_stack *native, const struct stack_frame *python, unsigned n,
		  struct stack_frame **out, size_t *cap, unsigned *out_n);

/*
 * Native frames for the threads that `wanted` says (NULL: all): after python_resolve(), stacks in
 * p->threads become merged ones, of a moment in which the thread was stopped; they live until the
 * next call. Two steps, so that many processes can be looked at in the same moment: first the
 * threads of all are stopped and copied, then the copies are unwound and merged. Threads where that
 * fails keep their Python stack. Return how many failed, and in *first why the first one did.
 */
unsigned native_add_copy(struct native_process *n, struct python_process *p,
			 bool (*wanted)(void *arg, const struct python_thread *t), void *arg,
			 struct err *first);
unsigned native_add_merge(struct native_process *n, struct python_process *p, struct err *first);

#endif
