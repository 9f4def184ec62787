/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "cli/ctl_exec.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

#define OUTPUT_MAX (64u << 20) /* a thousand pods are a few MiB */
#define COMPLAINT_MAX 4096u
#define LOOK_MS 100 /* how often it is looked whether it has ended with its pipes still open */

extern char **environ;

/* One pipe from the program. */
struct stream {
	int fd; /* -1: at its end */
	struct buf *to;
	size_t max;
	bool cut; /* more than that is left out; else it is too much */
};

static int start(const char *const *argv, const int out[2], const int complaints[2], pid_t *pid)
{
	posix_spawn_file_actions_t a;

	posix_spawn_file_actions_init(&a);
	posix_spawn_file_actions_addopen(&a, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&a, out[1], STDOUT_FILENO);
	posix_spawn_file_actions_adddup2(&a, complaints[1], STDERR_FILENO);
	int r = posix_spawnp(pid, argv[0], &a, NULL, (char *const *)argv, environ);
	posix_spawn_file_actions_destroy(&a);
	return -r;
}

/* Takes what there is. False: it printed more than it may. */
static bool take(struct stream *s)
{
	char piece[16384];
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
		if (p[i].fd >= 0 && p[i].revents && !take(&s[i]))
			return -EFBIG;
	return n > 0;
}

/* Until the program has ended: a child of its own may keep the pipes for longer, and it may itself
 * close them and go on. 0: it has, and *out_status is set. */
static int listen_to(struct stream *s, pid_t pid, uint64_t until_ns, int *out_status)
{
	int r = 0;

	while (r >= 0 && clock_mono_ns() < until_ns) {
		bool all = s[0].fd < 0 && s[1].fd < 0;

		r = take_some(s, all ? 1 : LOOK_MS);
		if (r == 0 && waitpid(pid, out_status, WNOHANG) != 0) {
			while (!all && take_some(s, 0) > 0)
				;
			return 0;
		}
	}
	return r < 0 ? r : -ETIMEDOUT;
}

static int judge(const char *name, int r, int status, struct buf *complaint, struct err *err)
{
	const char *text, *begin;

	/* the last line is for people: kubectl logs its attempts before it */
	while (complaint->len && strchr("\r\n ", complaint->data[complaint->len - 1]))
		complaint->len--;
	text = buf_str(complaint);
	begin = strrchr(text, '\n');
	begin = begin ? begin + 1 : text;

	if (r < 0)
		return err_sys(err, r, "no answer from '%s'", name);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	if (*begin)
		return err_set(err, -EIO, "'%s' failed: %.400s", name, begin);
	return err_set(err, -EIO, "'%s' failed and did not say why", name);
}

int ctl_exec(const char *const *argv, unsigned timeout_s, struct buf *out, struct err *err)
{
	int from[2] = {-1, -1}, complaints[2] = {-1, -1}, status = 0, r;
	struct buf complaint = {0};
	pid_t pid = -1;

	if (pipe2(from, O_CLOEXEC) < 0)
		return err_sys(err, -errno, "cannot run '%s'", argv[0]);
	if (pipe2(complaints, O_CLOEXEC) < 0) {
		r = err_sys(err, -errno, "cannot run '%s'", argv[0]);
		close(from[0]);
		close(from[1]);
		return r;
	}
	struct stream s[2] = {{from[0], out, out->len + OUTPUT_MAX, false},
			      {complaints[0], &complaint, COMPLAINT_MAX, true}};
	r = start(argv, from, complaints, &pid);
	close(from[1]);
	close(complaints[1]);
	if (r < 0) {
		err_sys(err, r, "cannot run '%s'", argv[0]);
	} else {
		r = listen_to(s, pid, clock_mono_ns() + timeout_s * 1000000000ull, &status);
		if (r < 0) {
			kill(pid, SIGKILL);
			while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
				;
		}
		r = judge(argv[0], r, status, &complaint, err);
	}
	for (int i = 0; i < 2; i++)
		if (s[i].fd >= 0)
			close(s[i].fd);
	buf_release(&complaint);
	return r;
}
