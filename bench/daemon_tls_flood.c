/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * What a flood of TLS greetings does to honest calls: a client that makes a new connection for each
 * call, as command lines do, alone and beside peers who send a ClientHello and never answer. These
 * connect by addresses of loopback; they are another user where this runs as root, else the same.
 * p50 and p99 of the honest calls that were served, how many times as long as alone, and how many
 * of those asked.
 *
 * Fails where a call beside another user's flood is not served, or its p99 is more than 20 times as
 * long. Arguments: greetings a second (default 300), calls (default 200). BENCH_QUICK: EC keys,
 * a tenth of the calls, and never fails.
 */
#include <poll.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "daemon_link.h"

#define OTHER_USER 61002
#define ADDRESSES 32 /* of loopback, by which the flood comes */
#define HELD 2048 /* connections that it keeps open */
#define CALL_TIMEOUT_S 3
#define PAUSE_MS 20 /* between two calls */
#define P99_CEILING 20 /* times as long as alone */

static const char request[] = "{\"fn\":\"getStatus\"}";

struct times {
	double p50_ms, p99_ms;
	unsigned served, asked;
};

/* --- the flood --- */

struct flood {
	pid_t pid;
	_Atomic unsigned *sent; /* shared with the child */
};

/* What a client says first, without saying it to anybody. */
static size_t make_hello(SSL_CTX *tls, char *out, size_t size)
{
	SSL *ssl = tls_client_ssl(tls, "localhost");
	BIO *from = BIO_new(BIO_s_mem()), *to = BIO_new(BIO_s_mem());

	SSL_set_bio(ssl, from, to);
	SSL_connect(ssl);
	int n = BIO_read(to, out, (int)size);
	SSL_free(ssl);
	if (n <= 0)
		bench_die("no ClientHello");
	return (size_t)n;
}

