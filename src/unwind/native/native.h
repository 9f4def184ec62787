/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The native call stack of the calling thread, taken inside somebody else's process: from within
 * malloc, from within a driver call, from within a signal handler.
 *
 * No heap, no locks, no libc state, errno untouched, async-signal-safe. Every stack word is read
 * only after its page was proved readable, every byte of unwind information only inside the
 * object's mapped segments; wrong unwind information gives a wrong or short stack, nothing worse.
 *
 * Frames come from .eh_frame. What is learnt about a return address is kept as one 64-bit rule in
 * a process-wide lock-free cache (unwind/native/cfi.h), so a warm frame costs a dozen nanoseconds.
 * Needs about 1 KiB of stack, 3 KiB when an object is met for the first time.
 */
#ifndef SONDE_UNWIND_NATIVE_NATIVE_H
#define SONDE_UNWIND_NATIVE_NATIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A mapped object: [start, end) is where, bias what was added to its symbols. path is borrowed. */
struct native_module {
	uint64_t start;
	uint64_t end;
	uint64_t bias;
	const char *path; /* absolute where it is known; "[vdso]" */
};

/*
 * Called from inside native_capture_program() when a return address falls into an object that was not
 * reported before, or that replaced another at its place. May be called twice for the same object
 * when threads race.
 */
typedef void (*native_module_fn)(const struct native_module *m, void *arg);

/* The program itself, and what of it calls the frames that were asked for. */
#define NATIVE_PROGRAM_FRAMES 4u /* the innermost may be inlined parts of a library */
struct native_program {
	uint64_t start, end; /* its code; end 0: not known, and not looked for */
	uint64_t pc[NATIVE_PROGRAM_FRAMES];
	unsigned n; /* 0 at first */
	unsigned left_out; /* frames in between */
};

/*
 * Writes the return addresses of the calling thread's stack, innermost first, beginning with the
 * frame whose return address is `from`, so that a hook leaves out its own frames by passing
 * __builtin_return_address(0). `from` 0, or one that is not among the first 32 frames, begins at
 * the caller of this function. Returns how many were written, at most max. A frame interrupted by
 * a signal is the exact address. Pass the same fn in every call of a process.
 *
 * If there are more frames than max, and none of those is of the program (NULL: nobody asks), its
 * innermost ones are in program->pc, one called by the next.
 */
unsigned native_capture_program(uint64_t *out_pc, unsigned max, struct native_program *program,
				uint64_t from, native_module_fn fn, void *arg);

/* The same without a program; inlined, because a function of its own would be a frame. */
__attribute__((always_inline)) static inline unsigned native_capture(uint64_t *out_pc, unsigned max,
								     uint64_t from,
								     native_module_fn fn, void *arg)
{
	return native_capture_program(out_pc, max, NULL, from, fn, arg);
}

/* The end of the calling thread's own stack if sp seems to be on it, and not on a fiber's or a
 * signal's; else 0. */
uint64_t native_own_stack_end(uint64_t sp);

/* From now on no system call is made: a stack for which one would be needed is none (0). */
void native_seal(bool on);

/* Reports every object anew: for the child of a fork, whose arena knows none of them. */
void native_forget(void);

#endif
