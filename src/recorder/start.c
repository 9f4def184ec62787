/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "recorder/start.h"

#include "base/fs.h"
#include "base/mem.h"
#include "base/proc.h"
#include "recorder/recorder.h"
#include "recorder/session.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* The descriptor that the recorder reports to; set only for one that a launcher starts. */
#define READY_ENV "SONDE_READY_FD"

/* --- in the launcher --- */

/* `recover` believes nobody else whose rings these are. */
static int note_owner(const char *rings, const char *dir, struct err *err)
{
	char *path = xasprintf("%s/" RINGS_OWNER_FILE, rings);
	struct buf text = {0};
	int r = fs_absolute(dir, &text, err);

	if (r == 0)
		r = fs_write_atomic(path, &text, 0600, err);
	buf_release(&text);
	free(path);
	return r;
}

void remove_ring_dir(const char *rings)
{
	char *path = xasprintf("%s/" RINGS_OWNER_FILE, rings);

	(void)fs_unlink(path, NULL);
	free(path);
	(void)fs_rmdir(rings, NULL);
}

/* Rings need a file system that keeps shared mappings: beside the output, or the next best. */
static int choose_ring_dir(struct control_page *page, const char *dir, struct err *err)
{
	const char *tmp = getenv("TMPDIR");
	const char *places[] = {tmp ? tmp : "/tmp", "/tmp", "/var/tmp", "/dev/shm"};

	page->ring_dir[0] = '\0';
	if (fs_is_local(dir, NULL) == 1)
		return 0;
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		if (fs_is_local(places[i], NULL) != 1)
			continue;
		int n = snprintf(page->ring_dir, sizeof(page->ring_dir),
				 "%s/" RINGS_PREFIX "XXXXXX", places[i]);
		if (n > 0 && (size_t)n < sizeof(page->ring_dir) && mkdtemp(page->ring_dir))
			return note_owner(page->ring_dir, dir, err);
	}
	page->ring_dir[0] = '\0';
	return err_set(
		err, -ENOTSUP,
		"no local file system for the event buffers: '%s', /tmp, /var/tmp and /dev/shm "
		"are all remote; set TMPDIR to a directory on a local disk",
		dir);
}

/*
 * A child whose end sends no signal and which only __WCLONE finds: the job that we become may have
 * SIGCHLD blocked (it would find one pending) or ignored (an ordinary waitpid() would fail).
 */
static pid_t fork_silently(void)
{
	return (pid_t)syscall(SYS_clone, 0, NULL, NULL, NULL, NULL);
}

/* In the process that becomes the recorder. Never returns. */
static void become_recorder(const char *dir, int ready)
{
	char *argv[] = {(char *)"sonde", (char *)"recorder", (char *)dir, NULL};

	unsetenv("LD_PRELOAD");
	fcntl(ready, F_SETFD, 0);
	execv("/proc/self/exe", argv);
	dprintf(ready, "cannot start the recorder: %s", strerror(errno));
	_exit(127);
}

/* Does this process inherit orphans, as the first one of a container does? */
static bool adopts_orphans(void)
{
	int reaper = 0;

	return getpid() == 1 || (prctl(PR_GET_CHILD_SUBREAPER, &reaper) == 0 && reaper);
}

/*
 * Twice forked: the job that the caller becomes has no child it does not know. Where orphans come
 * back to the job, as its children, a second fork would give it one, and a job that waits for all
 * its children would wait for the recorder, which waits for the job. There the recorder stays our
 * child, of the kind that wait() does not see; exec() would make it an ordinary one.
 */
static int spawn_recorder(const char *dir, int ready[2], struct err *err)
{
	bool direct = adopts_orphans();
	char fd[16];
	int status = 1;

	snprintf(fd, sizeof(fd), "%d", ready[1]);
	setenv(READY_ENV, fd, 1);
	pid_t pid = fork_silently();
	if (pid == 0) {
		setsid();
		if (direct)
			_exit(recorder_main(dir) < 0);
		pid_t second = fork_silently();
		if (second == 0)
			become_recorder(dir, ready[1]);
		_exit(second < 0);
	}
	unsetenv(READY_ENV);
	if (pid < 0)
		return err_sys(err, -errno, "cannot start the recorder");
	if (direct)
		return 0;
	while (waitpid(pid, &status, __WCLONE) < 0 && errno == EINTR)
		;
	return status == 0 ? 0 : err_set(err, -ECHILD, "cannot start the recorder");
}

