/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A daemon for benchmarks of the fabric: in a directory of its own, with the socket DIR/dynolog and
 * a control port that the kernel chose. Ends with the benchmark.
 */
#ifndef SONDE_BENCH_DAEMON_CHILD_H
#define SONDE_BENCH_DAEMON_CHILD_H

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "wire/fabric.h"

struct daemon_child {
	char dir[64];
	char log[96];
	struct sockaddr_un address; /* of its endpoint in dir */
	socklen_t address_len;
	pid_t pid;
	unsigned port;
};

static inline void bench_die(const char *what)
{
	fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what, strerror(errno));
	exit(1);
}

static inline uint64_t bench_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline void bench_sleep_ms(unsigned ms)
{
	struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};

	nanosleep(&t, NULL);
}

static inline void daemon_child_init(struct daemon_child *d)
{
	char path[96];

	*d = (struct daemon_child){.dir = "/tmp/sonde_bench_XXXXXX"};
	if (!mkdtemp(d->dir))
		bench_die("cannot make a directory");
	snprintf(d->log, sizeof(d->log), "%s/log", d->dir);
	snprintf(path, sizeof(path), "%s/%s", d->dir, FABRIC_DIR_FILE);
	if (fabric_path_address(path, &d->address, &d->address_len) < 0)
		bench_die("the path is too long");
}

/* The number behind this text in the log; 0 if it is not there. */
static inline unsigned daemon_child_find(const struct daemon_child *d, const char *text)
{
	char log[65536];
	FILE *f = fopen(d->log, "r");

	if (!f)
		return 0;
	log[fread(log, 1, sizeof(log) - 1, f)] = '\0';
	fclose(f);
	const char *at = strstr(log, text);
	return at ? (unsigned)strtoul(at + strlen(text), NULL, 10) : 0;
}

/* more: further options, ended by NULL. */
static inline void daemon_child_start(struct daemon_child *d, const char *const *more)
{
	const char *build = getenv("SONDE_BUILD");
	const char *words[32] = {
		NULL, "daemon", "--port", "0", "--enable-ipc-monitor", "--ipc-socket-dir", d->dir};
	char sonde[4096];
	int n = 7;

	snprintf(sonde, sizeof(sonde), "%s/bin/sonde", build ? build : "build");
	words[0] = sonde;
	while (*more)
		words[n++] = *more++;
	d->pid = fork();
	if (d->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (!freopen(d->log, "w", stderr))
			_exit(126);
		execv(sonde, (char **)(uintptr_t)words);
		_exit(127);
	}
	for (int i = 0; d->pid > 0 && i < 2000 && !d->port; i++) {
		bench_sleep_ms(5);
		if (waitpid(d->pid, NULL, WNOHANG) == d->pid)
			break;
		d->port = daemon_child_find(d, "System assigned port = ");
	}
	if (!d->port)
		bench_die("the daemon does not start");
}

static inline void daemon_child_end(struct daemon_child *d)
{
	char path[96];

	kill(d->pid, SIGTERM);
	waitpid(d->pid, NULL, 0);
	unlink(d->log);
	snprintf(path, sizeof(path), "%s/%s", d->dir, FABRIC_DIR_FILE);
	unlink(path);
	rmdir(d->dir);
}

/* A number of a file of /proc/PID, such as "VmRSS:" of status; 0 if it is not there. */
static inline unsigned long daemon_child_number(pid_t pid, const char *file, const char *key)
{
	char path[64], line[256];
	unsigned long number = 0;

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
	FILE *f = fopen(path, "r");
	while (f && !number && fgets(line, sizeof(line), f))
		if (!strncmp(line, key, strlen(key)))
			number = strtoul(line + strlen(key), NULL, 10);
	if (f)
		fclose(f);
	return number;
}

/* --- clients --- */

/* A client's socket, bound as libkineto's: an abstract name with a number instead of a UUID. */
static inline int bench_client_socket(unsigned number)
{
	struct sockaddr_un address;
	socklen_t len;
	char name[96];
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	snprintf(name, sizeof(name), FABRIC_CLIENT_NAME "-bench-%d-%u", (int)getpid(), number);
	fabric_abstract_address(name, &address, &len);
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, len) < 0)
		bench_die("cannot make a client");
	return fd;
}

struct bench_request {
	struct fabric_header header;
	int32_t mask, npids;
	int64_t job_id;
	int32_t pids[2];
};

static inline void bench_request_init(struct bench_request *r, int32_t pid)
{
	fabric_header_init(&r->header, "req", sizeof(*r) - sizeof(r->header));
	r->mask = FABRIC_EVENTS | FABRIC_ACTIVITIES;
	r->npids = 2;
	r->job_id = 0;
	r->pids[0] = pid;
	r->pids[1] = (int32_t)getppid();
}

/* --- control --- */

static inline bool bench_rpc_all(int fd, void *data, size_t n)
{
	for (char *at = data; n;) {
		ssize_t got = recv(fd, at, n, 0);

		if (got <= 0)
			return false;
		at += got;
		n -= (size_t)got;
	}
	return true;
}

static inline int bench_rpc_connect(unsigned port)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0)
		bench_die("cannot connect");
	return fd;
}

/* One call; gives the length of the reply, 0 on failure. */
static inline size_t bench_rpc_call(int fd, const char *request, char *reply, size_t size)
{
	char frame[256];
	int32_t length = (int32_t)strlen(request);

	memcpy(frame, &length, sizeof(length));
	memcpy(frame + sizeof(length), request, (size_t)length);
	size_t n = sizeof(length) + (size_t)length;
	if (send(fd, frame, n, MSG_NOSIGNAL) != (ssize_t)n ||
	    !bench_rpc_all(fd, &length, sizeof(length)) || length <= 0 || (size_t)length >= size ||
	    !bench_rpc_all(fd, reply, (size_t)length))
		return 0;
	reply[length] = '\0';
	return (size_t)length;
}

#endif
