/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * inject_call PID NUMBER [ARGUMENT...]: has another process make a system call, and prints what the
 * kernel answers. An argument is a number, or text that begins with '='. For root; the process is
 * waiting in a system call, and waits on afterwards.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>

#ifdef __x86_64__
#	define RED_ZONE 4096 /* what lies below the stack of the process; more than enough */

static void check(long r, const char *what)
{
	if (r < 0) {
		perror(what);
		exit(2);
	}
}

static void stop_at(pid_t pid)
{
	int status;

	check(waitpid(pid, &status, 0), "waitpid");
	if (!WIFSTOPPED(status))
		exit(2);
}

/* The text on the stack of the process; its address there. */
static uint64_t put_text(pid_t pid, uint64_t *top, const char *text)
{
	size_t len = strlen(text) + 1;

	*top = (*top - len) & ~15ull;
	struct iovec from = {(void *)(uintptr_t)text, len}, to = {(void *)(uintptr_t)*top, len};
	check(process_vm_writev(pid, &from, 1, &to, 1, 0), "process_vm_writev");
	return *top;
}

int main(int argc, char **argv)
{
	struct user_regs_struct before, regs;
	uint64_t a[6] = {0};

	if (argc < 3 || argc > 9)
		return 2;
	pid_t pid = atoi(argv[1]);
	check(ptrace(PTRACE_ATTACH, pid, 0, 0), "attach");
	stop_at(pid);
	check(ptrace(PTRACE_GETREGS, pid, 0, &before), "registers");
	regs = before;
	uint64_t top = before.rsp - RED_ZONE;
	for (int i = 3; i < argc; i++)
		a[i - 3] = *argv[i] == '=' ? put_text(pid, &top, argv[i] + 1)
					   : strtoull(argv[i], NULL, 0);
	regs.rip = before.rip - 2; /* the system call that it waits in: two bytes */
	regs.orig_rax = (uint64_t)-1; /* nothing is to be restarted */
	regs.rax = strtoull(argv[2], NULL, 0);
	regs.rdi = a[0], regs.rsi = a[1], regs.rdx = a[2];
	regs.r10 = a[3], regs.r8 = a[4], regs.r9 = a[5];
	check(ptrace(PTRACE_SETREGS, pid, 0, &regs), "registers");
	check(ptrace(PTRACE_SINGLESTEP, pid, 0, 0), "step");
	stop_at(pid);
	check(ptrace(PTRACE_GETREGS, pid, 0, &regs), "registers");
	check(ptrace(PTRACE_SETREGS, pid, 0, &before), "registers");
	check(ptrace(PTRACE_DETACH, pid, 0, 0), "detach");
	printf("%lld\n", (long long)regs.rax);
	return 0;
}
#else
int main(void)
{
	return 2;
}
#endif
