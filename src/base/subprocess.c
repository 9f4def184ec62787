/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "base/subprocess.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

#define PIECE 16384
#define COMPLAINT_MAX 4096u
#define LOOK_MS 50 /* how often it is looked whether it has ended with its pipes still open */
#define START_MS 1000 /* that a copy of us takes to close its files */
#define MAX_FILES 65536
#define REAP_MS 200 /* a killed process that takes longer sleeps in the driver */

extern char **environ;

/* One pipe from the program. */
struct stream {
	int fd; /* -1: at its end */
	struct buf *to;
	size_t max;
	bool cut; /* more than that is left out; else it is too much */
};

/* It has the signals of a fresh process whatever ours are. */
static int start_program(const char *const *argv, bool apart, const int fds[2], pid_t *out_pid)
{
	short flags = POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF;
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attr;
	sigset_t none, all;

	sigemptyset(&none);
	sigfillset(&all);
	posix_spawn_file_actions_init(&files);
	posix_spawnattr_init(&attr);
	posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&files, fds[0], STDOUT_FILENO);
	posix_spawn_file_actions_adddup2(&files, fds[1], STDERR_FILENO);
	posix_spawnattr_setpgroup(&attr, 0);
	posix_spawnattr_setsigmask(&attr, &none);
	posix_spawnattr_setsigdefault(&attr, &all);
	posix_spawnattr_setflags(&attr, (short)(flags | (apart ? POSIX_SPAWN_SETPGROUP : 0)));
	int r = posix_spawnp(out_pid, argv[0], &files, &attr, (char *const *)argv, environ);
	posix_spawnattr_destroy(&attr);
	posix_spawn_file_actions_destroy(&files);
	return -r;
}

/* Takes what there is. False: it printed more than it may. */
static bool read_stream(struct stream *s)
{
	char piece[PIECE];
	ssize_t n = read(s->fd, piece, sizeof(piece));

	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return true;
	if (n <= 0) {
		close(s->fd);
		s->fd = -1;
		return true;
	}
	size_t room = s->max - s->to->len;
	buf_add(s->to, piece, (size_t)n < room ? (size_t)n : room);
	return (size_t)n <= room || s->cut;
}

/* Takes what there is within so many milliseconds. 1: something, 0: nothing, negative: no more. */
static int take_some(struct stream *s, int wait_ms)
{
	struct pollfd p[2] = {{.fd = s[0].fd, .events = POLLIN}, {.fd = s[1].fd, .events = POLLIN}};
	int n = poll(p, 2, wait_ms);

	if (n < 0)
		return errno == EINTR ? 0 : -errno;
	for (int i = 0; i < 2; i++)
		if (p[i].fd >= 0 && p[i].revents && !read_stream(&s[i]))
			return -EFBIG;
	return n > 0;
}

static int left_ms(uint64_t until_ns)
{
	uint64_t now_ns = clock_mono_ns();

	return now_ns < until_ns ? (int)((until_ns - now_ns) / 1000000) + 1 : 0;
}

/* Until the program has ended: a child of its own may keep the pipes for longer, and it may itself
 * close them and go on. 0: it has, and *out_status is set. */
static int listen_to(struct stream *s, pid_t pid, uint64_t until_ns, int *out_status)
{
	int ms, r = 0;

	while (r >= 0 && (ms = left_ms(until_ns))) {
		bool all = s[0].fd < 0 && s[1].fd < 0;
		int wait_ms = all ? 1 : LOOK_MS;

		r = take_some(s, ms < wait_ms ? ms : wait_ms);
		if (r == 0 && waitpid(pid, out_status, WNOHANG) != 0) {
			while (!all && (r = take_some(s, 0)) > 0)
				;
			return r < 0 ? r : 0;
		}
	}
	return r < 0 ? r : -ETIMEDOUT;
}

/* True when it is gone. */
static bool reap_child(pid_t pid, unsigned wait_ms)
{
	uint64_t until_ns = clock_mono_ns() + wait_ms * 1000000ull;

	for (;;) {
		pid_t r = waitpid(pid, NULL, WNOHANG);

		if (r == pid || (r < 0 && errno != EINTR))
			return true;
		if (!left_ms(until_ns))
			return false;
		usleep(2000);
	}
}