static void send_hello(const struct target *t, unsigned number, const char *hello, size_t len,
		       int *slot)
{
	if (*slot > 0)
		close(*slot);
	*slot = dial(t->port, 16 + number % ADDRESSES);
	if (*slot >= 0 && send(*slot, hello, len, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		errno = 0; /* it was refused */
}

static void run_flood(const struct target *t, unsigned rate, bool as_other, _Atomic unsigned *sent)
{
	static int held[HELD];
	char hello[4096];
	size_t len = make_hello(t->tls, hello, sizeof(hello));
	uint64_t start = bench_now_ns();

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (as_other && setuid(OTHER_USER) < 0)
		bench_die("cannot become another user");
	for (;;) {
		unsigned due = (unsigned)((double)(bench_now_ns() - start) / 1e9 * rate);

		for (; *sent < due; (*sent)++)
			send_hello(t, *sent, hello, len, &held[*sent % HELD]);
		bench_sleep_ms(2);
	}
}

static struct flood start_flood(const struct target *t, unsigned rate, bool as_other)
{
	struct flood f = {.sent = mmap(NULL, sizeof(*f.sent), PROT_READ | PROT_WRITE,
				       MAP_SHARED | MAP_ANONYMOUS, -1, 0)};

	if (f.sent == MAP_FAILED)
		bench_die("no memory");
	f.pid = fork();
	if (f.pid < 0)
		bench_die("no process");
	if (f.pid == 0)
		run_flood(t, rate, as_other, f.sent);
	while (*f.sent < rate / 2 + 1) /* the daemon has what it can take */
		bench_sleep_ms(5);
	return f;
}

static unsigned end_flood(struct flood *f)
{
	unsigned sent = *f->sent;

	kill(f->pid, SIGKILL);
	waitpid(f->pid, NULL, 0);
	munmap(f->sent, sizeof(*f->sent));
	return sent;
}

/* --- honest calls --- */

static bool call_once(const struct target *t)
{
	const struct timeval limit = {.tv_sec = CALL_TIMEOUT_S};
	struct link l = {.fd = dial(t->port, 0)};
	char reply[65536];

	if (l.fd < 0)
		return false;
	setsockopt(l.fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	l.ssl = tls_client_ssl(t->tls, "localhost");
	bool good = l.ssl && SSL_set_fd(l.ssl, l.fd) && SSL_connect(l.ssl) == 1 &&
		    write_frame(&l, request, sizeof(request) - 1) &&
		    read_frame(&l, reply, sizeof(reply));
	link_close(&l);
	return good;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static struct times call_for_a_while(const struct target *t, unsigned calls)
{
	double *ms = calloc(calls, sizeof(*ms));
	struct times r = {.asked = calls};

	for (unsigned i = 0; i < calls; i++) {
		uint64_t start = bench_now_ns();

		if (call_once(t))
			ms[r.served++] = (double)(bench_now_ns() - start) / 1e6;
		bench_sleep_ms(PAUSE_MS);
	}
	qsort(ms, r.served, sizeof(*ms), by_value);
	if (r.served) {
		r.p50_ms = ms[r.served / 2];
		r.p99_ms = ms[r.served * 99 / 100];
	}
	free(ms);
	return r;
}

static void print_times(const char *what, const struct times *t, const struct times *alone)
{
	printf("%-34s %4u of %4u calls  p50 %7.1f ms  p99 %7.1f ms", what, t->served, t->asked,
	       t->p50_ms, t->p99_ms);
	if (alone && t->served && alone->p50_ms > 0)
		printf("  %.1f and %.1f times", t->p50_ms / alone->p50_ms,
		       t->p99_ms / alone->p99_ms);
	printf("\n");
	fflush(stdout);
}

static struct times measure_beside(const struct target *t, unsigned rate, unsigned calls,
				   bool as_other, const struct times *alone)
{
	struct flood f = start_flood(t, rate, as_other);
	uint64_t start = bench_now_ns();
	unsigned before = *f.sent;
	struct times r = call_for_a_while(t, calls);
	double seconds = (double)(bench_now_ns() - start) / 1e9;
	char what[64];

	snprintf(what, sizeof(what), "beside %.0f/s of %s", (end_flood(&f) - before) / seconds,
		 as_other ? "another user" : "the same user");
	print_times(what, &r, alone);
	return r;
}

int main(int argc, char **argv)
{
	const bool quick = getenv("BENCH_QUICK");
	unsigned rate = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 300;
	unsigned calls = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : quick ? 20 : 200;
	char certs[96], server[112];
	struct daemon_child d;
	bool good = true;

	if (!rate || !calls) {
		fprintf(stderr, "daemon_tls_flood: greetings and calls are numbers above 0\n");
		return 2;
	}
	signal(SIGPIPE, SIG_IGN);
	daemon_child_init(&d);
	snprintf(certs, sizeof(certs), "%s/certs", d.dir);
	snprintf(server, sizeof(server), "%s/server-bench", certs);
	SSL_CTX *tls = make_certs(certs, quick ? "ec" : "rsa");
	daemon_child_start(&d, (const char *const[]){"--nohttp", "--certs-dir", server, NULL});
	struct target t = {.name = "daemon", .pid = d.pid, .port = d.port, .tls = tls};
	struct times alone = call_for_a_while(&t, calls);
	print_times(quick ? "alone, EC keys" : "alone, RSA keys", &alone, NULL);
	if (geteuid() == 0) {
		struct times r = measure_beside(&t, rate, calls, true, &alone);

		good = r.served == r.asked && r.p99_ms <= P99_CEILING * alone.p99_ms;
	}
	measure_beside(&t, rate, calls, false, &alone);
	SSL_CTX_free(tls);
	remove_certs(certs);
	daemon_child_end(&d);
	if (!good)
		printf("above the budget: every call is served, p99 within %d times\n",
		       P99_CEILING);
	return good || quick ? 0 : 1;
}
