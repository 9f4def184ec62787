/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * PTRACE_SEIZE and PTRACE_INTERRUPT, never PTRACE_ATTACH: no SIGSTOP is sent that could be left
 * behind or be mistaken for a real one.
 *
 *	tracer (a thread of ours)                 the thread
 *	SEIZE                                     runs
 *	INTERRUPT                                 stops at the next return to user space
 *	waitid(WNOWAIT), spinning at first        stopped: by us, by a signal that came first, or
 *	                                          with its whole group (SIGSTOP)
 *	GETREGSET, fn() copies memory
 *	DETACH with the signal, if one stopped it runs on; a signal is delivered as if we had not
 *	                                          been there
 *
 * A thread in uninterruptible sleep does not stop, and ptrace has no way to take the request back
 * before it does. But the kernel does so when the tracer ends, and a tracer is a thread, not a
 * process. So every stop is made by a thread of our own which ends afterwards: whatever happened,
 * nothing stays behind, and threads that died meanwhile go to whom they belong.
 */
#include "unwind/remote/native/stop.h"

#include <elf.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/containers/buf.h"
#include "base/fs.h"
#include "unwind/remote/find/find.h"

#define WAIT_NS 100000000ull /* most that we wait for a thread that sleeps */
#define WAIT_BUSY_NS 2000000000ull /* and for one that waits for a processor */
#define SPIN_NS 300000ull /* of which this long without sleeping: most stop at once */
#define NAP_NS 200000
#define URGENT_NAP_NS 20000

struct job {
	pid_t pid, tid;
	void (*fn)(void *arg, const struct stopped_regs *regs);
	void *arg;
	struct err *err;
	bool urgent;
	uint64_t held_ns;
	int result;
};

/* --- what /proc says about a thread that cannot be traced --- */

struct standing {
	char state; /* 0: there is no such thread */
	long run_tracer;
};

static long read_field(const char *text, const char *name)
{
	const char *at = strstr(text, name);

	return at ? strtol(at + strlen(name), NULL, 10) : 0;
}

static struct standing standing_of(pid_t pid, pid_t tid)
{
	struct standing s = {0};
	struct buf text = {0};
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/task/%d/status", (int)pid, (int)tid);
	if (fs_read_file(path, 65536, &text, NULL) == 0) {
		const char *t = buf_str(&text), *state = strstr(t, "\nState:\t");

		s.state = state ? state[8] : 0;
		s.run_tracer = read_field(t, "\nTracerPid:");
	}
	buf_release(&text);
	return s;
}

static int report_ended(pid_t tid, struct err *err)
{
	return err_set(err, -ESRCH, "thread %d has ended", (int)tid);
}

/* ptrace() says EPERM for a thread that is traced already, for one that may not be, and for a
 * zombie: /proc tells them apart. */
static int explain_refusal(const struct job *j, int code)
{
	struct standing s = standing_of(j->pid, j->tid);

	if (code == -ESRCH || !s.state || strchr("ZXx", s.state))
		return report_ended(j->tid, j->err);
	if (s.run_tracer)
		return err_set(j->err, -EBUSY,
			       "thread %d is traced by process %ld (a debugger?): no native frames",
			       (int)j->tid, s.run_tracer);
	if (code == -EPERM || code == -EACCES)
		return remote_explain_eperm(j->pid, j->err);
	return err_sys(j->err, code, "cannot stop thread %d", (int)j->tid);
}

/* --- one stop --- */

#if defined(__x86_64__)
static void regs_from_user(const struct user_regs_struct *u, struct stopped_regs *out)
{
	const uint64_t reg[] = {u->rax, u->rdx, u->rcx, u->rbx, u->rsi, u->rdi,
				u->rbp, u->rsp, u->r8,	u->r9,	u->r10, u->r11,
				u->r12, u->r13, u->r14, u->r15, u->rip};

	memcpy(out->reg, reg, sizeof(reg));
	out->nreg = sizeof(reg) / sizeof(reg[0]);
	out->pc = u->rip;
	out->sp = u->rsp;
}
#elif defined(__aarch64__)
static void regs_from_user(const struct user_regs_struct *u, struct stopped_regs *out)
{
	memcpy(out->reg, u->regs, 31 * sizeof(uint64_t));
	out->reg[31] = u->sp;
	out->nreg = 32;
	out->pc = u->pc;
	out->sp = u->sp;
}
#else
#	error "only x86-64 and aarch64"
#endif

