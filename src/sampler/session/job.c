/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "sampler/session/job.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sampler/session/signals.h"

/* The child: says over the pipe why exec failed; if it does not, the pipe closes by itself. */
__attribute__((noreturn)) static void become(char **argv, int pipe_fd)
{
	stack_signals_forget();
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
		become(argv, fds[1]);
	int r = pid < 0 ? -errno : 0;
	close(fds[1]);
	if (r < 0) {
		close(fds[0]);
		return err_sys(err, r, "cannot start a process");
	}
	stack_signals_job(pid);
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

static void note(struct stack_job *job, pid_t pid, int status)
{
	if (pid != job->pid)
		return;
	stack_signals_job(0);
	job->ended = true;
	job->status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

bool stack_job_ended(struct stack_job *job)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		note(job, pid, status);
	return job->ended;
}

void stack_job_wait(struct stack_job *job)
{
	while (!job->ended) {
		int status;
		pid_t pid = waitpid(-1, &status, 0);

		if (pid > 0)
			note(job, pid, status);
		else if (errno != EINTR)
			return;
	}
}
