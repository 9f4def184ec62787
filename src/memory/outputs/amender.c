/* SPDX-License-Identifier: MulanPSL-2.0 */
#define LOG_AREA "diagnose"
#include "memory/outputs/amender.h"

#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define COPIES 4
#define LARGE_BYTES (4u << 20)
#define START_MS 1000
#define MAX_FILES 65536

/* What comes of a file. That of a copy lies in memory that we share with it. */
struct outcome {
	uint64_t rows;
	int result;
	struct err err;
};

struct copy {
	pid_t pid;
	char *path;
	struct outcome *outcome;
};

struct amender {
	enum row_compat compat;
	bool aside;
	struct copy copies[COPIES];
	size_t n;
	uint64_t failed;
};

struct amender *amender_new(enum row_compat compat, bool aside)
{
	struct amender *a = xcalloc(1, sizeof(*a));

	a->compat = compat;
	a->aside = aside;
	return a;
}

/* By us alone: a copy may have been made while another thread was in the middle of a log line. */
static void log_outcome(struct amender *a, const char *path, const struct outcome *o)
{
	if (o->result < 0) {
		a->failed++;
		log_err("%s", o->err.text);
	} else {
		log_info("%llu rows of %s amended", (unsigned long long)o->rows, path);
	}
}

static bool is_large(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && st.st_size >= LARGE_BYTES;
}

static void end_copy(struct amender *a, size_t i, int status)
{
	struct copy *c = &a->copies[i];

	if (!WIFEXITED(status) || WEXITSTATUS(status))
		c->outcome->result = err_set(&c->outcome->err, -EINTR,
					     "'%s' is not amended: it was interrupted", c->path);
	log_outcome(a, c->path, c->outcome);
	munmap(c->outcome, sizeof(*c->outcome));
	free(c->path);
	*c = a->copies[--a->n];
}

static bool reap_copies(struct amender *a, int flags)
{
	for (size_t i = a->n; i > 0; i--) {
		int status = -1;
		pid_t r = waitpid(a->copies[i - 1].pid, &status, flags);
		if (r > 0 || (r < 0 && errno != EINTR))
			end_copy(a, i - 1, status);
	}
	return a->n > 0;
}

bool amender_busy(struct amender *a)
{
	return a->n && reap_copies(a, WNOHANG);
}

void amender_free(struct amender *a)
{
	if (!a)
		return;
	while (a->n)
		reap_copies(a, 0);
	free(a);
}

uint64_t amender_failed(const struct amender *a)
{
	return a->failed;
}

/* What is open here must not stay open, and locked, in a copy. */
static void close_files(void)
{
	if (syscall(SYS_close_range, 3u, UINT32_MAX, 0u) == 0)
		return;
	for (int fd = 3; fd < MAX_FILES; fd++) /* a kernel before 5.9 */
		close(fd);
}

/* The next file that is amended may be open in the copy still: until its end of the pipe is not. */
static void wait_until_closed(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	(void)poll(&p, 1, START_MS);
	close(fd);
}

/* Returns in us and in the copy, as fork() does. */
static pid_t make_copy(void)
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

/* False: there is no room for another copy. */
static bool give_to_copy(struct amender *a, const char *path, amend_lookup find, void *arg)
{
	if (a->n == COPIES && reap_copies(a, WNOHANG) && a->n == COPIES)
		return false;
	struct outcome *o =
		mmap(NULL, sizeof(*o), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (o == MAP_FAILED)
		return false;
	pid_t pid = make_copy();
	if (pid == 0) {
		o->result = dump_amend(path, a->compat, find, arg, &o->rows, &o->err);
		_exit(0);
	}
	if (pid < 0) {
		munmap(o, sizeof(*o));
		return false;
	}
	a->copies[a->n++] = (struct copy){pid, xstrdup(path), o};
	return true;
}

void amender_file(struct amender *a, const char *path, amend_lookup find, void *arg)
{
	struct outcome o = {0};

	if (a->aside && is_large(path) && give_to_copy(a, path, find, arg))
		return;
	o.result = dump_amend(path, a->compat, find, arg, &o.rows, &o.err);
	log_outcome(a, path, &o);
}
