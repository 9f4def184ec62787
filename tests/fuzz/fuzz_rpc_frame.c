/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * A whole RPC server over bytes of a peer, on a pair of sockets instead of a network. The first
 * byte says in how many pieces they arrive: however they are cut, the same replies must come back.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/containers/buf.h"
#include "base/mem.h"
#include "daemon/jobs/jobs.h"
#include "daemon/rpc/rpc_impl.h"
#include "net/rpc_frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MAX_BYTES 65536
#define MAX_ROUNDS 100000

/* The daemon with nothing but a server that listens nowhere. */
static struct daemon *make_daemon(void)
{
	static struct daemon_config config;
	static struct daemon d;
	static struct rpc_server server;

	if (d.base)
		return &d;
	d.base = event_base_new();
	BUG_ON(!d.base || event_base_priority_init(d.base, DAEMON_PRIORITIES) < 0);
	d.config = &config;
	d.jobs = jobs_new(d.base, 16);
	BUG_ON(access_new(&config, &d.access, NULL) < 0);
	d.rpc = &server;
	rpc_server_init(&server, &d);
	return &d;
}

static void read_replies(int fd, struct buf *out)
{
	for (;;) {
		ssize_t n = recv(fd, buf_room(out, 4096), 4096, MSG_DONTWAIT);

		if (n <= 0)
			return;
		out->len += (size_t)n;
	}
}

static unsigned alive(const struct rpc_server *s)
{
	return s->counts[RPC_IDLE] + s->counts[RPC_BUSY];
}

/* Lets the server do all it can. */
static void settle(struct daemon *d, int peer, struct buf *replies)
{
	for (int quiet = 0; quiet < 2;) {
		size_t before = replies->len;

		event_base_loop(d->base, EVLOOP_NONBLOCK);
		read_replies(peer, replies);
		quiet = replies->len == before && TAILQ_EMPTY(&d->rpc->later.conns) ? quiet + 1 : 0;
	}
}

/* What comes back for these bytes in pieces of that size. */
static void talk(struct daemon *d, const uint8_t *data, size_t size, size_t piece, struct buf *out)
{
	int pair[2];
	size_t sent = 0;

	BUG_ON(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) < 0);
	rpc_server_admit(d->rpc, pair[0]);
	for (unsigned round = 0; sent < size && alive(d->rpc); round++) {
		size_t want = size - sent < piece ? size - sent : piece;
		ssize_t n = send(pair[1], data + sent, want, MSG_NOSIGNAL);

		BUG_ON(round > MAX_ROUNDS);
		if (n < 0 && errno != EAGAIN)
			break;
		sent += n > 0 ? (size_t)n : 0;
		settle(d, pair[1], out);
	}
	shutdown(pair[1], SHUT_WR);
	settle(d, pair[1], out);
	BUG_ON(alive(d->rpc));
	close(pair[1]);
}

/* Whole frames, and nothing else. Their bodies tell times and counts, which differ. */
static size_t count_frames(const struct buf *replies)
{
	const char *body;
	size_t at = 0, frames = 0, bytes;

	while (at < replies->len) {
		BUG_ON(rpc_frame_find(replies->data + at, replies->len - at, RPC_REPLY_MAX, &body,
				      &bytes) != 1);
		at += RPC_LENGTH_BYTES + bytes;
		frames++;
	}
	return frames;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct daemon *d = make_daemon();
	struct buf whole = {0}, pieces = {0};

	if (size < 2 || size > MAX_BYTES)
		return 0;
	size_t piece = 1 + data[0];
	talk(d, data + 1, size - 1, size, &whole);
	talk(d, data + 1, size - 1, piece, &pieces);
	BUG_ON(count_frames(&whole) != count_frames(&pieces));
	buf_release(&whole);
	buf_release(&pieces);
	return 0;
}
