/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Holds one thread of another process still for a moment. What arrives meanwhile is not lost:
 * signals are delivered when it goes on, a stopped job stays stopped. If we die, or the thread
 * cannot be stopped in time, the kernel lets it go as if nothing had been asked.
 */
#ifndef SONDE_UNWIND_REMOTE_NATIVE_STOP_H
#define SONDE_UNWIND_REMOTE_NATIVE_STOP_H

#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

#define STOP_REGS 33 /* as DWARF numbers them: aarch64 has x0 to x30 and sp */

struct stopped_regs {
	uint64_t reg[STOP_REGS];
	unsigned nreg;
	uint64_t pc, sp;
};

/*
 * Stops thread `tid` of process `pid`, calls fn (in a thread of its own, while this one waits) and
 * lets it go. *out_ns is how long all that took: the thread stood still for no longer.
 *
 *	-ESRCH	it has ended
 *	-EPERM	we may not; err says what to do about it
 *	-EBUSY	somebody else traces it, or it did not stop within 100 ms: it sleeps in the kernel
 *		and cannot be woken
 */
int thread_stop(pid_t pid, pid_t tid, void (*fn)(void *arg, const struct stopped_regs *regs),
		void *arg, uint64_t *out_ns, struct err *err);

#endif
