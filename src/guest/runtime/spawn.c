/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Starts a recorder from inside a job that no launcher prepared. The job must not notice: no
 * SIGCHLD, nothing for its wait() to find, none of its descriptors or signal settings changed.
 *
 *	job --clone(VM|VFORK, no exit signal)--> middle --clone--> recorder: exec
 *	    <-- wait4(__WCLONE) --------------- _exit(0)             (now a child of init)
 *
 * Why not fork(): it copies the page tables of a job that may have a terabyte mapped, runs its
 * atfork handlers, and sends SIGCHLD. CLONE_VM|CLONE_VFORK shares the memory instead and stops only
 * the calling thread until the exec. Both children run on a stack of their own, mapped here, with
 * all signals blocked: a handler of the job would run in the job's memory with another pid. They
 * call nothing but raw system calls and execve(); the outcome comes back in shared memory.
 */
#include "guest/runtime/guest.h"

#include "guest/runtime/env.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHILD_STACK 65536
#define MAX_ENV 1024

struct child {
	const char *dir;
	char *stack; /* of the second child, above the first one's */
	volatile int failed; /* the recorder could not be started */
	char *env[MAX_ENV];
};

static int run_recorder(void *arg)
{
	struct child *c = arg;
	char *argv[] = {(char *)"sonde", (char *)"recorder", (char *)c->dir, NULL};

	syscall(SYS_setsid);
	execve(guest_program(), argv, c->env);
	c->failed = 1; /* the memory is shared, the job reads it */
	_exit(127);
}

static int start_and_leave(void *arg)
{
	struct child *c = arg;

	/* VFORK: this memory is shared with the job until the exec has happened. */
	if (clone(run_recorder, c->stack, CLONE_VM | CLONE_VFORK | SIGCHLD, c) < 0)
		_exit(1);
	_exit(0);
}

/* The recorder is not a job: it must not load our libraries. */
static void copy_env(struct child *c)
{
	size_t n = 0;

	for (char **e = environ; e && *e && n < MAX_ENV - 1; e++)
		if (strncmp(*e, "LD_PRELOAD=", 11) != 0)
			c->env[n++] = *e;
	c->env[n] = NULL;
}

/*
 * The two children have their stacks in one mapping, with the arguments behind them. The wait with
 * __WCLONE finds only children without an exit signal: it can never take one of the job's own away.
 */
int guest_spawn_recorder(const char *dir)
{
	size_t size = 2 * CHILD_STACK + sizeof(struct child);
	sigset_t all, old;

	if (!guest_program()[0])
		return -ENOENT;
	char *mem = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (mem == MAP_FAILED)
		return -ENOMEM;
	struct child *c = (struct child *)(mem + 2 * CHILD_STACK);
	c->dir = dir;
	c->stack = mem + 2 * CHILD_STACK;
	copy_env(c);
	/* No handler of the job may run in the children, which share its memory. */
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, &old);
	int pid = clone(start_and_leave, mem + CHILD_STACK, CLONE_VM | CLONE_VFORK, c);
	int status = 1;
	while (pid > 0 && syscall(SYS_wait4, pid, &status, __WCLONE, NULL) < 0 && errno == EINTR)
		;
	sigprocmask(SIG_SETMASK, &old, NULL);
	bool started = pid > 0 && status == 0 && !c->failed;
	munmap(mem, size);
	return started ? 0 : -ECHILD;
}
