/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * One question to 1,000 daemons at once. A process stands for all of them, each with an address of
 * its own below 127.1.0.0 and an answer that takes 10 ms; one is dead (refuses), one is silent
 * (takes the question and never answers). First through client_run(), then through the command
 * `sonde ctl`.
 *
 * Prints when the slowest of the others had answered, when all outcomes were there, and how long
 * the same takes one after another by blocking calls, from a sample without those two.
 *
 * Fails if all outcomes take 2 s or more (the silent one has 1 s), or if any other waited for the
 * silent one. Arguments: daemons (default 1000). BENCH_QUICK: a tenth, and never fails.
 */
#include <errno.h>
#include <event2/event.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "client/client.h"

#define TIMEOUT_MS 1000
#define BUDGET_S 2.0
#define NETWORK_MS 10
#define SAMPLE 20 /* asked one by one */
#define HOST_BYTES 16

static const char answer[] =
	"{\"current_step\":-1,\"npumonitor\":\"Uninitialized\",\"nputrace\":\"Uninitialized\"}";

struct fleet {
	unsigned n, dead, silent;
	unsigned port;
	int *listeners;
	char (*hosts)[HOST_BYTES];
};

static void die(const char *what)
{
	fprintf(stderr, "daemon_fanout: %s: %s\n", what, strerror(errno));
	exit(1);
}

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* --- the daemons --- */

static struct sockaddr_in address_of(const struct fleet *f, unsigned i)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)f->port)};

	a.sin_addr.s_addr = htonl(0x7f010000u + i / 250 * 256 + i % 250 + 1);
	return a;
}

static void open_fleet(struct fleet *f)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	f->listeners = xcalloc(f->n, sizeof(*f->listeners));
	f->hosts = xcalloc(f->n, sizeof(*f->hosts));
	for (unsigned i = 0; i < f->n; i++) {
		struct sockaddr_in a = address_of(f, i);
		socklen_t len = sizeof(a);
		int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

		if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 ||
		    (i != f->dead && listen(fd, 64) < 0) ||
		    getsockname(fd, (struct sockaddr *)&a, &len) < 0)
			die("cannot make the daemons");
		f->port = ntohs(a.sin_port); /* the first one chooses for all */
		f->listeners[i] = fd;
		unsigned host = ntohl(a.sin_addr.s_addr);
		snprintf(f->hosts[i], HOST_BYTES, "127.1.%u.%u", host >> 8 & 255, host & 255);
	}
}

/* A question is answered when the time that a network would take is over. */
static void on_question(evutil_socket_t fd, short what, void *arg)
{
	char frame[sizeof(answer) + sizeof(int32_t)], question[8192];
	struct timeval network = {.tv_usec = NETWORK_MS * 1000};
	int32_t length = sizeof(answer) - 1;
	struct event *event = *(struct event **)arg;

	if (what & EV_READ && read(fd, question, sizeof(question)) > 0) {
		event_add(event, &network);
		return;
	}
	memcpy(frame, &length, sizeof(length));
	memcpy(frame + sizeof(length), answer, sizeof(answer));
	if (what & EV_TIMEOUT && write(fd, frame, sizeof(length) + sizeof(answer) - 1) > 0) {
		event_del(event);
		event_add(event, NULL);
		return;
	}
	event_free(event);
	free(arg);
	close(fd);
}

static void on_connection(evutil_socket_t listener, short what, void *base)
{
	int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	struct event **event = xcalloc(1, sizeof(*event));

	(void)what;
	if (fd < 0) {
		free(event);
		return;
	}
	*event = event_new(base, fd, EV_READ | EV_PERSIST, on_question, event);
	event_add(*event, NULL);
}

static pid_t start_fleet(const struct fleet *f)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	struct event_base *base = event_base_new();
	for (unsigned i = 0; i < f->n; i++)
		if (i != f->dead && i != f->silent)
			event_add(event_new(base, f->listeners[i], EV_READ | EV_PERSIST,
					    on_connection, base),
				  NULL);
	event_base_dispatch(base);
	_exit(0);
}

/* --- all at once --- */

