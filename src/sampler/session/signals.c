/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "sampler/session/signals.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>

#include "base/clock.h"

#define IMPATIENT_NS 500000000u

static volatile sig_atomic_t stop_signal, snapshot_wanted;
static _Atomic uint64_t stop_ns; /* when the first one came */
static atomic_int job_pid; /* > 0: runs; 0: has ended */
static unsigned mode;
static bool ignored_int, ignored_usr1, ignored_child; /* before we took them */

static void on_end(int sig, siginfo_t *info, void *context)
{
	int saved = errno;

	(void)context;
	/* Shells ignore the terminal's for what they start in the background; a kill is meant. */
	if (sig == SIGINT && ignored_int && info->si_code > 0)
		return;
	if (mode & STACK_SIGNALS_JOB && !(mode & STACK_SIGNALS_DETACHED && sig == SIGINT)) {
		pid_t job = atomic_load(&job_pid);

		/* What the terminal sends goes to its whole process group: the job has it. */
		if (job > 0 && info->si_code <= 0)
			kill(job, sig);
	} else if (!stop_signal) {
		atomic_store(&stop_ns, clock_mono_ns());
		stop_signal = sig;
	} else if (clock_mono_ns() - atomic_load(&stop_ns) > IMPATIENT_NS) {
		/* Not the same one twice, as timeout(1) sends it: somebody does not want to wait.
		 */
		signal(sig, SIG_DFL);
		raise(sig);
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

	/* nohup means it. */
	if (is_ignored(sig) && sig != SIGINT)
		return;
	sigemptyset(&sa.sa_mask);
	sigaction(sig, &sa, NULL);
}

void stack_signals_install(unsigned flags)
{
	struct sigaction sa = {.sa_handler = on_snapshot};

	mode = flags;
	ignored_int = is_ignored(SIGINT);
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
	if (ignored_int)
		signal(SIGINT, SIG_IGN);
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
