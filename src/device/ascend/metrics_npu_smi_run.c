/* SPDX-License-Identifier: MulanPSL-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "device/ascend/metrics_npu_smi.h"

#define PROGRAM "npu-smi"
#define PIECE 8192
#define MAX_OUTPUT (1u << 20)
#define REAP_MS 200 /* a killed process that takes longer sleeps in the driver */

/* The child leads a process group, so that what it starts is killed with it, and has the signals of
 * a fresh process whatever ours are. */
static int start(int out_fd, pid_t *out_pid)
{
	char *const argv[] = {(char *)PROGRAM, (char *)"info", NULL};
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attr;
	sigset_t none, all;

	sigemptyset(&none);
	sigfillset(&all);
	posix_spawn_file_actions_init(&files);
	posix_spawnattr_init(&attr);
	posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&files, out_fd, 1);
	posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0);
	posix_spawnattr_setpgroup(&attr, 0);
	posix_spawnattr_setsigmask(&attr, &none);
	posix_spawnattr_setsigdefault(&attr, &all);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
						POSIX_SPAWN_SETSIGDEF);
	int r = posix_spawnp(out_pid, PROGRAM, &files, &attr, argv, environ);
	posix_spawnattr_destroy(&attr);
	posix_spawn_file_actions_destroy(&files);
	return -r;
}

static int left_ms(uint64_t until_ns)
{
	uint64_t now_ns = clock_mono_ns();

	return now_ns < until_ns ? (int)((until_ns - now_ns) / 1000000) + 1 : 0;
}

/* Until its end, the deadline, or more than it may say. */
static int read_output(int fd, uint64_t until_ns, struct buf *out)
{
	for (size_t got = 0;;) {
		struct pollfd p = {.fd = fd, .events = POLLIN};
		int ms = left_ms(until_ns);

		if (!ms || poll(&p, 1, ms) == 0)
			return -ETIMEDOUT;
		ssize_t n = read(fd, buf_room(out, PIECE), PIECE);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : 0;
		out->len += (size_t)n;
		got += (size_t)n;
		if (got > MAX_OUTPUT)
			return -EFBIG;
	}
}

/* True when it is gone. */
static bool reap(pid_t pid, uint64_t until_ns, int *out_status)
{
	*out_status = 0;
	for (;;) {
		pid_t r = waitpid(pid, out_status, WNOHANG);

		if (r == pid || (r < 0 && errno != EINTR))
			return true;
		if (!left_ms(until_ns))
			return false;
		usleep(2000);
	}
}

static void end(struct npu_smi *s, pid_t pid)
{
	int status;

	kill(-pid, SIGKILL);
	if (!reap(pid, clock_mono_ns() + REAP_MS * 1000000ull, &status))
		s->hanging = pid;
}

static int failed(int code, unsigned timeout_ms, struct err *err)
{
	if (code == -ETIMEDOUT)
		return err_set(err, code, "%s does not answer within %u ms", PROGRAM, timeout_ms);
	if (code == -EFBIG)
		return err_set(err, code, "%s says more than %u bytes", PROGRAM, MAX_OUTPUT);
	return err_sys(err, code, "cannot read from %s", PROGRAM);
}

int npu_smi_run(struct npu_smi *s, unsigned timeout_ms, struct buf *out, struct err *err)
{
	uint64_t until_ns = clock_mono_ns() + timeout_ms * 1000000ull;
	int fds[2], status = 0;
	pid_t pid;

	if (s->hanging && !reap(s->hanging, 0, &status))
		return err_set(err, -ETIMEDOUT, "%s of before (process %d) still hangs", PROGRAM,
			       (int)s->hanging);
	s->hanging = 0;
	if (pipe2(fds, O_CLOEXEC) < 0)
		return err_sys(err, -errno, "cannot make a pipe");
	int r = start(fds[1], &pid);
	close(fds[1]);
	if (r < 0) {
		close(fds[0]);
		return err_sys(err, r, "cannot run %s", PROGRAM);
	}
	r = read_output(fds[0], until_ns, out);
	close(fds[0]);
	if (r == 0 && !reap(pid, until_ns, &status))
		r = -ETIMEDOUT;
	else if (r == 0 && status != 0)
		return err_set(err, -EIO, "%s failed with status %d", PROGRAM,
			       WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
	if (r == 0)
		return 0;
	end(s, pid);
	return failed(r, timeout_ms, err);
}
