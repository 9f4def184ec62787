/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What a call of the control RPC costs the daemon: 8 clients, each with a new connection for every
 * call, as command lines make them. Rate, and processor time of the daemon per call, beside a
 * server that takes one connection after another with blocking calls, in the same run; and the
 * daemon over connections that are kept.
 *
 * Fails under 10,000 calls/s or above 40 us of the daemon's time per call, in the best of three
 * rounds. Arguments: calls of each client in a round (default 3000). BENCH_QUICK: a tenth, and
 * never fails.
 */
#include <errno.h>
#include <jansson.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CLIENTS 8
#define ROUNDS 3
#define RATE_FLOOR 10000
#define CPU_CEILING_US 40

static const char request[] = "{\"fn\":\"getStatus\"}";

struct client {
	pthread_t thread;
	unsigned port;
	unsigned address; /* 127.0.0.1 and so many */
	unsigned calls;
	bool kept; /* one connection for all calls */
	bool failed;
};

struct result {
	double rate; /* calls a second */
	double cpu_us; /* of the server, per call */
};

static void die(const char *what)
{
	fprintf(stderr, "daemon_rpc: %s: %s\n", what, strerror(errno));
	exit(1);
}

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Processor time of another process so far. */
static double cpu_s(pid_t pid)
{
	struct timespec t;
	clockid_t clock;

	if (clock_getcpuclockid(pid, &clock) || clock_gettime(clock, &t) < 0)
		die("cannot read the time of the server");
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* --- bytes --- */

static bool read_all(int fd, void *data, size_t n)
{
	for (char *at = data; n;) {
		ssize_t got = read(fd, at, n);

		if (got <= 0)
			return false;
		at += got;
		n -= (size_t)got;
	}
	return true;
}

static bool write_frame(int fd, const char *text, size_t n)
{
	char frame[8192];
	int32_t length = (int32_t)n;

	memcpy(frame, &length, sizeof(length));
	memcpy(frame + sizeof(length), text, n);
	return write(fd, frame, n + sizeof(length)) == (ssize_t)(n + sizeof(length));
}

/* Gives the length of the body, 0 on failure. */
static size_t read_frame(int fd, char *body, size_t size)
{
	int32_t length;

	if (!read_all(fd, &length, sizeof(length)) || length <= 0 || (size_t)length >= size ||
	    !read_all(fd, body, (size_t)length))
		return 0;
	return (size_t)length;
}

/* --- clients --- */

/*
 * Each client has an address of its own: with one address, most ports of the machine would soon
 * wait for their last packets, and the search for a free one would be what is measured.
 */
static int dial(unsigned port, unsigned address)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	struct sockaddr_in from = {.sin_family = AF_INET};
	const int on = 1;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	from.sin_addr.s_addr = htonl(INADDR_LOOPBACK + address);
	setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof(on));
	if (fd < 0 || bind(fd, (struct sockaddr *)&from, sizeof(from)) < 0 ||
	    connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0) {
		if (fd >= 0)
			close(fd);
		return -1;
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	return fd;
}

static void *run_client(void *arg)
{
	struct client *c = arg;
	char reply[65536];
	int fd = -1;

	for (unsigned i = 0; i < c->calls && !c->failed; i++) {
		if (fd < 0)
			fd = dial(c->port, c->address);
		c->failed = fd < 0 || !write_frame(fd, request, sizeof(request) - 1) ||
			    !read_frame(fd, reply, sizeof(reply));
		if (fd >= 0 && !c->kept) {
			close(fd);
			fd = -1;
		}
	}
	if (fd >= 0)
		close(fd);
	return NULL;
}

static struct result measure(const char *what, pid_t server, unsigned port, unsigned calls,
			     bool kept)
{
	struct client clients[CLIENTS];
	double cpu = cpu_s(server), start = now_s();

	for (int i = 0; i < CLIENTS; i++) {
		clients[i] = (struct client){.port = port, .calls = calls, .kept = kept};
		clients[i].address = (unsigned)i + 1;
		if (pthread_create(&clients[i].thread, NULL, run_client, &clients[i]))
			die("no thread");
	}
	for (int i = 0; i < CLIENTS; i++) {
		pthread_join(clients[i].thread, NULL);
		if (clients[i].failed)
			die("a call failed");
	}
	double all = (double)calls * CLIENTS, seconds = now_s() - start;
	struct result r = {all / seconds, (cpu_s(server) - cpu) / all * 1e6};
	printf("%-28s %8.0f calls/s  %6.1f us of the server per call\n", what, r.rate, r.cpu_us);
	fflush(stdout);
	return r;
}

