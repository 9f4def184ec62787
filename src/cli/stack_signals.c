/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "cli/stack_signals.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>

static volatile sig_atomic_t stop_signal, snapshot_wanted;
static atomic_int job_pid; /* > 0: runs; 0: has ended */
static unsigned mode;
static bool ignored_usr1, ignored_child; /* before we took them */

static void on_end(int sig, siginfo_t *info, void *context)
{
	int saved = errno;

	(void)context;
	if (mode & STACK_SIGNALS_JOB && !(mode & STACK_SIGNALS_DETACHED && sig == SIGINT)) {
		pid_t job = atomic_load(&job_pid);

		/* What the terminal sends goes to its whole process group: the job has it. */
		if (job > 0 && info->si_code <= 0)
			kill(job, sig);
	} else if (stop_signal) {
		signal(sig, SIG_DFL);
		raise(sig);
	} else {
		stop_signal = sig;
	}
	errno = saved;
}

static void on_snapshot(int sig)
{
	(void)sig;
	snapshot_wanted = 1;
}

/* Only to wake us. */
static void on_child(int sig)
{
	(void)sig;
}

static bool is_ignored(int sig)
{
	struct sigaction now;

	return sigaction(sig, NULL, &now) == 0 && now.sa_handler == SIG_IGN;
}

static void handle_end(int sig)
{
	struct sigaction sa = {.sa_sigaction = on_end, .sa_flags = SA_SIGINFO};

	/* nohup and shells that start us in the background mean it. */
	if (is_ignored(sig))
		return;
	sigemptyset(&sa.sa_mask);
	sigaction(sig, &sa, NULL);
}

void stack_signals_install(unsigned flags)
{
	struct sigaction sa = {.sa_handler = on_snapshot};

	mode = flags;
	handle_end(SIGINT);
	handle_end(SIGTERM);
	handle_end(SIGHUP);
	if (flags & STACK_SIGNALS_JOB)
		handle_end(SIGQUIT);
	ignored_usr1 = is_ignored(SIGUSR1);
	ignored_child = is_ignored(SIGCHLD);
	sigemptyset(&sa.sa_mask);
	sigaction(SIGUSR1, &sa, NULL);
	sa.sa_handler = on_child;
	sa.sa_flags = SA_NOCLDSTOP;
	sigaction(SIGCHLD, &sa, NULL);
}

void stack_signals_forget(void)
{
	if (ignored_usr1)
		signal(SIGUSR1, SIG_IGN);
	if (ignored_child)
		signal(SIGCHLD, SIG_IGN);
}

void stack_signals_job(pid_t pid)
{
	atomic_store(&job_pid, pid);
}

int stack_signals_stop(void)
{
	return stop_signal;
}

bool stack_signals_take_snapshot(void)
{
	bool wanted = snapshot_wanted;

	snapshot_wanted = 0;
	return wanted;
}
