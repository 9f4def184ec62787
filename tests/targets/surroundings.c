/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Prints what a process inherits, so that a recorded run can be compared with a plain one. */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void print_fds(void)
{
	DIR *d = opendir("/proc/self/fd");

	for (struct dirent *e = readdir(d); e; e = readdir(d)) {
		int fd = atoi(e->d_name);
		struct stat st;
		if (e->d_name[0] != '.' && fd != dirfd(d) && fstat(fd, &st) == 0)
			printf("fd %d mode %o\n", fd, st.st_mode);
	}
	closedir(d);
}

int main(void)
{
	char cwd[4096];
	sigset_t mask, pending;
	int status, reaper = -1;

	print_fds();
	sigprocmask(SIG_SETMASK, NULL, &mask);
	sigpending(&pending);
	for (int sig = 1; sig < NSIG; sig++) {
		struct sigaction sa;
		if (sigaction(sig, NULL, &sa) == 0)
			printf("signal %d %s%s%s\n", sig, sa.sa_handler == SIG_IGN ? "ignored" : "",
			       sigismember(&mask, sig) == 1 ? " blocked" : "",
			       sigismember(&pending, sig) == 1 ? " pending" : "");
	}
	for (int i = 0; i < RLIM_NLIMITS; i++) {
		struct rlimit l;
		if (getrlimit((__rlimit_resource_t)i, &l) == 0)
			printf("limit %d %llu %llu\n", i, (unsigned long long)l.rlim_cur,
			       (unsigned long long)l.rlim_max);
	}
	mode_t mask_bits = umask(0);
	umask(mask_bits);
	prctl(PR_GET_CHILD_SUBREAPER, &reaper);
	printf("umask %o cwd %s group %d session %d reaper %d nice %d\n", mask_bits,
	       getcwd(cwd, sizeof(cwd)), getpgrp() == getpid(), getsid(0) == getpid(), reaper,
	       getpriority(PRIO_PROCESS, 0));
	pid_t child = waitpid(-1, &status, WNOHANG);
	printf("children %s\n", child < 0 && errno == ECHILD ? "none" : "some");
	return 0;
}