/* --- the baseline: one connection after another, blocking --- */

static void serve_one(int fd)
{
	struct timeval limit = {.tv_sec = 3};
	char body[8192];

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	size_t n = read_frame(fd, body, sizeof(body));
	json_t *question = n ? json_loadb(body, n, 0, NULL) : NULL;
	json_t *answer = json_pack("{si ss ss}", "current_step", -1, "npumonitor", "Uninitialized",
				   "nputrace", "Uninitialized");
	char *text = json_dumps(answer, JSON_COMPACT | JSON_SORT_KEYS);
	int32_t length = (int32_t)strlen(text);

	if (question && (write(fd, &length, sizeof(length)) != sizeof(length) ||
			 write(fd, text, (size_t)length) != length))
		fprintf(stderr, "daemon_rpc: a client of the baseline has left\n");
	free(text);
	json_decref(answer);
	json_decref(question);
}

static pid_t start_baseline(unsigned *out_port)
{
	struct sockaddr_in at = {.sin_family = AF_INET};
	socklen_t len = sizeof(at);
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (listener < 0 || bind(listener, (struct sockaddr *)&at, sizeof(at)) < 0 ||
	    listen(listener, 50) < 0 || getsockname(listener, (struct sockaddr *)&at, &len) < 0)
		die("no port for the baseline");
	*out_port = ntohs(at.sin_port);
	pid_t pid = fork();
	while (pid == 0) {
		int fd = accept(listener, NULL, NULL);

		if (fd < 0)
			_exit(1);
		serve_one(fd);
		close(fd);
	}
	close(listener);
	return pid;
}

/* --- the daemon --- */

/* Its log says which port it got. */
static unsigned find_port(int log)
{
	static const char words[] = "System assigned port = ";
	char text[16384];
	size_t n = 0;
	ssize_t got;

	while (n < sizeof(text) - 1 && (got = read(log, text + n, sizeof(text) - 1 - n)) > 0) {
		n += (size_t)got;
		text[n] = '\0';
		const char *at = strstr(text, words);
		if (at && strchr(at, '\n'))
			return (unsigned)strtoul(at + sizeof(words) - 1, NULL, 10);
	}
	fprintf(stderr, "%.*s", (int)n, text);
	die("the daemon does not say its port");
	return 0;
}

static pid_t start_daemon(unsigned *out_port)
{
	const char *build = getenv("SONDE_BUILD");
	char sonde[4096];
	int log[2];

	snprintf(sonde, sizeof(sonde), "%s/bin/sonde", build ? build : "build");
	if (pipe(log) < 0)
		die("no pipe");
	pid_t pid = fork();
	if (pid == 0) {
		dup2(log[1], STDERR_FILENO);
		execl(sonde, sonde, "daemon", "--port", "0", "--nohttp", (char *)NULL);
		_exit(127);
	}
	close(log[1]);
	*out_port = find_port(log[0]); /* stays open: the daemon goes on writing */
	return pid;
}

static void stop(pid_t pid)
{
	kill(pid, SIGTERM);
	waitpid(pid, NULL, 0);
}

/* The better of two: on a machine that others use, too, only the best says what a server can do. */
static void keep_best(struct result *best, struct result r)
{
	if (r.rate > best->rate)
		best->rate = r.rate;
	if (best->cpu_us == 0 || r.cpu_us < best->cpu_us)
		best->cpu_us = r.cpu_us;
}

int main(int argc, char **argv)
{
	const bool quick = getenv("BENCH_QUICK");
	unsigned calls = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : quick ? 300 : 3000;
	struct result blocking = {0}, best = {0};
	unsigned port, baseline_port;

	if (!calls)
		die("calls must be a number above 0");
	signal(SIGPIPE, SIG_IGN);
	pid_t baseline = start_baseline(&baseline_port);
	pid_t server = start_daemon(&port);
	for (int round = 0; round < ROUNDS; round++) {
		keep_best(&blocking, measure("one after another, blocking", baseline, baseline_port,
					     calls, false));
		keep_best(&best, measure("getStatus", server, port, calls, false));
	}
	measure("getStatus, connections kept", server, port, calls, true);
	stop(baseline);
	stop(server);
	printf("best of %d against the baseline: %.2f times the rate, %.2f times the time per "
	       "call\n",
	       ROUNDS, best.rate / blocking.rate, best.cpu_us / blocking.cpu_us);
	bool good = best.rate >= RATE_FLOOR && best.cpu_us <= CPU_CEILING_US;
	if (!good)
		printf("outside the budget of %d calls/s and %d us\n", RATE_FLOOR, CPU_CEILING_US);
	return good || quick ? 0 : 1;
}
