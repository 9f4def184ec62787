/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "sampler/session/background.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/containers/buf.h"
#include "base/fs.h"
#include "base/proc.h"
#include "base/text/number_read.h"
#include "sampler/discover/discover.h"

#define LOG_AREA "stack"
#include "base/log.h"

#define FILE_BYTES 4096
#define MOST_PID (1 << 22)
#define STOP_TRIES 500 /* of 10 ms: how long a job may take to end before the sampler is ended */

static void take_line(const char *line, size_t len, struct stack_pidfile *out)
{
	const struct {
		const char *name;
		struct stack_tracked *who;
		bool start;
	} keys[] = {{"main_pid", &out->job, false},
		    {"sniffer_pid", &out->sampler, false},
		    {"main_start", &out->job, true},
		    {"sniffer_start", &out->sampler, true}};
	const char *eq = memchr(line, '=', len);
	int64_t v = 0;

	if (!eq || !number_read(eq + 1, len - (size_t)(eq + 1 - line), &v) || v < 1)
		return;
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		size_t n = strlen(keys[i].name);

		if (n != (size_t)(eq - line) || memcmp(keys[i].name, line, n))
			continue;
		if (keys[i].start)
			keys[i].who->start_ticks = (uint64_t)v;
		else if (v <= MOST_PID)
			keys[i].who->pid = (pid_t)v;
	}
}

int stack_pidfile_parse(const char *text, size_t len, struct stack_pidfile *out)
{
	struct stack_pidfile p = {0};

	for (size_t at = 0; at < len;) {
		const char *end = memchr(text + at, '\n', len - at);
		size_t n = end ? (size_t)(end - (text + at)) : len - at;

		take_line(text + at, n && text[at + n - 1] == '\r' ? n - 1 : n, &p);
		at += n + 1;
	}
	if (!p.job.pid && !p.sampler.pid)
		return -EPROTO;
	*out = p;
	return 0;
}

int stack_pidfile_read(const char *path, struct stack_pidfile *out, struct err *err)
{
	int fd = fs_open(path, O_RDONLY, 0, err);
	char text[FILE_BYTES];
	struct stat st;

	if (fd < 0)
		return fd;
	ssize_t n = fstat(fd, &st) < 0 ? -errno : fs_read_at(fd, text, sizeof(text), 0);
	close(fd);
	if (n < 0)
		return err_sys(err, (int)n, "cannot read '%s'", path);
	if (stack_pidfile_parse(text, (size_t)n, out) < 0)
		return err_set(err, -EPROTO, "'%s' names no process", path);
	out->owner = st.st_uid;
	out->others_write = st.st_mode & (S_IWGRP | S_IWOTH);
	return 0;
}

static void add_pid(struct buf *out, const char *who, const struct stack_tracked *t)
{
	if (t->pid)
		buf_addf(out, "%s_pid=%d\n", who, (int)t->pid);
}

static int write_pidfile(const char *path, const struct stack_pidfile *p, struct err *err)
{
	struct buf text = {0};

	add_pid(&text, "main", &p->job);
	add_pid(&text, "sniffer", &p->sampler);
	if (p->job.pid)
		buf_addf(&text, "main_start=%" PRIu64 "\n", p->job.start_ticks);
	buf_addf(&text, "sniffer_start=%" PRIu64 "\n", p->sampler.start_ticks);
	int r = fs_write_atomic(path, &text, 0644, err);
	buf_release(&text);
	return r;
}

bool stack_tracked_runs(const struct stack_tracked *t)
{
	struct process_facts f = {0};

	if (!t->pid || process_facts(t->pid, NULL, &f, NULL) < 0)
		return false;
	bool runs = f.state != 'Z' && f.state != 'X' && t->start_ticks == f.start_ticks;
	process_facts_release(&f);
	return runs;
}

/* --- going there --- */

static bool read_all(int fd, void *out, size_t n)
{
	for (size_t got = 0; got < n;) {
		ssize_t r = read(fd, (char *)out + got, n - got);

		if (r == 0 || (r < 0 && errno != EINTR))
			return false;
		got += r > 0 ? (size_t)r : 0;
	}
	return true;
}

static int leave_terminal(const char *log, struct err *err)
{
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	int fd = fs_open_output(log, O_CREAT | O_APPEND, 0644, err);
	int r = 0;

	if (fd < 0)
		r = fd;
	else if (null < 0 || dup2(null, 0) < 0 || dup2(fd, 1) < 0 || dup2(fd, 2) < 0)
		r = err_sys(err, -errno, "cannot leave the terminal");
	if (null > 2)
		close(null);
	if (fd > 2)
		close(fd);
	return r;
}

int stack_background_start(const char *pid_file, const char *log, int *out_ready,
			   struct stack_started *out, struct err *err)
{
	int fds[2];

