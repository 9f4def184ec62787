/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Lets the recorder read this process' memory where the kernel would not: under Yama (its
 * ptrace_scope 1) a process is read by its ancestors only, and by whom it names. There is one such
 * name, and it cannot be asked for. MPI and others have named "anybody" for their own sake: so a
 * child tries first whether one that is no ancestor can read us, and then nothing is touched.
 */
#include "guest/guest.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHILD_STACK 16384
#define SCOPE_FILE "/proc/sys/kernel/yama/ptrace_scope"

struct child {
	int pid; /* whom to read */
	volatile bool could; /* the memory is shared */
};

static int try_to_read(void *arg)
{
	struct child *c = arg;
	char byte;
	struct iovec to = {&byte, 1}, from = {(void *)&c->could, 1};

	c->could = syscall(SYS_process_vm_readv, c->pid, &to, 1ul, &from, 1ul, 0ul) == 1;
	_exit(0);
}

/* Can a process read this one that is none of its ancestors? The job's wait() does not see it. */
bool guest_is_readable(void)
{
	struct child c = {.pid = (int)getpid()};
	uint64_t signals;

	char *stack =
		mmap(NULL, CHILD_STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (stack == MAP_FAILED)
		return false;
	guest_block_signals(&signals); /* no handler of the job may run in the child */
	int pid = clone(try_to_read, stack + CHILD_STACK, CLONE_VM | CLONE_VFORK, &c);
	while (pid > 0 && syscall(SYS_wait4, pid, NULL, __WCLONE, NULL) < 0 && errno == EINTR)
		;
	guest_restore_signals(&signals);
	munmap(stack, CHILD_STACK);
	return c.could;
}

static bool is_restricted(void)
{
	char scope = 0;
	int fd = open(SCOPE_FILE, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return false;
	if (read(fd, &scope, 1) != 1)
		scope = 0;
	close(fd);
	return scope == '1'; /* above that a name does not help */
}

bool guest_let_recorder_look(bool on)
{
	static uint32_t named; /* the process that has named one */
	uint32_t pid = (uint32_t)getpid();
	uint32_t recorder = guest.page ? atomic_load(&guest.page->recorder_pid) : 0;

	if (!on) {
		if (named == pid)
			prctl(PR_SET_PTRACER, 0ul, 0ul, 0ul, 0ul);
		named = 0;
		return true;
	}
	if (!recorder)
		return false; /* not yet */
	if (is_restricted() && !guest_is_readable() &&
	    prctl(PR_SET_PTRACER, (unsigned long)recorder, 0ul, 0ul, 0ul) == 0)
		named = pid;
	return true;
}
