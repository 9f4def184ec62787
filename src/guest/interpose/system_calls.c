/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The job's calls that limit its system calls: seen here, before they take effect. This file is
 *part of a preload library and not of the runtime, because only those come before the C library.
 *
 *	prctl(PR_SET_SECCOMP, …)               libseccomp, sshd, most programs
 *	syscall(SYS_seccomp | SYS_prctl, …)    Chromium, Rust and others
 *
 * Not seen: a system call instruction in the job's own code; a filter that was there before the
 * program was (exec); a process into which only the Python package brought us.
 *
 * Both are variable in their arguments. They are passed on as they are: in registers, the last one
 * of syscall() on the stack, where the call behind finds it, since it is a jump.
 */
#include "guest/collect/collect.h"
#include "guest/interpose/next.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define EXPORT __attribute__((visibility("default")))

typedef int (*prctl_fn)(int option, long a, long b, long c, long d);
typedef long (*syscall_fn)(long nr, long a, long b, long c, long d, long e, long f);

static _Atomic(prctl_fn) next_prctl;
static _Atomic(syscall_fn) next_syscall;

/* Called under these names by the job; their declarations have dots, which cannot be passed on. */
EXPORT int job_prctl(int option, long a, long b, long c, long d) __asm__("prctl");
EXPORT long job_syscall(long nr, long a, long b, long c, long d, long e, long f) __asm__("syscall");

static prctl_fn find_prctl(void)
{
	prctl_fn fn = atomic_load_explicit(&next_prctl, memory_order_relaxed);

	if (!fn) {
		fn = (prctl_fn)next_function("prctl");
		atomic_store_explicit(&next_prctl, fn, memory_order_relaxed);
	}
	return fn;
}

static syscall_fn find_syscall(void)
{
	syscall_fn fn = atomic_load_explicit(&next_syscall, memory_order_relaxed);

	if (!fn) {
		fn = (syscall_fn)next_function("syscall");
		atomic_store_explicit(&next_syscall, fn, memory_order_relaxed);
	}
	return fn;
}

/* Also found when the process starts: later the loader's lock may be taken. */
__attribute__((constructor)) static void find_both(void)
{
	(void)find_prctl();
	(void)find_syscall();
}

/* Programs ask with NULL whether there are filters: that fails, and is none. */
static bool is_filter(long mode, long program)
{
	return mode == SECCOMP_MODE_STRICT || (mode == SECCOMP_MODE_FILTER && program);
}

static int limit_by_prctl(int option, long a, long b, long c, long d)
{
	bool sealed = collect_seal(false, a == SECCOMP_MODE_STRICT);
	int r = find_prctl()(option, a, b, c, d);
	if (r != 0 && sealed)
		collect_unseal();
	return r;
}

int job_prctl(int option, long a, long b, long c, long d)
{
	prctl_fn next = find_prctl();

	if (__builtin_expect(option == PR_SET_SECCOMP, 0) && next && is_filter(a, b))
		return limit_by_prctl(option, a, b, c, d);
	if (next)
		return next(option, a, b, c, d);
	errno = ENOSYS;
	return -1;
}

/* A listener is a descriptor; with TSYNC the number of a thread in the way is a failure, too. */
static bool has_failed(long operation, long flags, long r)
{
	return r < 0 || (r > 0 && operation == SECCOMP_SET_MODE_FILTER &&
			 !(flags & SECCOMP_FILTER_FLAG_NEW_LISTENER));
}

static long limit_by_seccomp(long nr, long operation, long flags, long program, long d, long e,
			     long f)
{
	bool sealed = collect_seal(flags & SECCOMP_FILTER_FLAG_TSYNC,
				   operation == SECCOMP_SET_MODE_STRICT);
	long r = find_syscall()(nr, operation, flags, program, d, e, f);
	if (sealed && has_failed(operation, flags, r))
		collect_unseal();
	return r;
}

static bool is_seccomp(long operation, long program)
{
	return operation == SECCOMP_SET_MODE_STRICT ||
	       (operation == SECCOMP_SET_MODE_FILTER && program);
}

long job_syscall(long nr, long a, long b, long c, long d, long e, long f)
{
	syscall_fn next = find_syscall();

	if (__builtin_expect(nr == SYS_seccomp, 0) && next && is_seccomp(a, c))
		return limit_by_seccomp(nr, a, b, c, d, e, f);
	if (__builtin_expect(nr == SYS_prctl, 0))
		return job_prctl((int)a, b, c, d, e);
	if (next)
		return next(nr, a, b, c, d, e, f);
	errno = ENOSYS;
	return -1;
}
