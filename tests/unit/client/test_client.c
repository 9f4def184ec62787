/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The client against peers that are not what they should be: each has its outcome, and words. */
#include "client/client.h"

#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "test.h"

#define TIMEOUT_MS 300

struct peer {
	pthread_t thread;
	int listener;
	unsigned port;
	const char *says; /* NULL: nothing; then the connection ends */
	size_t bytes;
	unsigned connections; /* to serve */
};

static void *serve(void *arg)
{
	struct peer *p = arg;
	char question[512];

	for (unsigned i = 0; i < p->connections; i++) {
		int fd = accept(p->listener, NULL, NULL);

		CHECK(read(fd, question, sizeof(question)) > 0);
		if (p->says)
			CHECK(write(fd, p->says, p->bytes) == (ssize_t)p->bytes);
		close(fd);
	}
	return NULL;
}

/* connections 0: it listens and is silent. */
static void peer_start(struct peer *p, const char *says, size_t bytes, unsigned connections)
{
	struct sockaddr_in at = {.sin_family = AF_INET};
	socklen_t len = sizeof(at);

	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	*p = (struct peer){.says = says, .bytes = bytes, .connections = connections};
	p->listener = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(bind(p->listener, (struct sockaddr *)&at, sizeof(at)) == 0);
	CHECK(listen(p->listener, 8) == 0);
	CHECK(getsockname(p->listener, (struct sockaddr *)&at, &len) == 0);
	p->port = ntohs(at.sin_port);
	if (connections)
		CHECK(pthread_create(&p->thread, NULL, serve, p) == 0);
}

static void peer_end(struct peer *p)
{
	if (p->connections)
		pthread_join(p->thread, NULL);
	close(p->listener);
}

static struct client_call ask(const char *host, unsigned port)
{
	static const struct client_options options = {.timeout_ms = TIMEOUT_MS};
	json_t *request = json_pack("{ss}", "fn", "getStatus");
	struct client_call call = {.host = host, .port = port, .request = request};
	struct err err = {0};

	CHECK_INT(client_run(&call, 1, &options, &err), 0);
	json_decref(request);
	return call;
}

static void check_says(const char *says, size_t bytes, int code, const char *words)
{
	struct peer p;

	peer_start(&p, says, bytes, 1);
	struct client_call call = ask("127.0.0.1", p.port);
	CHECK_INT(call.err.code, code);
	CHECK(!call.reply);
	CHECK(strstr(call.err.text, words));
	peer_end(&p);
}

TEST(client, gives_the_reply_as_it_came)
{
	struct peer p;

	peer_start(&p, "\x08\0\0\0{\"a\": 1}", 12, 1);
	struct client_call call = ask("127.0.0.1", p.port);
	CHECK_INT(call.err.code, 0);
	CHECK_INT(call.reply_bytes, 8);
	CHECK_STR(call.reply, "{\"a\": 1}");
	client_call_release(&call);
	CHECK(!call.reply);
	peer_end(&p);
}

TEST(client, tries_every_address_of_a_name)
{
	struct peer p; /* on 127.0.0.1 alone; localhost may be ::1 first */

	peer_start(&p, "\x02\0\0\0{}", 6, 1);
	struct client_call call = ask("localhost", p.port);
	CHECK_INT(call.err.code, 0);
	client_call_release(&call);
	peer_end(&p);
}

TEST(client, says_what_to_do_when_nobody_listens)
{
	struct peer p;

	peer_start(&p, NULL, 0, 0);
	peer_end(&p); /* a port that was just free */
	struct client_call call = ask("127.0.0.1", p.port);
	CHECK_INT(call.err.code, -ECONNREFUSED);
	CHECK(strstr(call.err.text, "sonde daemon"));
}

