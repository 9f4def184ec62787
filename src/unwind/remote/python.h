/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The Python stacks of a running process. Two steps, so that many processes can be looked at in the
 * same moment: python_capture() copies the raw stacks of all threads, as few system calls as
 * possible; python_resolve() makes names and lines of what was copied.
 *
 * A frame, a thread or a text that is returned stays valid until the next call for that process;
 * texts (names, files) for ever. One thread at a time works on a process, and, since the copies
 * share scratch memory, on all of them.
 *
 *	python_process_open(pid, &o, &p, &err);
 *	for (;;) {
 *		python_capture(p);		first for all processes,
 *		python_prove(p);		then for all,
 *		python_resolve(p);		then for all
 *		for each of p's threads: …
 *	}
 */
#ifndef SONDE_UNWIND_REMOTE_PYTHON_H
#define SONDE_UNWIND_REMOTE_PYTHON_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "unwind/remote/find/find.h"

enum stack_kind {
	FRAME_IS_PYTHON,
	FRAME_IS_NATIVE, /* a function of C or C++ (unwind/remote/native/native.h) */
};

/* Texts live as long as the program and are equal exactly when their pointers are
 * (base/containers/intern.h).
 */
struct stack_frame {
	const char *name; /* qualified where the version knows it: "Trainer.step" */
	const char *file; /* "" if unknown; of native frames the library, or the source if known */
	int32_t line; /* 0 if unknown */
	uint8_t kind; /* enum stack_kind */
	bool entry; /* called from C: native frames of the interpreter's loop end here */
	uint64_t address; /* of the frame, or the instruction of a native one */
	uint64_t code; /* the code object; 0 for native frames */
	uint32_t lasti; /* byte in the code */
	int32_t first_line; /* of the function */
};

enum thread_state {
	THREAD_UNKNOWN,
	THREAD_RUNNING, /* on a processor or waiting for one */
	THREAD_IDLE, /* sleeps in the kernel */
};

/* One thread of the interpreter. (tstate, serial) names it as long as the process lives; tids
 * and names may be found out later and change. */
struct python_thread {
	uint64_t tstate; /* identity of the thread inside the process, */
	uint64_t serial; /* and this, because addresses are used again */
	uint64_t thread_id; /* threading.get_ident() */
	pid_t tid; /* as we see it; 0 if unknown */
	pid_t inner_tid; /* as the process itself sees it; 0 if unknown */
	int64_t interp; /* 0 is the main interpreter */
	const char *name; /* "MainThread"; "" if unknown */
	bool main; /* the first thread of the process */
	bool has_gil;
	bool gc; /* has_gil, and the collector of its interpreter runs */
	uint8_t state; /* enum thread_state; only if asked for */
	bool missed; /* no whole stack was read in this round: the frames are the last ones */
	uint64_t time_ns; /* CLOCK_MONOTONIC, when it was copied */
	/* Outermost first. The first `kept` are the same calls as in the round before. */
	struct stack_frame *frames;
	unsigned nframes, kept;
	bool cut; /* deeper than PYTHON_MAX_DEPTH: the outermost are missing */
	bool partial; /* the innermost calls changed faster than they could be copied: left out */
	uint32_t unchanged; /* rounds in which nothing at all moved */
};

#define PYTHON_MAX_DEPTH 4096
#define PYTHON_MAX_THREADS 16384

struct python_options {
	bool states; /* fill in thread_state: a system call per thread more */
	bool names; /* fill in names of threads */
	bool main_only; /* only MainThread is wanted; all, if no thread has that name */
	/*
	 * Prove that stacks which change are of one moment (python_prove). Costs the thread that
	 * runs some microseconds: for up to some hundred looks a second. Without it the order of
	 * reads is all there is, and of the stacks of a thread that does nothing but call short
	 * functions some in a thousand have a caller at a wrong line.
	 */
	bool exact;
};

struct python_counts {
	uint64_t rounds, samples; /* of threads */
	uint64_t retries; /* stacks that had changed while they were copied and were copied again */
	uint64_t partial; /* stacks whose innermost calls changed too fast to be shown */
	uint64_t torn; /* stacks that never came whole: threads missed */
	uint64_t unproved; /* with exact: those of which nobody knows */
	uint64_t calls; /* system calls */
};

struct python_process {
	pid_t pid;
	struct python_place place;
	struct remote remote;
	struct python_counts counts;
	/* What the last python_resolve() made; threads in the order they were started. */
	struct python_thread *threads;
	unsigned nthreads;
	uint64_t time_ns; /* when the copy began */
	uint64_t took_ns; /* how long it took */
	struct python_inside *inside;
};

/* For who samples by a thread of its own beside others: they share scratch memory. */
void python_take_turn(void);
void python_give_turn(void);

/* Errors as python_find(). */
int python_process_open(pid_t pid, const struct python_options *o, struct python_process **out,
			struct err *err);
void python_process_close(struct python_process *p);

/* -ESRCH if it has ended, -EAGAIN if the interpreter is not there (any more, after an exec). Each
 * capture is followed by a python_resolve(). */
int python_capture(struct python_process *p, struct err *err);
/* Only the thread whose system tid (as we see it) this is: for native stacks, while it is stopped.
 * Threads of the last round stay. */
int python_capture_thread(struct python_process *p, pid_t tid, struct err *err);
/* Between capture and resolve, of all processes: looks again at threads whose stacks changed. Does
 * nothing without python_options.exact. */
void python_prove(struct python_process *p);
int python_resolve(struct python_process *p, struct err *err);

#endif
