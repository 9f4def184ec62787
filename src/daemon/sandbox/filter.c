/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Which system calls there are for the daemon and its broker. What is not in the table fails with
 * EPERM, as if it were not allowed to this user. The kernel remembers which calls are allowed
 * whatever their arguments, so these cost next to nothing.
 *
 * The program that the kernel runs is one block for each row of the table:
 *
 *	nr == ROW ?  no: next block
 *	load argument, test: allow, or EPERM
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/mem.h"
#include "daemon/sandbox/sandbox_impl.h"

#if defined(__x86_64__)
#	define ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#	define ARCH AUDIT_ARCH_AARCH64
#endif

#ifndef PR_SET_VMA
#	define PR_SET_VMA 0x53564d41
#endif

enum test {
	ANY,
	ONE_OF, /* the argument is one of the values */
	NONE_OF,
	HAS_BIT, /* it has the bit of values[0] */
	NO_BITS, /* it has none of them */
	IS_OURS, /* it is our pid */
	IS_NULL, /* all 64 bits of it */
	NOT_THERE, /* ENOSYS: callers have another way then */
};

#define VALUES 8

struct row {
	long nr;
	enum test test;
	unsigned argument;
	unsigned n; /* of values */
	uint32_t values[VALUES];
};

#define CALL(name)                                                                                 \
	{                                                                                          \
		.nr = SYS_##name, .test = ANY                                                      \
	}