static int read_regs(pid_t tid, struct stopped_regs *out)
{
	struct user_regs_struct user;
	struct iovec room = {&user, sizeof(user)};

	if (ptrace(PTRACE_GETREGSET, tid, (void *)NT_PRSTATUS, &room) < 0)
		return -errno;
	if (room.iov_len < sizeof(user)) /* a 32-bit thread */
		return -ENOTSUP;
	regs_from_user(&user, out);
	return 0;
}

/* What the thread stopped for (a signal, the event in bits 8 and up), 0 if it has not stopped,
 * -ESRCH if it ended. Neither is taken away: an end belongs to others. */
static int poll_stop(pid_t tid)
{
	siginfo_t info = {0};
	int what = WSTOPPED | WEXITED | WNOHANG | WNOWAIT | __WALL;

	if (waitid(P_PID, (id_t)tid, &info, what) < 0)
		return errno == EINTR ? 0 : -ESRCH;
	if (!info.si_pid)
		return 0;
	return info.si_code == CLD_TRAPPED || info.si_code == CLD_STOPPED ? info.si_status : -ESRCH;
}

/*
 * Waits for a stop: the same, and -EBUSY if none came in time.
 *
 * Most threads stop within microseconds: the first 300 are spent without sleeping, or with short
 * sleeps where we have a real-time priority and spinning would keep the thread from running. One
 * that waits for a processor gets two seconds.
 */
static int wait_for_stop(const struct job *j)
{
	uint64_t start = clock_mono_ns(), limit = WAIT_NS;
	int status;

	while (!(status = poll_stop(j->tid))) {
		uint64_t waited = clock_mono_ns() - start;

		if (waited >= limit) {
			if (limit == WAIT_BUSY_NS || standing_of(j->pid, j->tid).state != 'R')
				return -EBUSY;
			limit = WAIT_BUSY_NS;
		}
		bool soon = waited < SPIN_NS;
		if (soon && !j->urgent)
			sched_yield();
		else
			nanosleep(&(struct timespec){.tv_nsec = soon ? URGENT_NAP_NS : NAP_NS},
				  NULL);
	}
	return status;
}

/*
 * Lets it go on, with the signal that it was about to get, if one stopped it.
 *
 * A thread that was stopped by a signal, and not by us, must get that signal now: detaching with it
 * delivers it.
 */
static void let_go(pid_t tid, int status)
{
	long signal = status >> 8 ? 0 : status & 0x7f;

	ptrace(PTRACE_DETACH, tid, NULL, (void *)signal);
}

static int stop_once(struct job *j)
{
	uint64_t start = clock_mono_ns();
	struct stopped_regs regs;

	if (ptrace(PTRACE_SEIZE, j->tid, NULL, NULL) < 0)
		return explain_refusal(j, -errno);
	if (ptrace(PTRACE_INTERRUPT, j->tid, NULL, NULL) < 0)
		return report_ended(j->tid, j->err);
	int status = wait_for_stop(j);
	if (status == -EBUSY)
		return err_set(
			j->err, -EBUSY,
			"thread %d did not stop: it sleeps in the kernel and cannot be woken",
			(int)j->tid);
	if (status < 0)
		return report_ended(j->tid, j->err);
	int r = read_regs(j->tid, &regs);
	if (r == 0)
		j->fn(j->arg, &regs);
	let_go(j->tid, status);
	j->held_ns = clock_mono_ns() - start;
	if (r == -ESRCH) /* killed while it stood */
		return report_ended(j->tid, j->err);
	return r < 0 ? err_sys(j->err, r, "cannot read the registers of thread %d", (int)j->tid)
		     : 0;
}

static void *run_tracer(void *arg)
{
	const struct sched_param lowest = {.sched_priority = 1};
	struct job *j = arg;

	/* On a busy machine we must not wait for a processor while the thread waits for us. Few are
	 * allowed to ask for that; for the others it is as it is. */
	j->urgent = sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &lowest) == 0;
	j->result = stop_once(j);
	return NULL;
}

/* The tracer is a thread that ends: whatever it had seized the kernel then lets go of. It
 * inherits a mask with all signals blocked. */
int thread_stop(pid_t pid, pid_t tid, void (*fn)(void *arg, const struct stopped_regs *regs),
		void *arg, uint64_t *out_ns, struct err *err)
{
	struct job j = {.pid = pid, .tid = tid, .fn = fn, .arg = arg, .err = err};
	sigset_t all, before;
	pthread_t thread;

	/* Signals to us are for the threads that know about them. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int r = pthread_create(&thread, NULL, run_tracer, &j);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (r)
		return err_sys(err, -r, "cannot start a thread");
	pthread_join(thread, NULL);
	if (j.result == 0)
		*out_ns = j.held_ns;
	return j.result;
}