static bool fan_out(const struct fleet *f, const json_t *request, double one_by_one_s)
{
	struct client_call *calls = xcalloc(f->n, sizeof(*calls));
	struct client_options options = {.timeout_ms = TIMEOUT_MS};
	struct err err = {0};
	unsigned answered = 0;
	double slowest = 0, start = now_s();

	for (unsigned i = 0; i < f->n; i++)
		calls[i] = (struct client_call){
			.host = f->hosts[i], .port = f->port, .request = request};
	if (client_run(calls, f->n, &options, &err) < 0)
		die(err.text);
	double all = now_s() - start;
	for (unsigned i = 0; i < f->n; i++) {
		answered += calls[i].err.code == 0;
		if (calls[i].err.code == 0 && calls[i].seconds > slowest)
			slowest = calls[i].seconds;
	}
	printf("client_run  %u daemons: %u answered, the slowest after %.0f ms; dead after %.0f "
	       "ms, silent after %.0f ms; all after %.2f s\n",
	       f->n, answered, slowest * 1e3, calls[f->dead].seconds * 1e3,
	       calls[f->silent].seconds * 1e3, all);
	printf("            %.0f times as fast as one by one, the silent one aside\n",
	       one_by_one_s / slowest);
	bool good = answered == f->n - 2 && all < BUDGET_S && slowest * 1000 < TIMEOUT_MS &&
		    calls[f->dead].err.code == -ECONNREFUSED &&
		    calls[f->silent].err.code == -ETIMEDOUT;
	for (unsigned i = 0; i < f->n; i++)
		client_call_release(&calls[i]);
	free(calls);
	return good;
}

/* --- one after another --- */

static double one_by_one(const struct fleet *f)
{
	static const char question[] = "\x12\0\0\0{\"fn\":\"getStatus\"}";
	double start = now_s();
	char reply[512];

	for (unsigned i = 0; i < SAMPLE; i++) {
		struct sockaddr_in a = address_of(f, i);
		int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

		if (connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0 &&
		    (write(fd, question, sizeof(question) - 1) < 0 ||
		     read(fd, reply, sizeof(reply)) <= 0))
			die("a daemon does not answer");
		close(fd);
	}
	double seconds = (now_s() - start) / SAMPLE * f->n;
	printf("one by one  %u daemons would take %.2f s, and %.0f s more for each that is "
	       "silent\n",
	       f->n, seconds, TIMEOUT_MS / 1000.0);
	return seconds;
}

/* --- the command --- */

static void run_command(const char *hosts, unsigned port)
{
	const char *build = getenv("SONDE_BUILD");
	char sonde[4096], port_text[16];

	snprintf(sonde, sizeof(sonde), "%s/bin/sonde", build ? build : "build");
	snprintf(port_text, sizeof(port_text), "%u", port);
	if (!freopen("/dev/null", "w", stdout) || !freopen("/dev/null", "w", stderr))
		_exit(126);
	execl(sonde, sonde, "ctl", "--hosts-file", hosts, "--port", port_text, "--timeout", "1",
	      "status", (char *)NULL);
	_exit(127);
}

static bool command(const struct fleet *f)
{
	char path[] = "/tmp/daemon_fanout_XXXXXX";
	int fd = mkstemp(path), status = 0;
	FILE *hosts = fd < 0 ? NULL : fdopen(fd, "w");

	if (!hosts)
		die("no file for the hosts");
	for (unsigned i = 0; i < f->n; i++)
		fprintf(hosts, "%s\n", f->hosts[i]);
	fclose(hosts);
	double start = now_s();
	pid_t pid = fork();
	if (pid == 0)
		run_command(path, f->port);
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		die("no process");
	double seconds = now_s() - start;
	unlink(path);
	int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
	printf("sonde ctl   %u daemons: %.2f s, exit status %d (two hosts failed)\n", f->n, seconds,
	       code);
	return seconds < BUDGET_S && code == 1;
}

int main(int argc, char **argv)
{
	const bool quick = getenv("BENCH_QUICK");
	struct fleet f = {.n = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10)
			       : quick	? 100
					: 1000};
	json_t *request = json_pack("{ss}", "fn", "getStatus");

	setvbuf(stdout, NULL, _IOLBF, 0); /* before there are children */
	if (f.n < 100 || f.n > 60000)
		die("daemons must be a number from 100 to 60000");
	f.dead = f.n / 3;
	f.silent = f.n / 2;
	open_fleet(&f);
	pid_t fleet = start_fleet(&f);
	/* The child has them; only the dead one (bound, not listening) and the silent one stay. */
	for (unsigned i = 0; i < f.n; i++)
		if (i != f.dead && i != f.silent)
			close(f.listeners[i]);
	bool good = fan_out(&f, request, one_by_one(&f));
	good &= command(&f);
	kill(fleet, SIGKILL);
	waitpid(fleet, NULL, 0);
	json_decref(request);
	if (!good)
		printf("outside the budget of %.0f s, or somebody waited\n", BUDGET_S);
	return good || quick ? 0 : 1;
}