#define CALL_IF(name, what, arg, ...)                                                              \
	{                                                                                          \
		.nr = SYS_##name, .test = what, .argument = arg, .values = {__VA_ARGS__},          \
		.n = sizeof((uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t)                          \
	}

static const struct row daemon_calls[] = {
	/* the loop */
	CALL(epoll_pwait),
	CALL(epoll_ctl),
	CALL(epoll_create1),
	CALL(ppoll),
	CALL(pselect6),
	CALL(recvmsg),
	CALL(sendmsg),
	CALL(recvfrom),
	CALL(sendto),
	CALL(recvmmsg),
	CALL(sendmmsg),
	CALL(read),
	CALL(write),
	CALL(readv),
	CALL(writev),
	CALL(pread64),
	CALL(pwrite64),
	CALL(futex),
	CALL(close),
	CALL(clock_gettime),
	CALL(gettimeofday),
	CALL(clock_getres),
	CALL(clock_nanosleep),
	CALL(nanosleep),
	CALL(eventfd2),
	CALL(timerfd_create),
	CALL(timerfd_settime),
	CALL(timerfd_gettime),
	CALL(pipe2),
	/* sockets */
	CALL_IF(socket, ONE_OF, 0, AF_UNIX, AF_INET, AF_INET6, AF_NETLINK),
	CALL(socketpair),
	CALL(accept4),
	CALL(accept),
	CALL(bind),
	CALL(connect),
	CALL(listen),
	CALL(shutdown),
	CALL(getsockname),
	CALL(getpeername),
	CALL(getsockopt),
	CALL(setsockopt),
	/* files; where they are written is Landlock's */
	CALL(openat),
	CALL(fstat),
	CALL(newfstatat),
	CALL(statx),
	CALL(lseek),
	CALL(faccessat),
	CALL(readlinkat),
	CALL(getdents64),
	CALL(fcntl),
	CALL(flock),
	CALL(fsync),
	CALL(fdatasync),
	CALL(ftruncate),
	CALL(fallocate),
	CALL(umask),
	CALL(mkdirat),
	CALL(unlinkat),
	CALL(renameat2),
	CALL(renameat),
	CALL(fremovexattr),
	CALL(linkat),
	CALL(fchmod),
	CALL(fchmodat),
	CALL(getcwd),
	CALL(statfs),
	CALL(fstatfs),
	CALL(dup),
	CALL(dup3),
	CALL(inotify_init1),
	CALL(inotify_add_watch),
	CALL(inotify_rm_watch),
	CALL(memfd_create),
	/* drivers; no typing into terminals */
	CALL_IF(ioctl, NONE_OF, 1, TIOCSTI, TIOCLINUX),
	/* memory */
	CALL(mmap),
	CALL(munmap),
	CALL(mprotect),
	CALL(mremap),
	CALL(madvise),
	CALL(brk),
	CALL(mlock),
	CALL(munlock),
	CALL(msync),
	CALL(mincore),
	CALL(membarrier),
	CALL(get_mempolicy),
	/* threads; no processes */
	CALL_IF(clone, HAS_BIT, 0, CLONE_THREAD),
	{.nr = SYS_clone3, .test = NOT_THERE},
	CALL(rseq),
	CALL(set_robust_list),
	CALL(get_robust_list),
	CALL(set_tid_address),
	CALL(gettid),
	CALL(exit),
	CALL(exit_group),
	CALL(sched_yield),
	CALL(sched_getaffinity),
	CALL(sched_setaffinity),
	CALL(sched_getparam),
	CALL(sched_getscheduler),
	CALL(sched_get_priority_max),
	CALL(sched_get_priority_min),
	CALL(getcpu),
	CALL_IF(tgkill, IS_OURS, 0, 0),
	/* signals: handlers of our own; of others only whether they live */
	CALL(rt_sigaction),
	CALL(rt_sigprocmask),
	CALL(rt_sigreturn),
	CALL(rt_sigtimedwait),
	CALL(rt_sigsuspend),
	CALL(rt_sigpending),
	CALL(sigaltstack),
	CALL(restart_syscall),
	CALL(setitimer),
	CALL(getitimer),
	CALL_IF(kill, ONE_OF, 1, 0),
	CALL(wait4),
	CALL(waitid),
	CALL(pidfd_open),
	CALL_IF(pidfd_send_signal, ONE_OF, 1, 0),
	/* who and where we are */
	CALL(getpid),
	CALL(getppid),
	CALL(getuid),
	CALL(geteuid),
	CALL(getgid),
	CALL(getegid),
	CALL(getresuid),
	CALL(getresgid),
	CALL(getgroups),
	CALL(getpgid),
	CALL(getsid),
	CALL(capget),
	CALL(uname),
	CALL(sysinfo),
	CALL(getrusage),
	CALL(times),
	CALL(getrandom),
	CALL_IF(prlimit64, IS_NULL, 2, 0),
	CALL(getpriority),
	CALL_IF(prctl, ONE_OF, 0, PR_SET_NAME, PR_GET_NAME, PR_GET_DUMPABLE, PR_GET_SECCOMP,
		PR_CAPBSET_READ, PR_SET_VMA, PR_GET_NO_NEW_PRIVS),
	/* newer than some headers, the same number everywhere */
	{.nr = 436 /* close_range */, .test = ANY},
	{.nr = 437 /* openat2 */, .test = ANY},
	{.nr = 439 /* faccessat2 */, .test = ANY},
	{.nr = 441 /* epoll_pwait2 */, .test = ANY},
	{.nr = 449 /* futex_waitv */, .test = ANY},
#ifdef __x86_64__
	CALL(open),
	CALL(stat),
	CALL(lstat),
	CALL(access),
	CALL(readlink),
	CALL(poll),
	CALL(select),
	CALL(epoll_wait),
	CALL(mkdir),
	CALL(rmdir),
	CALL(unlink),
	CALL(rename),
	CALL(link),
	CALL(chmod),
	CALL(dup2),
	CALL(pipe),
	CALL(arch_prctl),
	CALL(getrlimit),
	CALL(getpgrp),
	CALL(time),
	CALL(pause),
	CALL(epoll_create),
	CALL(inotify_init),
	CALL(eventfd),
#endif
};

static const struct row perf_calls[] = {CALL(perf_event_open)};

static const struct row broker_calls[] = {
	CALL(recvfrom),	       CALL(sendto),
	CALL(sendmsg),	       CALL(close),
	CALL(fstat),	       CALL(newfstatat),
	CALL(fstatfs),	       CALL_IF(openat, NO_BITS, 2, O_WRONLY | O_RDWR | O_CREAT | O_TRUNC),
	CALL(exit_group),      CALL(rt_sigreturn),
	CALL(restart_syscall),
};

/* --- the program --- */

#define STEP(...) prog[n++] = (struct sock_filter)__VA_ARGS__
#define LOAD(at) STEP(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)(at)))
#define RETURN(what) STEP(BPF_STMT(BPF_RET | BPF_K, (uint32_t)(what)))
#define REFUSE (SECCOMP_RET_ERRNO | EPERM)
#define BLOCK_STEPS (VALUES + 6)

static size_t low_half(unsigned argument)
{
	return offsetof(struct seccomp_data, args) + argument * 8 +
	       (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ ? 4 : 0);
}

/* Steps behind "nr == ROW": they end with an answer. Returns how many. */
static unsigned add_test(struct sock_filter *prog, const struct row *r)
{
	uint32_t first = r->test == IS_OURS ? (uint32_t)getpid() : r->values[0];
	unsigned n = 0;

	if (r->test == ANY || r->test == NOT_THERE) {
		RETURN(r->test == ANY ? SECCOMP_RET_ALLOW : SECCOMP_RET_ERRNO | ENOSYS);
		return n;
	}
	bool found_is_good = r->test != NONE_OF && r->test != NO_BITS;
	LOAD(low_half(r->argument));
	if (r->test == IS_NULL) {
		STEP(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 2));
		LOAD(low_half(r->argument) ^ 4);
		STEP(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0));
	} else if (r->test == HAS_BIT || r->test == NO_BITS) {
		STEP(BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, first, 1, 0));
	} else {
		unsigned values = r->test == IS_OURS ? 1 : r->n;

		for (unsigned i = 0; i < values; i++)
			STEP(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, i ? r->values[i] : first,
				      (uint8_t)(values - i), 0));
	}
	RETURN(found_is_good ? REFUSE : SECCOMP_RET_ALLOW);
	RETURN(found_is_good ? SECCOMP_RET_ALLOW : REFUSE);
	return n;
}

