/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The answer of another program: npu-smi, squeue, kubectl. No shell is involved, and nobody waits
 * for a program that hangs. And a copy of ourselves, for work that takes long.
 */
#ifndef SONDE_BASE_SUBPROCESS_H
#define SONDE_BASE_SUBPROCESS_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/containers/buf.h"
#include "base/err.h"

struct run_options {
	unsigned timeout_ms;
	size_t max_bytes; /* that it may print */
	/* It leads a process group, so that all that it starts is killed with it. Not for programs
	 * that may ask for a password. */
	bool apart;
	/* May be NULL. Zero at first; whoever was killed and is still there, because it sleeps in a
	 * driver. While there is one, none is started. */
	pid_t *hanging;
};

/*
 * Runs argv (found by PATH) and adds what it prints to `out`; stdin is empty. It is over when the
 * program has ended: what it leaves running is not waited for. Fails, with the last line of its
 * complaint, if it cannot be run (-ENOENT: there is none), is too late (-ETIMEDOUT), prints too
 * much (-EFBIG) or does not exit with status 0 (-EIO).
 */
int run_program(const char *const *argv, const struct run_options *o, struct buf *out,
		struct err *err);

/*
 * As fork(), by a process with one thread. The copy has none of our files open but the first three,
 * and is killed when we end: who recovers a killed recorder's files must not meet its copy there.
 */
pid_t fork_copy(void);

#endif
