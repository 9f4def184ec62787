/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * How soon the daemon answers processes that ask for their config in the same millisecond, as the
 * ranks of a job do. Each client is a thread with a socket of its own; the time of all of them runs
 * from the first attempt of any to send until each has its answer. A client that finds the queue of
 * the daemon full tries again after 10 ms, 20 ms and so on, as libkineto does. Meanwhile another
 * thread makes RPC calls, and the daemon samples the host every second.
 *
 * Beside it, in the same run: a loop that takes one datagram and then sleeps for 10 ms. Its clients
 * wait until there is room instead; else most would give up.
 *
 * p50 and p100 are medians over the rounds, "worst" is that of all rounds. Fails above 5 ms p100
 * with 64 clients, 20 ms with 256, 100 us p50 with one. Arguments: rounds (default 20).
 * BENCH_QUICK: few rounds, and never fails.
 */
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

#include "daemon_child.h"

#define CLIENTS_MAX 256
#define SINGLE 2000
#define STACK_BYTES 65536
#define GIVE_UP_MS 10000
#define RETRY_MS 10
#define RPC_PAUSE_MS 1

struct bench;

struct client {
	struct bench *bench;
	pthread_t thread;
	int fd;
	struct bench_request request;
	uint64_t first_ns, done_ns; /* of the last round; done_ns 0: not answered */
};

struct bench {
	const struct sockaddr_un *server;
	socklen_t server_len;
	struct client clients[CLIENTS_MAX];
	unsigned nclients;
	pthread_barrier_t start, end;
	bool waits; /* clients wait in their send calls while the queue is full */
	atomic_bool over;
	atomic_uint refused; /* attempts to send that found the queue full */
	/* the RPC beside it */
	unsigned port;
	unsigned rpc_calls;
	uint64_t rpc_worst_ns;
};

struct times {
	double p50_us, p100_us;
};

struct summary {
	struct times median;
	double worst_us;
	double spread_us; /* between the first attempts of a round, median */
};

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static double median(double *values, size_t n)
{
	qsort(values, n, sizeof(*values), by_value);
	return values[n / 2];
}

/* --- one client --- */

static void send_request(struct client *c)
{
	struct bench *b = c->bench;
	int flags = b->waits ? 0 : MSG_DONTWAIT;

	for (unsigned ms = RETRY_MS; sendto(c->fd, &c->request, sizeof(c->request), flags,
					    (const struct sockaddr *)b->server, b->server_len) < 0;
	     ms *= 2) {
		if (errno != EAGAIN || ms > GIVE_UP_MS)
			bench_die("cannot send");
		b->refused++;
		bench_sleep_ms(ms);
	}
}

static void ask(struct client *c)
{
	char answer[4096];
	struct pollfd p = {.fd = c->fd, .events = POLLIN};

	c->done_ns = 0;
	c->first_ns = bench_now_ns();
	send_request(c);
	if (poll(&p, 1, GIVE_UP_MS) == 1 && recv(c->fd, answer, sizeof(answer), 0) >= 40)
		c->done_ns = bench_now_ns();
}

static void *client_main(void *arg)
{
	struct client *c = arg;
	struct bench *b = c->bench;

	for (;;) {
		pthread_barrier_wait(&b->start);
		if (b->over)
			return NULL;
		ask(c);
		pthread_barrier_wait(&b->end);
	}
}

/* --- all of them --- */

static void clients_start(struct bench *b, unsigned n)
{
	pthread_attr_t attr;

	b->nclients = n;
	b->over = false;
	pthread_barrier_init(&b->start, NULL, n + 1);
	pthread_barrier_init(&b->end, NULL, n + 1);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	for (unsigned i = 0; i < n; i++) {
		struct client *c = &b->clients[i];

		c->bench = b;
		c->fd = bench_client_socket(i);
		bench_request_init(&c->request, (int32_t)(100000 + i));
		if (pthread_create(&c->thread, &attr, client_main, c))
			bench_die("cannot start a thread");
	}
	pthread_attr_destroy(&attr);
}

