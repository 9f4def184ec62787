/* SPDX-License-Identifier: MulanPSL-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "daemon/inspect/inspect_impl.h"

#if defined(__x86_64__)
#	define ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#	define ARCH AUDIT_ARCH_AARCH64
#endif
/* the lower half of the first argument */
#define FLAGS_OF_CLONE offsetof(struct seccomp_data, args[0])

#define MEMORY_BYTES (2ull << 30) /* of addresses */
#define FILES 256
#define NICE 19
#define NO_GROUP 65534

static void limit_resource(int what, rlim_t most)
{
	struct rlimit r = {most, most};

	(void)setrlimit(what, &r);
}

/* The system calls themselves: the C library's would look after threads that are not here. */
static bool become_user(uid_t uid, gid_t gid)
{
	if (geteuid() == uid && getegid() == gid && getuid() == uid)
		return true;
	return syscall(SYS_setgroups, 0, NULL) == 0 && syscall(SYS_setresgid, gid, gid, gid) == 0 &&
	       syscall(SYS_setresuid, uid, uid, uid) == 0 && getuid() == uid && geteuid() == uid &&
	       (uid == 0 || syscall(SYS_setresuid, 0, 0, 0) < 0);
}

/*
 * Its user may trace the program, and make it do what it likes: as itself, but outside of what its jobs
 * are held in, such as the cgroup of a batch system. So nothing that it starts outlives it: threads
 * only. Kernels without such filters do without.
 */
static bool forbid_processes(void)
{
#if defined(ARCH)
	static const struct sock_filter calls[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
#	ifdef __x86_64__ /* fork, vfork, and the numbers of x32 */
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fork, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_vfork, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
#	endif
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS), /* then clone is tried */
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, FLAGS_OF_CLONE),
		BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog program = {sizeof(calls) / sizeof(calls[0]),
					   (struct sock_filter *)(uintptr_t)calls};

	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0 || errno == EINVAL;
#else
	return true;
#endif
}

/* Where memory runs out, in a control group of the daemon, too, it ends before the daemon does. Its
 * user cannot lower again what a process with CAP_SYS_RESOURCE has set. */
static void die_first(void)
{
	int fd = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/oom_score_adj", O_WRONLY);

	if (fd < 0)
		return;
	(void)!write(fd, "1000", 4);
	close(fd);
}

/* In the child of a process that has threads: nothing here may take a lock. */
static void __attribute__((noreturn))
run_as(const struct inspect_start *s, gid_t gid, const int fds[2], pid_t parent)
{
	static const char *const environment[] = {"PATH=/usr/bin:/bin", "LC_ALL=C.UTF-8", NULL};
	const char *argv[INSPECT_WORDS + 1] = {"sonde"};
	sigset_t none;

	for (unsigned i = 0; i + 1 < INSPECT_WORDS && s->words[i]; i++)
		argv[i + 1] = s->words[i];
	sigemptyset(&none);
	for (int sig = 1; sig < NSIG; sig++)
		(void)signal(sig, SIG_DFL);
	sigprocmask(SIG_SETMASK, &none, NULL);
	int null = open("/dev/null", O_RDONLY);
	if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(fds[1], STDOUT_FILENO) < 0 ||
	    dup2(fds[1], STDERR_FILENO) < 0 || syscall(SYS_close_range, 3u, ~0u, 0u) < 0)
		_exit(125);
	limit_resource(RLIMIT_AS, MEMORY_BYTES);
	limit_resource(RLIMIT_NOFILE, FILES);
	limit_resource(RLIMIT_CORE, 0);
	limit_resource(RLIMIT_FSIZE, s->file_bytes);
	die_first();
	(void)setpriority(PRIO_PROCESS, 0, NICE);
	(void)setsid();
	if (chdir("/") < 0 || !become_user(s->uid, gid) ||
	    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || !forbid_processes() ||
	    prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent)
		_exit(125);
	execve("/proc/self/exe", (char *const *)argv, (char *const *)environment);
	_exit(126);
}

static int check_user(const struct inspect_start *s, struct err *err)
{
	if (geteuid() == 0 || s->uid == geteuid())
		return 0;
	return err_set(err, -EPERM,
		       "the daemon does not run as root, so it can read processes of its own user "
		       "only, and call other hosts for that user only");
}

/* Its group, if it has no other rights than its user: the directory is its effective user's. */
static int find_group(const struct inspect_start *s, gid_t *out, struct err *err)
{
	char path[32];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%d", (int)s->process);
	if (stat(path, &st) < 0)
		return err_set(err, -ESRCH, "process %d has ended", (int)s->process);
	if (st.st_uid != s->uid)
		return err_set(
			err, -EPERM,
			"process %d runs with other rights than those of its user, or hides its "
			"memory",
			(int)s->process);
	*out = st.st_gid;
	return check_user(s, err);
}

int inspect_start(const struct inspect_start *s, pid_t *out_pid, int *out_fd, struct err *err)
{
	pid_t parent = getpid();
	int fds[2];
	gid_t gid = 0;

	int r = s->process ? find_group(s, &gid, err) : check_user(s, err);
	if (r < 0)
		return r;
	if (!s->process) /* of somebody of whom no process is known: none that could read a file */
		gid = s->uid == geteuid() ? getegid() : NO_GROUP;
	if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) < 0)
		return err_sys(err, -errno, "cannot make a pipe");
	(void)fcntl(fds[1], F_SETFL, 0); /* it may wait until we read */
	pid_t pid = fork();
	if (pid == 0)
		run_as(s, gid, fds, parent);
	r = pid < 0 ? -errno : 0;
	close(fds[1]);
	if (r < 0) {
		close(fds[0]);
		return err_sys(err, r, "cannot start a program");
	}
	*out_pid = pid;
	*out_fd = fds[0];
	return 0;
}