static unsigned add_rows(struct sock_filter *prog, const struct row *rows, size_t nrows)
{
	unsigned n = 0;

	for (size_t i = 0; i < nrows; i++) {
		unsigned steps = add_test(prog + n + 1, &rows[i]);

		prog[n] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K,
						       (uint32_t)rows[i].nr, 0, (uint8_t)steps);
		n += steps + 1;
		/* a test has loaded something else, but only on the way to its answer */
	}
	return n;
}

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

#ifdef ARCH
static int install_filter(const struct row *rows, size_t nrows, const struct row *more,
			  size_t nmore)
{
	struct sock_filter *prog = xcalloc((nrows + nmore) * BLOCK_STEPS + 8, sizeof(*prog));
	unsigned n = 0;

	LOAD(offsetof(struct seccomp_data, arch));
	STEP(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH, 1, 0));
	RETURN(REFUSE);
	LOAD(offsetof(struct seccomp_data, nr));
	n += add_rows(prog + n, rows, nrows);
	n += add_rows(prog + n, more, nmore);
	RETURN(REFUSE);
	struct sock_fprog all = {(unsigned short)n, prog};
	long r = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
			 SECCOMP_FILTER_FLAG_TSYNC | SECCOMP_FILTER_FLAG_SPEC_ALLOW, &all);
	int error = r < 0 ? -errno : r > 0 ? -EAGAIN : 0;
	free(prog);
	return error;
}

bool filter_available(void)
{
	uint32_t action = SECCOMP_RET_ERRNO;

	return syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0;
}
#else
static int install_filter(const struct row *rows, size_t nrows, const struct row *more,
			  size_t nmore)
{
	(void)rows, (void)nrows, (void)more, (void)nmore;
	return -ENOSYS;
}

bool filter_available(void)
{
	return false;
}
#endif

int filter_daemon(bool perf)
{
	return install_filter(daemon_calls, COUNT(daemon_calls), perf_calls,
			      perf ? COUNT(perf_calls) : 0);
}

int filter_broker(void)
{
	return install_filter(broker_calls, COUNT(broker_calls), NULL, 0);
}
