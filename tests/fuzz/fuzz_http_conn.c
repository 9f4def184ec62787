/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * HTTP connections with everything behind them, on a pair of sockets instead of a network. The
 * first byte says in how many pieces the bytes of the peer arrive, and whether it is the port for
 * Prometheus: however they are cut, the same replies must come back, each of them whole.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/containers/buf.h"
#include "base/mem.h"
#include "daemon/http/http_impl.h"
#include "daemon/jobs/jobs.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MAX_BYTES 65536
#define MAX_ROUNDS 100000
#define MAX_REPLIES 4096

static struct http_server server;

/* The daemon with nothing but jobs and a server that listens nowhere. */
static void make_server(void)
{
	static struct daemon_config config;
	static struct daemon d;

	if (!d.base) {
		d.base = event_base_new();
		BUG_ON(!d.base || event_base_priority_init(d.base, DAEMON_PRIORITIES) < 0);
		d.config = &config;
		d.jobs = jobs_new(d.base, 16);
		BUG_ON(access_new(&config, &d.access, NULL) < 0);
		d.http = &server;
		server.d = &d;
	}
}

/* --- the peer --- */

static void read_replies(int fd, struct buf *out)
{
	for (;;) {
		ssize_t n = recv(fd, buf_room(out, 4096), 4096, MSG_DONTWAIT);

		if (n <= 0)
			return;
		out->len += (size_t)n;
	}
}

/* Lets the server do all it can. */
static void settle(int peer, struct buf *replies)
{
	for (int quiet = 0; quiet < 2;) {
		size_t before = replies->len;

		event_base_loop(server.d->base, EVLOOP_NONBLOCK);
		read_replies(peer, replies);
		quiet = replies->len == before ? quiet + 1 : 0;
	}
}

/* What comes back for these bytes in pieces of that size. */
static void talk(bool metrics_only, const uint8_t *data, size_t size, size_t piece, struct buf *out)
{
	int pair[2];
	size_t sent = 0;
	unsigned round = 0;

	BUG_ON(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) < 0);
	struct caller caller = access_identify(server.d->access, pair[0]);
	http_conn_new(&server, metrics_only, pair[0], NULL, &caller);
	for (; sent < size && server.nconns; round++) {
		size_t want = size - sent < piece ? size - sent : piece;
		ssize_t n = send(pair[1], data + sent, want, MSG_NOSIGNAL);

		BUG_ON(round > MAX_ROUNDS);
		if (n < 0 && errno != EAGAIN)
			break;
		sent += n > 0 ? (size_t)n : 0;
		settle(pair[1], out);
	}
	for (int more = 0; more < 16; more++) /* what was sent at once is not read at once */
		settle(pair[1], out);
	shutdown(pair[1], SHUT_WR);
	for (; server.nconns; round++) {
		settle(pair[1], out);
		BUG_ON(round > MAX_ROUNDS);
	}
	read_replies(pair[1], out);
	close(pair[1]);
}

/* --- its replies --- */

/* A header that must be there, once. */
static const char *value_of(const char *head, const char *name)
{
	const char *at = strstr(head, name);

	BUG_ON(!at || strstr(at + 1, name));
	return at + strlen(name);
}

static void check_head(const char *head)
{
	for (const char *line = head; *line;) {
		const char *end = strstr(line, "\r\n");

		BUG_ON(!end || end == line);
		BUG_ON(line != head && !memmem(line, (size_t)(end - line), ": ", 2));
		for (; line < end; line++)
			BUG_ON((unsigned char)*line < ' ' || (unsigned char)*line > '~');
		line = end + 2;
	}
}

static void check_body(const char *head, int status, const char *body, size_t bytes)
{
	static const char json[] = "application/json\r\n";
	bool is_json = !strncmp(value_of(head, "Content-Type: "), json, sizeof(json) - 1);

	if (status != 200)
		BUG_ON(!is_json);
	if (!is_json)
		return;
	json_t *o = json_loadb(body, bytes, JSON_REJECT_DUPLICATES, NULL);
	BUG_ON(!json_is_object(o));
	BUG_ON(status != 200 && !json_string_value(json_object_get(o, "error")));
	json_decref(o);
}

/* The bytes of one reply. *out_status is 0 for an interim one. */
static size_t take_reply(const char *at, size_t len, int *out_status)
{
	size_t head_bytes = http_head_length(at, len);

	BUG_ON(!head_bytes || strncmp(at, "HTTP/1.1 ", 9));
	*out_status = (int)strtol(at + 9, NULL, 10);
	if (*out_status == 100) {
		*out_status = 0;
		return head_bytes;
	}
	BUG_ON(*out_status < 200 || *out_status > 505);
	char *head = xstrndup(at, head_bytes - 2);
	check_head(head);
	size_t bytes = strtoul(value_of(head, "Content-Length: "), NULL, 10), left;
	/* the one to HEAD has no body, and no body of ours begins like a reply */
	left = len - head_bytes;
	bool has_body = left && (left < 9 || strncmp(at + head_bytes, "HTTP/1.1 ", 9));
	if (has_body) {
		BUG_ON(bytes > left);
		check_body(head, *out_status, at + head_bytes, bytes);
	}
	free(head);
	return head_bytes + (has_body ? bytes : 0);
}

static size_t read_statuses(const struct buf *replies, int *out)
{
	size_t at = 0, n = 0;

	while (at < replies->len && n < MAX_REPLIES) {
		at += take_reply(replies->data + at, replies->len - at, &out[n]);
		n += out[n] != 0; /* whether the peer was waited for depends on the pieces */
	}
	return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static int of_whole[MAX_REPLIES], of_pieces[MAX_REPLIES];
	struct buf whole = {0}, pieces = {0};

	if (size < 2 || size > MAX_BYTES)
		return 0;
	make_server();
	size_t piece = 1 + data[0] / 2;
	talk(data[0] & 1, data + 1, size - 1, size, &whole);
	talk(data[0] & 1, data + 1, size - 1, piece, &pieces);
	size_t n = read_statuses(&whole, of_whole);
	BUG_ON(n != read_statuses(&pieces, of_pieces));
	BUG_ON(memcmp(of_whole, of_pieces, n * sizeof(of_whole[0])));
	buf_release(&whole);
	buf_release(&pieces);
	return 0;
}