static void clients_end(struct bench *b)
{
	b->over = true;
	pthread_barrier_wait(&b->start);
	for (unsigned i = 0; i < b->nclients; i++) {
		pthread_join(b->clients[i].thread, NULL);
		close(b->clients[i].fd);
	}
	pthread_barrier_destroy(&b->start);
	pthread_barrier_destroy(&b->end);
}

static struct times one_round(struct bench *b, double *out_spread_us)
{
	double us[CLIENTS_MAX];
	uint64_t first = UINT64_MAX, last = 0;

	pthread_barrier_wait(&b->start);
	pthread_barrier_wait(&b->end);
	for (unsigned i = 0; i < b->nclients; i++) {
		uint64_t at = b->clients[i].first_ns;

		first = at < first ? at : first;
		last = at > last ? at : last;
	}
	for (unsigned i = 0; i < b->nclients; i++) {
		if (!b->clients[i].done_ns)
			bench_die("a client was not answered");
		us[i] = (double)(b->clients[i].done_ns - first) / 1e3;
	}
	*out_spread_us = (double)(last - first) / 1e3;
	qsort(us, b->nclients, sizeof(*us), by_value);
	return (struct times){us[b->nclients / 2], us[b->nclients - 1]};
}

static struct summary burst(struct bench *b, unsigned clients, unsigned rounds)
{
	double *p50 = calloc(rounds, sizeof(double)), *p100 = calloc(rounds, sizeof(double));
	double *spread = calloc(rounds, sizeof(double));
	struct summary s = {0};

	clients_start(b, clients);
	if (rounds > 1)
		one_round(b, spread); /* the first of all registers them */
	for (unsigned i = 0; i < rounds; i++) {
		struct times t = one_round(b, &spread[i]);

		p50[i] = t.p50_us;
		p100[i] = t.p100_us;
		s.worst_us = t.p100_us > s.worst_us ? t.p100_us : s.worst_us;
		bench_sleep_ms(20);
	}
	clients_end(b);
	s.median = (struct times){median(p50, rounds), median(p100, rounds)};
	s.spread_us = median(spread, rounds);
	free(p50);
	free(p100);
	free(spread);
	return s;
}

static struct times single(struct bench *b, unsigned n)
{
	struct client c = {.bench = b, .fd = bench_client_socket(CLIENTS_MAX)};
	double *us = calloc(n, sizeof(double));

	bench_request_init(&c.request, (int32_t)getpid());
	ask(&c);
	for (unsigned i = 0; i < n; i++) {
		ask(&c);
		us[i] = (double)(c.done_ns - c.first_ns) / 1e3;
	}
	close(c.fd);
	struct times t = {.p50_us = median(us, n), .p100_us = us[n - 1]};
	free(us);
	return t;
}

/* --- what goes on meanwhile --- */

static void *rpc_main(void *arg)
{
	struct bench *b = arg;
	int fd = bench_rpc_connect(b->port);
	char reply[65536];

	while (!b->over || b->nclients) {
		uint64_t start = bench_now_ns();

		if (!bench_rpc_call(fd, "{\"fn\":\"getStatus\"}", reply, sizeof(reply)))
			bench_die("a call failed");
		uint64_t took = bench_now_ns() - start;
		b->rpc_worst_ns = took > b->rpc_worst_ns ? took : b->rpc_worst_ns;
		b->rpc_calls++;
		bench_sleep_ms(RPC_PAUSE_MS);
	}
	close(fd);
	return NULL;
}

