/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "recorder/session.h"

#include "base/fs.h"
#include "base/mem.h"
#include "recorder/recorder.h"
#include "wire/ring.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SEGS_PER_MB (1048576u / ARENA_SEG_SIZE)
#define MIN_SEGS 16u
#define READY_ENV "SONDE_READY_FD"

static int page_open(const char *path, bool make, struct err *err)
{
	int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | (make ? O_CREAT : 0), 0600);
	struct stat st;

	if (fd < 0)
		return err_sys(err, -errno, "cannot open '%s'", path);
	if (fstat(fd, &st) == 0 && st.st_size < SESSION_BYTES) {
		/* Real blocks, so that nobody meets SIGBUS on a full disk. */
		int r = make ? -posix_fallocate(fd, 0, SESSION_BYTES) : -EINVAL;
		if (r < 0) {
			close(fd);
			return err_sys(err, r, "cannot make '%s'", path);
		}
	}
	return fd;
}

int session_map(const char *dir, bool make, struct control_page **out, struct err *err)
{
	char *path = xasprintf("%s/" SESSION_FILE, dir);
	int r = page_open(path, make, err);
	void *p = MAP_FAILED;

	if (r >= 0) {
		p = mmap(NULL, SESSION_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, r, 0);
		close(r);
		r = p == MAP_FAILED ? err_sys(err, -errno, "cannot map '%s'", path) : 0;
	}
	struct control_page *page = p;
	if (r == 0 && make && !page->magic) {
		page->version = SESSION_VERSION;
		page->magic = SESSION_MAGIC;
	}
	if (r == 0 && (page->magic != SESSION_MAGIC || page->version != SESSION_VERSION)) {
		munmap(p, SESSION_BYTES);
		r = err_set(err, -EINVAL, "'%s' is not a session of this version of sonde", path);
	}
	free(path);
	if (r == 0)
		*out = page;
	return r;
}

void session_unmap(struct control_page *page)
{
	if (page)
		munmap(page, SESSION_BYTES);
}

static int64_t wall_minus_mono(void)
{
	struct timespec wall, mono;

	clock_gettime(CLOCK_REALTIME, &wall);
	clock_gettime(CLOCK_MONOTONIC, &mono);
	return (wall.tv_sec - mono.tv_sec) * 1000000000ll + (wall.tv_nsec - mono.tv_nsec);
}

void session_configure(struct control_page *page, const struct mem_config *cfg)
{
	uint64_t segs = (uint64_t)cfg->buffer_mb * SEGS_PER_MB;

	atomic_store(&page->want, mem_config_want(cfg));
	page->c_depth = cfg->c_stack ? cfg->c_depth : 0;
	page->py_depth = cfg->py_stack ? cfg->py_depth : 0;
	page->oom_depth = cfg->analysis & MEM_OOM ? MEM_DEFAULT_DEPTH : 0;
	page->wait_ms = cfg->wait_ms;
	mem_config_get_settings(cfg, &page->settings);
	page->max_segs = (uint32_t)(segs < MIN_SEGS	    ? MIN_SEGS
				    : segs > ARENA_MAX_SEGS ? ARENA_MAX_SEGS
							    : segs);
	page->watch_output = cfg->watch.output_id;
	page->watch_content = cfg->watch.full_content;
	snprintf(page->watch_start, sizeof(page->watch_start), "%s", cfg->watch.start);
	snprintf(page->watch_end, sizeof(page->watch_end), "%s", cfg->watch.end);
	if (!page->wall_minus_mono_ns)
		page->wall_minus_mono_ns = wall_minus_mono();
}

/* The lock says it better than the process number, which a zombie or a stranger may have. */
bool session_is_live(const char *dir, const struct control_page *page)
{
	uint32_t pid = atomic_load(&page->recorder_pid);

	if (!pid || (kill((pid_t)pid, 0) < 0 && errno == ESRCH))
		return false;
	int fd = session_lock(dir, page, 0, NULL);
	if (fd >= 0)
		close(fd);
	return fd == -EBUSY;
}

int session_lock(const char *dir, const struct control_page *page, unsigned wait_ms,
		 struct err *err)
{
	const struct timespec step = {0, 2000000};
	char *path = xasprintf("%s/" SESSION_FILE, dir);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	int r = fd < 0 ? err_sys(err, -errno, "cannot open '%s'", path) : fd;

	free(path);
	for (unsigned waited = 0; r >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0; waited += 2) {
		if (errno != EWOULDBLOCK)
			break; /* a file system without locks: we do without */
		if (waited >= wait_ms || atomic_load(&page->state) != SESSION_NEW) {
			close(fd);
			r = err_set(err, -EBUSY, "another recorder is at work on '%s'", dir);
		} else {
			nanosleep(&step, NULL);
		}
	}
	return r;
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
		int n = snprintf(page->ring_dir, sizeof(page->ring_dir), "%s/sonde-rings-XXXXXX",
				 places[i]);
		if (n > 0 && (size_t)n < sizeof(page->ring_dir) && mkdtemp(page->ring_dir))
			return 0;
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
static int spawn(const char *dir, int ready[2], struct err *err)
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

/*
 * The job itself tells the report at its end, as a copy of its stderr in the recorder would keep
 * the reader of a pipe waiting for as long as the recorder is held up. A terminal has no reader
 * that waits: there the recorder tells it, also for a job that was killed.
 */
static void choose_report(struct control_page *page, const struct mem_config *cfg)
{
	int fd = cfg->report == MEM_REPORT_STDOUT ? STDOUT_FILENO : STDERR_FILENO;
	struct stat st;

	/* The recorder has a terminal only where stderr is one. */
	bool terminal = isatty(fd) && isatty(STDERR_FILENO);
	if (cfg->report == MEM_REPORT_OFF || terminal || fstat(fd, &st) < 0)
		return;
	page->report_dev = st.st_dev;
	page->report_ino = st.st_ino;
	page->report_fd = (uint32_t)fd;
}

int session_start(const char *dir, const struct mem_config *cfg, struct err *err)
{
	struct control_page *page;
	int ready[2] = {-1, -1};

	int r = session_map(dir, true, &page, err);
	if (r < 0)
		return r;
	session_configure(page, cfg);
	page->root_pid = (uint32_t)getpid();
	choose_report(page, cfg);
	r = choose_ring_dir(page, dir, err);
	if (r == 0)
		r = make_pipe(ready, err);
	if (r == 0) {
		r = spawn(dir, ready, err);
		close(ready[1]);
		if (r == 0)
			r = wait_ready(ready[0], err);
		close(ready[0]);
	}
	session_unmap(page);
	return r;
}
