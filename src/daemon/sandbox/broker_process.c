/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The broker: a copy of the daemon from before it had opened anything, which now opens a few kinds
 * of files for it and does nothing else. */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/broker.h"
#include "daemon/sandbox/sandbox_impl.h"

#define BROKER_FD 3
#define FLAGS (O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK)

static const uint64_t broker_capabilities = 1ull << CAP_SYS_PTRACE | 1ull << CAP_DAC_READ_SEARCH;

/* The first message: what has become of its rights. */
struct report {
	uint64_t capabilities;
	int32_t failed; /* 0 or an errno: it is not there */
	int32_t filter; /* 0 or an errno: there is no filter of system calls */
};

/* --- which files --- */

bool broker_is_process_file(const char *path)
{
	static const char *const names[] = {"environ", "cmdline", "status",
					    "stat",    "comm",	  "ns/pid"};
	static const char proc[] = "/proc/";

	if (strncmp(path, proc, strlen(proc)))
		return false;
	path += strlen(proc);
	size_t digits = strspn(path, "0123456789");
	if (!digits || digits > 10 || path[digits] != '/')
		return false;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (!strcmp(path + digits + 1, names[i]))
			return true;
	return false;
}

/* The last part of a path below the directory, if it is the name of a file of a daemon's
 * certificates. */
static const char *certificate_name(const char *dir, const char *path)
{
	static const char *const names[] = {"ca.crt", "ca.crl", "server.crt", "server.key",
					    "key.pass"};
	size_t len = dir ? strlen(dir) : 0;

	if (!len || strncmp(path, dir, len) || path[len] != '/')
		return NULL;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (!strcmp(path + len + 1, names[i]))
			return names[i];
	return NULL;
}

/* Whether what is in there is root's choice alone: in a directory that the daemon's user can write,
 * a name could lead to any file. */
static bool belongs_to_root(int dir)
{
	struct statfs fs;
	struct stat st;

	if (fstat(dir, &st) < 0 || fstatfs(dir, &fs) < 0)
		return false;
	return st.st_uid == 0 && (!(st.st_mode & (S_IWGRP | S_IWOTH)) || fs.f_flags & ST_RDONLY);
}

/* Without a name: the directory itself, to be inspected. */
static int open_certificate(const char *dir, const char *name)
{
	int at = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	int fd = -1, error = EACCES;

	if (at < 0)
		return -errno;
	if (!name)
		return at;
	if (belongs_to_root(at)) {
		fd = openat(at, name, FLAGS);
		error = fd < 0 ? errno : 0;
	}
	close(at);
	return fd < 0 ? -error : fd;
}

static int open_for_daemon(void *certs_dir, const char *path)
{
	const char *name = certificate_name(certs_dir, path);

	if (name || (certs_dir && !strcmp(path, certs_dir)))
		return open_certificate(certs_dir, name);
	if (!broker_is_process_file(path))
		return -EACCES;
	int fd = open(path, FLAGS);
	return fd < 0 ? -errno : fd;
}

/* --- the process --- */

/* Of the daemon's files it keeps none but the socket. */
static void close_files(int fd)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	for (int i = 0; i < BROKER_FD && null >= 0; i++)
		dup2(null, i);
	if (fd != BROKER_FD)
		dup3(fd, BROKER_FD, O_CLOEXEC);
	if (syscall(436 /* close_range */, BROKER_FD + 1, ~0u, 0) < 0)
		for (int i = BROKER_FD + 1; i < sysconf(_SC_OPEN_MAX) && i < 65536; i++)
			close(i);
}

/* It ends with the daemon, not before: signals to the group or the service are for the daemon. */
static void __attribute__((noreturn))
run_broker(int fd, const struct sandbox_user *user, const char *certs_dir)
{
	static const int ignored[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGPIPE};
	struct report report = {0};

	for (size_t i = 0; i < sizeof(ignored) / sizeof(*ignored); i++)
		signal(ignored[i], SIG_IGN);
	close_files(fd);
	prctl(PR_SET_NAME, "sonde-broker", 0, 0, 0);
	report.failed = -rights_become(user, broker_capabilities, false, NULL);
	report.capabilities = rights_now();
	if (!report.failed)
		report.filter = -filter_broker();
	if (send(BROKER_FD, &report, sizeof(report), MSG_NOSIGNAL) == (ssize_t)sizeof(report) &&
	    !report.failed)
		broker_serve(BROKER_FD, open_for_daemon, (void *)(uintptr_t)certs_dir);
	_exit(0);
}

int broker_start(const struct sandbox_user *user, const char *certs_dir, struct broker_process *out,
		 struct err *err)
{
	struct report report;
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
		return err_sys(err, -errno, "cannot make a socket for the broker");
	pid_t pid = fork();
	if (pid == 0) {
		close(fds[0]);
		run_broker(fds[1], user, certs_dir);
	}
	int error = errno;
	close(fds[1]);
	if (pid < 0) {
		close(fds[0]);
		return err_sys(err, -error, "cannot start the broker");
	}
	ssize_t n = recv(fds[0], &report, sizeof(report), 0);
	if (n != (ssize_t)sizeof(report) || report.failed) {
		close(fds[0]);
		return err_sys(err, n == (ssize_t)sizeof(report) ? -report.failed : -ECHILD,
			       "the broker did not start");
	}
	*out = (struct broker_process){pid, fds[0], report.capabilities, -report.filter};
	return 0;
}
