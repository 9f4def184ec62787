/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Says what a process can see of itself: descriptors, children, signals, limits, terminal. With
 * `alloc` it allocates device memory first, so that there is something to record.
 */
#include "acl/acl.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	struct dirent *e;
	char seen[4096] = {0};

	while (d && (e = readdir(d)))
		if (e->d_name[0] != '.' && atoi(e->d_name) != dirfd(d))
			seen[atoi(e->d_name) % 4096] = 1;
	closedir(d);
	for (int i = 0; i < 4096; i++)
		if (seen[i])
			printf("fd %d\n", i);
}

static void signals(void)
{
	sigset_t mask;
	struct sigaction sa;

	sigprocmask(SIG_BLOCK, NULL, &mask);
	for (int s = 1; s < 32; s++) {
		sigaction(s, NULL, &sa);
		if (sa.sa_handler != SIG_DFL || sigismember(&mask, s))
			printf("signal %d %s %d\n", s, sa.sa_handler == SIG_IGN ? "ignored" : "?",
			       sigismember(&mask, s));
	}
}

int main(int argc, char **argv)
{
	void *p = NULL;
	struct rlimit r;
	char cwd[4096];

	if (argc > 1 && !strcmp(argv[1], "alloc"))
		if (aclInit(NULL) || aclrtSetDevice(0) ||
		    aclrtMalloc(&p, 4096, ACL_MEM_MALLOC_HUGE_FIRST))
			return 1;
	descriptors();
	signals();
	/* Nobody whom we do not know. */
	int got = (int)waitpid(-1, NULL, WNOHANG | __WALL);
	printf("wait %d %s\n", got, strerror(got < 0 ? errno : 0));
	printf("parent %d group %d session %d\n", getppid() == atoi(getenv("PARENT")),
	       getpgid(0) == atoi(getenv("GROUP")), getsid(0) == atoi(getenv("SID")));
	getrlimit(RLIMIT_NOFILE, &r);
	printf("files %llu %llu umask %o\n", (unsigned long long)r.rlim_cur,
	       (unsigned long long)r.rlim_max, (unsigned)umask(0));
	printf("tty %d%d%d cwd %s\n", isatty(0), isatty(1), isatty(2), getcwd(cwd, sizeof(cwd)));
	fprintf(stderr, "to stderr\n");
	return 0;
}