/* The recorder says "ok", or what is wrong. */
static int wait_ready(int fd, struct err *err)
{
	char text[512];
	size_t n = 0;

	while (n < sizeof(text) - 1) {
		ssize_t r = read(fd, text + n, sizeof(text) - 1 - n);
		if (r < 0 && errno == EINTR)
			continue;
		if (r <= 0)
			break;
		n += (size_t)r;
	}
	text[n] = '\0';
	if (!strcmp(text, "ok"))
		return 0;
	return err_set(err, -EIO, "%s", n ? text : "the recorder ended before it was ready");
}

/* Not among the standard descriptors, which the job may have been given closed. */
static int make_pipe(int ends[2], struct err *err)
{
	int low[2];

	if (pipe2(low, O_CLOEXEC) < 0)
		return err_sys(err, -errno, "cannot make a pipe");
	for (int i = 0; i < 2; i++) {
		ends[i] = fcntl(low[i], F_DUPFD_CLOEXEC, 3);
		close(low[i]);
	}
	if (ends[0] >= 0 && ends[1] >= 0)
		return 0;
	close(ends[0]);
	close(ends[1]);
	return err_sys(err, -EMFILE, "cannot make a pipe");
}

int recorder_start(const char *dir, struct control_page *page, struct err *err)
{
	int ready[2] = {-1, -1};

	session_set_clock(page);
	page->root_pid = (uint32_t)getpid();
	page->root_ns = proc_pid_namespace("self");
	int r = choose_ring_dir(page, dir, err);
	if (r == 0)
		r = make_pipe(ready, err);
	if (r < 0)
		return r;
	r = spawn_recorder(dir, ready, err);
	close(ready[1]);
	if (r == 0)
		r = wait_ready(ready[0], err);
	close(ready[0]);
	return r;
}

/* --- in the recorder --- */

static void close_others(int keep)
{
	struct rlimit files = {.rlim_cur = 1024};

	if (keep < 3)
		keep = 2;
	else if (keep > 3)
		(void)syscall(SYS_close_range, 3u, (unsigned)keep - 1, 0u);
	if (syscall(SYS_close_range, (unsigned)keep + 1, UINT32_MAX, 0u) == 0)
		return;
	getrlimit(RLIMIT_NOFILE, &files); /* a kernel before 5.9 */
	for (int fd = 3; fd < (int)(files.rlim_cur < 65536 ? files.rlim_cur : 65536); fd++)
		if (fd != keep)
			close(fd);
}

/* The job's limits are not meant for us; what its owner may lift is lifted. */
static void lift_limits(void)
{
	static const int which[] = {RLIMIT_NOFILE, RLIMIT_CPU, RLIMIT_FSIZE, RLIMIT_AS,
				    RLIMIT_DATA};
	struct rlimit limit;

	for (size_t i = 0; i < sizeof(which) / sizeof(which[0]); i++) {
		if (getrlimit(which[i], &limit) < 0)
			continue;
		limit.rlim_cur = limit.rlim_max;
		setrlimit(which[i], &limit);
	}
}

void recorder_leave_job(int keep_fd, bool *out_terminal)
{
	sigset_t none;
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	*out_terminal = isatty(STDERR_FILENO);
	dup2(null, STDIN_FILENO);
	dup2(null, STDOUT_FILENO);
	if (!*out_terminal)
		dup2(null, STDERR_FILENO);
	close_others(keep_fd);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	for (int sig = 1; sig < 32; sig++)
		signal(sig, SIG_DFL);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	signal(SIGINT, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN);
	lift_limits();
	setsid();
	(void)!chdir("/");
}

int recorder_ready_fd(void)
{
	const char *text = getenv(READY_ENV);

	return text ? atoi(text) : -1;
}

void recorder_ready(int fd, int result, const struct err *err)
{
	if (fd < 0)
		return;
	if (result < 0)
		dprintf(fd, "%s", err->text);
	else
		(void)!write(fd, "ok", 2);
	close(fd);
}
