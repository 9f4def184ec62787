/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * The daemon itself could not wait for every child that ends: it would take those from the threads
 * that run npu-smi. So there are two processes, and the first has nothing else to do.
 */
#define LOG_AREA "daemon"

#include "daemon/init.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"

/* Waits for everything that has ended; leaves when that is the daemon. */
static void reap(pid_t daemon)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		if (pid == daemon && WIFEXITED(status))
			_exit(WEXITSTATUS(status));
		else if (pid == daemon)
			_exit(128 + WTERMSIG(status));
}

static void __attribute__((noreturn)) serve(pid_t daemon, const sigset_t *all)
{
	for (;;) {
		int sig = sigwaitinfo(all, NULL);

		if (sig == SIGCHLD)
			reap(daemon);
		else if (sig > 0)
			kill(daemon, sig);
	}
}

void init_if_first(void)
{
	static const int passed_on[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
	sigset_t all, before;

	if (getpid() != 1)
		return;
	sigemptyset(&all);
	sigaddset(&all, SIGCHLD);
	for (size_t i = 0; i < sizeof(passed_on) / sizeof(*passed_on); i++)
		sigaddset(&all, passed_on[i]);
	sigprocmask(SIG_BLOCK, &all, &before);
	pid_t daemon = fork();
	if (daemon < 0) {
		log_warn("process 1 cannot start another (%s): orphans stay behind as zombies",
			 strerror(errno));
	} else if (daemon > 0) {
		serve(daemon, &all);
	}
	sigprocmask(SIG_SETMASK, &before, NULL);
}
