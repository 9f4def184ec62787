/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * spawned COUNTER WAY: starts itself by vfork, vfork-first (the child's event is the first of all),
 * spawn (posix_spawn), clone-vm (a process that shares our memory and has a thread's own TLS is a
 * thread to us; this one has ours and we wait for it), daemon (a grandchild that outlives us and
 * makes its first event when the file COUNTER.go appears).
 */
#include "counted.h"

#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>

extern char **environ;
static char *child_argv[] = {(char *)"spawned", NULL, (char *)"child", NULL};

static void end(pid_t pid)
{
	int status;

	if (pid <= 0 || waitpid(pid, &status, __WALL) != pid || status != 0)
		exit(96);
}

static void by_vfork(void)
{
	pid_t pid = vfork();

	if (pid == 0) {
		/* Not allowed by the book, and seen in the wild. */
		counted_free(0, counted_alloc(0, 4096));
		execv("/proc/self/exe", child_argv);
		_exit(95);
	}
	end(pid);
}

static int share(void *arg)
{
	(void)arg;
	counted_churn(0, 50);
	return 0;
}

static void by_clone(void)
{
	static char stack[65536] __attribute__((aligned(16)));

	end(clone(share, stack + sizeof(stack), CLONE_VM | SIGCHLD, NULL));
	end(clone(share, stack + sizeof(stack), CLONE_VM, NULL));
}

static void by_daemon(const char *counter)
{
	char go[4096];

	snprintf(go, sizeof(go), "%s.go", counter);
	if (fork() == 0) {
		setsid();
		if (fork() != 0)
			_exit(0);
		fclose(stdout);
		fclose(stderr);
		while (access(go, F_OK) < 0)
			usleep(1000);
		counted_churn(1, 200);
		_exit(0);
	}
	wait(NULL);
}

int main(int argc, char **argv)
{
	pid_t pid;

	if (argc != 3)
		return 98;
	counted_open(argv[1]);
	child_argv[1] = argv[1];
	if (!strcmp(argv[2], "child")) {
		counted_churn(0, 30);
		return 0;
	}
	if (!strcmp(argv[2], "vfork-first")) {
		by_vfork();
	} else if (!strcmp(argv[2], "clone-first")) {
		by_clone();
	}
	counted_churn(0, 100);
	if (!strcmp(argv[2], "vfork"))
		by_vfork();
	if (!strcmp(argv[2], "clone-vm"))
		by_clone();
	if (!strcmp(argv[2], "spawn")) {
		if (posix_spawn(&pid, "/proc/self/exe", NULL, NULL, child_argv, environ))
			return 97;
		end(pid);
	}
	if (!strcmp(argv[2], "daemon"))
		by_daemon(argv[1]);
	counted_churn(0, 100);
	puts("spawned");
	return 0;
}
