/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "sampler/session/job.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

#define IMPATIENT_NS 500000000u

static volatile sig_atomic_t stop_signal, snapshot_wanted;
static _Atomic uint64_t stop_ns; /* when the first one came */
static atomic_int job_pid; /* signals are passed on to it; 0: none, or it has ended */
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
		/* Not the same one twice, as timeout(1) sends it: the user does not want to wait.
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

/* --- the job --- */

/* In the child before exec: signals that were ignored before are again. */
static void restore_ignored(void)
{
	if (ignored_int)
		signal(SIGINT, SIG_IGN);
	if (ignored_usr1)
		signal(SIGUSR1, SIG_IGN);
	if (ignored_child)
		signal(SIGCHLD, SIG_IGN);
}

/* The child: writes to the pipe why exec failed; if it does not, the pipe closes by itself. */
__attribute__((noreturn)) static void exec_job(char **argv, int pipe_fd)
{
	restore_ignored();
	execvp(argv[0], argv);
	int code = errno;
	ssize_t n = write(pipe_fd, &code, sizeof(code));
	_exit(n == sizeof(code) ? 126 : 127);
}

int stack_job_start(char **argv, struct stack_job *out, struct err *err)
{
	int fds[2], code = 0;
	ssize_t n;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return err_sys(err, -errno, "cannot make a pipe");
	/* Without this, whatever the job leaves behind would be lost to us. */
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	pid_t pid = fork();
	if (pid == 0)
		exec_job(argv, fds[1]);
	int r = pid < 0 ? -errno : 0;
	close(fds[1]);
	if (r < 0) {
		close(fds[0]);
		return err_sys(err, r, "cannot start a process");
	}
	atomic_store(&job_pid, pid);
	do
		n = read(fds[0], &code, sizeof(code));
	while (n < 0 && errno == EINTR);
	close(fds[0]);
	*out = (struct stack_job){.pid = pid};
	if (n != sizeof(code))
		return 0;
	stack_job_wait(out);
	return err_sys(err, -code, "cannot run '%s'", argv[0]);
}

static void record_exit(struct stack_job *job, pid_t pid, int status)
{
	if (pid != job->pid)
		return;
	atomic_store(&job_pid, 0);
	job->ended = true;
	job->status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

bool stack_job_ended(struct stack_job *job)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		record_exit(job, pid, status);
	return job->ended;
}

void stack_job_wait(struct stack_job *job)
{
	while (!job->ended) {
		int status;
		pid_t pid = waitpid(-1, &status, 0);

		if (pid > 0)
			record_exit(job, pid, status);
		else if (errno != EINTR)
			return;
	}
}