/* One datagram, then 10 ms of sleep: how daemons without events serve. */
static pid_t start_sleeper(const struct sockaddr_un *address, socklen_t len)
{
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || bind(fd, (const struct sockaddr *)address, len) < 0)
		bench_die("cannot bind the baseline");
	pid_t pid = fork();
	if (pid) {
		close(fd);
		return pid;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;) {
		struct fabric_header answer;
		struct sockaddr_un from;
		socklen_t from_len = sizeof(from);
		char datagram[4096];

		if (recvfrom(fd, datagram, sizeof(datagram), MSG_DONTWAIT, (struct sockaddr *)&from,
			     &from_len) >= 0) {
			fabric_header_init(&answer, "req", 0);
			sendto(fd, &answer, sizeof(answer), MSG_DONTWAIT, (struct sockaddr *)&from,
			       from_len);
		}
		bench_sleep_ms(10);
	}
}

/* --- lines --- */

static bool tell(const char *who, unsigned clients, struct summary s, double base_us,
		 double budget_us)
{
	printf("%-8s %3u clients  p50 %9.0f us  p100 %9.0f us  worst %9.0f us  (sent within "
	       "%.0f us)",
	       who, clients, s.median.p50_us, s.median.p100_us, s.worst_us, s.spread_us);
	if (base_us > 0)
		printf("  %.0f times sooner", base_us / s.median.p100_us);
	printf("\n");
	fflush(stdout);
	if (budget_us <= 0 || s.median.p100_us <= budget_us)
		return true;
	printf("above the budget of %.0f us\n", budget_us);
	return false;
}

static void measure_baseline(struct bench *b, const char *dir, unsigned rounds, double *out_p100)
{
	struct sockaddr_un address;
	socklen_t len;
	char path[96];

	snprintf(path, sizeof(path), "%s/sleeper", dir);
	fabric_path_address(path, &address, &len);
	b->server = &address;
	b->server_len = len;
	b->waits = true;
	pid_t pid = start_sleeper(&address, len);
	struct summary few = burst(b, 64, rounds), many = burst(b, 256, 1);
	struct times one = single(b, 20);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	unlink(path);
	printf("%-8s   1 client   p50 %9.0f us\n", "baseline", one.p50_us);
	tell("baseline", 64, few, 0, 0);
	tell("baseline", 256, many, 0, 0);
	out_p100[0] = few.median.p100_us;
	out_p100[1] = many.median.p100_us;
}

static bool measure_daemon(struct bench *b, unsigned rounds, const double *base_p100)
{
	struct times one = single(b, SINGLE);
	bool good = one.p50_us <= 100;

	printf("%-8s   1 client   p50 %9.1f us  p100 %9.0f us%s\n", "daemon", one.p50_us,
	       one.p100_us, good ? "" : "  above the budget of 100 us");
	good &= tell("daemon", 64, burst(b, 64, rounds), base_p100[0], 5000);
	good &= tell("daemon", 256, burst(b, 256, rounds), base_p100[1], 20000);
	return good;
}

int main(int argc, char **argv)
{
	static const char *const options[] = {"--nohttp", "--kernel-monitor-reporting-interval-s",
					      "1", NULL};
	bool quick = getenv("BENCH_QUICK");
	unsigned rounds = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : quick ? 5 : 20;
	static struct bench b;
	struct daemon_child d;
	double base_p100[2];
	pthread_t rpc;

	if (!rounds || rounds > INT_MAX)
		bench_die("rounds must be a number above 0");
	daemon_child_init(&d);
	daemon_child_start(&d, options);
	measure_baseline(&b, d.dir, quick ? 1 : 3, base_p100);
	b.waits = false;
	b.server = &d.address;
	b.server_len = d.address_len;
	b.port = d.port;
	pthread_create(&rpc, NULL, rpc_main, &b);
	uint64_t start = bench_now_ns();
	bool good = measure_daemon(&b, rounds, base_p100);
	double seconds = (double)(bench_now_ns() - start) / 1e9;
	b.nclients = 0;
	pthread_join(rpc, NULL);
	printf("%u attempts found the queue of the daemon full\n", b.refused);
	printf("meanwhile: %.0f RPC calls/s, the slowest took %.0f us\n", b.rpc_calls / seconds,
	       (double)b.rpc_worst_ns / 1e3);
	daemon_child_end(&d);
	return good || quick ? 0 : 1;
}
