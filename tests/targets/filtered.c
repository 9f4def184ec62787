/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Jobs under system call filters.
 *
 *	filtered allow		only what a program needs to print and end; anything else kills it
 *	filtered kcmp FILE	kcmp() is refused; the first event of all is in a vfork child
 */
#include "counted.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define LOAD BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))
#define ON(nr, action)                                                                             \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 1), BPF_STMT(BPF_RET | BPF_K, action)
#define ALLOW(nr) ON(nr, SECCOMP_RET_ALLOW)

static void install(struct sock_filter *f, size_t n)
{
	struct sock_fprog p = {(unsigned short)n, f};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p)) {
		perror("filtered");
		exit(99);
	}
}

static int only_what_is_allowed(void)
{
	struct sock_filter f[] = {
		LOAD,
		ALLOW(SYS_write),
		ALLOW(SYS_fstat),
		ALLOW(SYS_newfstatat),
		ALLOW(SYS_brk),
		ALLOW(SYS_mmap),
		ALLOW(SYS_lseek),
		ALLOW(SYS_ioctl),
		ALLOW(SYS_getrandom),
		ALLOW(SYS_exit_group),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	};

	install(f, sizeof(f) / sizeof(f[0]));
	puts("in the sandbox");
	return 3;
}

static int without_kcmp(const char *path)
{
	struct sock_filter f[] = {
		LOAD,
		ON(SYS_kcmp, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};

	install(f, sizeof(f) / sizeof(f[0]));
	counted_open(path);
	pid_t pid = vfork();
	if (pid == 0) {
		counted_churn(0, 3);
		_exit(0);
	}
	waitpid(pid, NULL, 0);
	counted_churn(1, 1000);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc > 2 && !strcmp(argv[1], "kcmp"))
		return without_kcmp(argv[2]);
	return only_what_is_allowed();
}