	*out = (struct stack_started){0};
	if (stack_pidfile_read(pid_file, &out->pids, NULL) == 0 &&
	    stack_tracked_runs(&out->pids.sampler))
		return err_set(err, -EEXIST, "process %d samples already",
			       (int)out->pids.sampler.pid);
	pid_t pid = pipe2(fds, O_CLOEXEC) < 0 ? -1 : fork();
	if (pid < 0)
		return err_sys(err, -errno, "cannot go into the background");
	if (pid > 0) {
		close(fds[1]);
		bool whole = read_all(fds[0], out, sizeof(*out));
		close(fds[0]);
		return whole ? 0
			     : err_set(err, -EPIPE,
				       "the process in the background failed; see '%s'", log);
	}
	close(fds[0]);
	setsid();
	struct err why = {0};
	if (leave_terminal(log, &why) < 0) {
		stack_background_failed(fds[1], 1, &why);
		_exit(1);
	}
	*out_ready = fds[1];
	return 1;
}

static void send_started(int ready, const struct stack_started *s)
{
	/* less than a page: it comes whole or not at all */
	if (write(ready, s, sizeof(*s)) < 0)
		log_warn("cannot report to the process in front: %s", strerror(errno));
	close(ready);
}

int stack_background_ready(const char *pid_file, int ready, pid_t job, struct err *err)
{
	struct stack_started s = {0};

	s.pids.sampler = (struct stack_tracked){getpid(), process_start_ticks(getpid())};
	if (job)
		s.pids.job = (struct stack_tracked){job, process_start_ticks(job)};
	int r = write_pidfile(pid_file, &s.pids, err);
	if (r == 0)
		send_started(ready, &s);
	return r;
}

void stack_background_failed(int ready, int status, const struct err *err)
{
	send_started(ready, &(struct stack_started){.status = status, .err = *err});
}

/* --- ending it --- */

static bool is_of_user(pid_t pid, uid_t user)
{
	char status[4096];
	unsigned real;

	if (proc_read(pid, "status", status, sizeof(status)) < 0)
		return false;
	const char *line = strstr(status, "\nUid:");
	return line && sscanf(line, " Uid: %u", &real) == 1 && real == user;
}

/* The name of the program's file; without what an update of it has left behind the name. */
static bool program_name(const char *link, char *out, size_t cap)
{
	ssize_t n = readlink(link, out, cap - 1);

	if (n <= 0)
		return false;
	out[n] = '\0';
	char *deleted = strstr(out, " (deleted)"), *slash;
	if (deleted)
		*deleted = '\0';
	slash = strrchr(out, '/');
	if (slash)
		memmove(out, slash + 1, strlen(slash));
	return true;
}

static bool is_our_program(pid_t pid)
{
	char link[64], own[PATH_MAX], other[PATH_MAX];

	snprintf(link, sizeof(link), "/proc/%d/exe", (int)pid);
	return program_name("/proc/self/exe", own, sizeof(own)) &&
	       program_name(link, other, sizeof(other)) && !strcmp(own, other);
}

int stack_pidfile_trust(const char *path, const struct stack_pidfile *p, struct err *err)
{
	const uid_t self = geteuid();

	if (p->owner != self)
		return err_set(err, -EPERM,
			       "'%s' belongs to another user (uid %u), who alone can end what it "
			       "names",
			       path, (unsigned)p->owner);
	if (p->others_write)
		return err_set(err, -EPERM,
			       "other users can write '%s', so it may name anything: end process "
			       "%d yourself",
			       path, (int)p->sampler.pid);
	if (stack_tracked_runs(&p->sampler) &&
	    (!is_of_user(p->sampler.pid, self) || !is_our_program(p->sampler.pid)))
		return err_set(err, -EPERM, "process %d, which '%s' names, is no sampler of yours",
			       (int)p->sampler.pid, path);
	/* What root has started may have become another user since. */
	if (self != 0 && stack_tracked_runs(&p->job) && !is_of_user(p->job.pid, self))
		return err_set(err, -EPERM, "process %d, which '%s' names, is no job of yours",
			       (int)p->job.pid, path);
	return 0;
}

static bool wait_ended(const struct stack_pidfile *p)
{
	for (int i = 0; i < STOP_TRIES; i++) {
		if (!stack_tracked_runs(&p->job) && !stack_tracked_runs(&p->sampler))
			return true;
		nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
	}
	return false;
}

bool stack_background_stop(const struct stack_pidfile *p)
{
	bool job = stack_tracked_runs(&p->job), sampler = stack_tracked_runs(&p->sampler);

	/* The sampler ends with its job, and has its last moments on file then. */
	if (job)
		kill(p->job.pid, SIGTERM);
	if (sampler && (!job || !wait_ended(p)) && stack_tracked_runs(&p->sampler))
		kill(p->sampler.pid, SIGINT);
	return wait_ended(p);
}