static void end_program(pid_t pid, const struct run_options *o)
{
	kill(o->apart ? -pid : pid, SIGKILL);
	if (!reap_child(pid, REAP_MS) && o->hanging)
		*o->hanging = pid;
}

static int judge_end(const char *name, int status, struct buf *complaint, struct err *err)
{
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	/* the last line is for people: kubectl logs its attempts before it */
	while (complaint->len && strchr("\r\n ", complaint->data[complaint->len - 1]))
		complaint->len--;
	const char *text = buf_str(complaint), *line = strrchr(text, '\n');
	line = line ? line + 1 : text;
	if (*line)
		return err_set(err, -EIO, "'%s' failed: %.400s", name, line);
	return err_set(err, -EIO, "'%s' failed with status %d and did not say why", name,
		       WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

static int judge_failure(const char *name, int r, const struct run_options *o, struct err *err)
{
	if (r == -ETIMEDOUT)
		return err_set(err, r, "'%s' does not answer within %u ms", name, o->timeout_ms);
	if (r == -EFBIG)
		return err_set(err, r, "'%s' says more than %zu bytes", name, o->max_bytes);
	return err_sys(err, r, "cannot read from '%s'", name);
}

static int run_with_pipes(const char *const *argv, const struct run_options *o, const int fds[2],
			  struct stream *s, struct err *err)
{
	uint64_t until_ns = clock_mono_ns() + o->timeout_ms * 1000000ull;
	int status = 0;
	pid_t pid;

	int r = start_program(argv, o->apart, fds, &pid);
	close(fds[0]);
	close(fds[1]);
	if (r < 0)
		return err_sys(err, r, "cannot run '%s'", argv[0]);
	r = listen_to(s, pid, until_ns, &status);
	if (r == 0)
		return judge_end(argv[0], status, s[1].to, err);
	end_program(pid, o);
	return judge_failure(argv[0], r, o, err);
}

int run_program(const char *const *argv, const struct run_options *o, struct buf *out,
		struct err *err)
{
	int from[2], complaints[2], r;
	struct buf complaint = {0};

	if (o->hanging && *o->hanging && !reap_child(*o->hanging, 0))
		return err_set(err, -ETIMEDOUT, "'%s' of before (process %d) still hangs", argv[0],
			       (int)*o->hanging);
	if (o->hanging)
		*o->hanging = 0;
	if (pipe2(from, O_CLOEXEC) < 0)
		return err_sys(err, -errno, "cannot make a pipe");
	if (pipe2(complaints, O_CLOEXEC) < 0) {
		r = err_sys(err, -errno, "cannot make a pipe");
		close(from[0]);
		close(from[1]);
		return r;
	}
	struct stream s[2] = {{from[0], out, out->len + o->max_bytes, false},
			      {complaints[0], &complaint, COMPLAINT_MAX, true}};
	r = run_with_pipes(argv, o, (int[]){from[1], complaints[1]}, s, err);
	for (int i = 0; i < 2; i++)
		if (s[i].fd >= 0)
			close(s[i].fd);
	buf_release(&complaint);
	return r;
}

/* --- a copy of ourselves --- */

/* What is open here must not stay open, and locked, in a copy. */
static void close_files(void)
{
	if (syscall(SYS_close_range, 3u, UINT32_MAX, 0u) == 0)
		return;
	for (int fd = 3; fd < MAX_FILES; fd++) /* a kernel before 5.9 */
		close(fd);
}

/* A file that is replaced next may be open in the copy still: until its end of the pipe is not. */
static void wait_until_closed(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	(void)poll(&p, 1, START_MS);
	close(fd);
}

pid_t fork_copy(void)
{
	pid_t us = getpid();
	int ends[2];

	if (pipe2(ends, O_CLOEXEC) < 0)
		return -1;
	pid_t pid = fork();
	if (pid == 0) {
		/* Who recovers a killed recorder's files must not meet its copy there. */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != us)
			_exit(1);
		close_files();
		return 0;
	}
	close(ends[1]);
	wait_until_closed(ends[0]);
	return pid;
}