TEST(client, gives_up_on_a_silent_peer)
{
	struct peer p;

	peer_start(&p, NULL, 0, 0);
	struct client_call call = ask("127.0.0.1", p.port);
	CHECK_INT(call.err.code, -ETIMEDOUT);
	CHECK(strstr(call.err.text, "did not answer within 0.3 s"));
	CHECK(call.seconds > TIMEOUT_MS / 2000.0);
	peer_end(&p);
}

TEST(client, tells_how_an_answer_is_missing)
{
	check_says(NULL, 0, -ECONNRESET, "closed the connection without an answer");
	check_says("\x10\0\0\0{\"a\"", 8, -ECONNRESET, "in the middle of its answer");
	check_says("\x15\x03\x03\0\x02\x02\x46", 7, -ECONNRESET, "--certs-dir");
	check_says("\0\0\0\0", 4, -EBADMSG, "check the port");
	check_says("\xff\xff\xff\xff{}", 6, -EBADMSG, "check the port");
	check_says("HTTP/1.1 400 Bad Request\r\n", 26, -EBADMSG, "check the port");
}

TEST(client, a_name_that_is_none)
{
	struct client_call call = ask("no such name", 1);

	/* a name service that is silent is out of time */
	CHECK(call.err.code == -EHOSTUNREACH || call.err.code == -ETIMEDOUT);
	CHECK(strstr(call.err.text, "no such name"));
}

TEST(client, a_request_that_is_too_long)
{
	static const struct client_options options = {.timeout_ms = TIMEOUT_MS};
	static char config[9000];
	struct err err = {0};

	memset(config, 'x', sizeof(config) - 1);
	json_t *request = json_pack("{ss ss}", "fn", "setKinetOnDemandRequest", "config", config);
	struct client_call call = {.host = "127.0.0.1", .port = 1, .request = request};
	CHECK_INT(client_run(&call, 1, &options, &err), 0);
	CHECK_INT(call.err.code, -EMSGSIZE);
	json_decref(request);
}

struct order {
	unsigned n;
	size_t ports[4];
};

static void note(void *arg, struct client_call *call)
{
	struct order *o = arg;

	o->ports[o->n++] = call->port;
}

TEST(client, nobody_waits_for_the_silent_one)
{
	struct peer silent, good;
	struct order order = {0};
	struct err err = {0};
	struct client_options options = {.timeout_ms = TIMEOUT_MS, .done = note, .arg = &order};
	json_t *request = json_pack("{ss}", "fn", "getStatus");

	peer_start(&silent, NULL, 0, 0);
	peer_start(&good, "\x02\0\0\0{}", 6, 3);
	struct client_call calls[4] = {{.port = silent.port},
				       {.port = good.port},
				       {.port = good.port},
				       {.port = good.port}};
	for (int i = 0; i < 4; i++) {
		calls[i].host = "127.0.0.1";
		calls[i].request = request;
	}
	CHECK_INT(client_run(calls, 4, &options, &err), 0);
	CHECK_INT(order.n, 4);
	CHECK_INT(order.ports[3], silent.port);
	for (int i = 1; i < 4; i++)
		CHECK_INT(calls[i].err.code, 0);
	for (int i = 0; i < 4; i++)
		client_call_release(&calls[i]);
	json_decref(request);
	peer_end(&silent);
	peer_end(&good);
}

TEST(client, as_many_at_a_time_as_asked_for)
{
	struct peer good;
	struct err err = {0};
	struct client_options options = {.timeout_ms = 5000, .max_in_flight = 1};
	json_t *request = json_pack("{ss}", "fn", "getStatus");
	struct client_call calls[16];

	peer_start(&good, "\x02\0\0\0{}", 6, 16);
	for (int i = 0; i < 16; i++)
		calls[i] = (struct client_call){
			.host = "127.0.0.1", .port = good.port, .request = request};
	CHECK_INT(client_run(calls, 16, &options, &err), 0);
	for (int i = 0; i < 16; i++) {
		CHECK_INT(calls[i].err.code, 0);
		client_call_release(&calls[i]);
	}
	json_decref(request);
	peer_end(&good);
}
