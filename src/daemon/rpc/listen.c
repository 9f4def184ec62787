/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The listening sockets: addresses, one port for all of them, and words when one cannot be had. */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LOG_AREA "rpc"
#include "base/log.h"
#include "daemon/rpc/peer_owner.h"
#include "daemon/rpc/rpc_impl.h"
#include "net/address.h"

#define SEND_BYTES (128 << 10) /* kept by the kernel for one connection */
#define RECEIVE_BYTES (64 << 10)
#define PORT_TRIES 16 /* a port that the kernel chose may be taken at another address */

union address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
	struct sockaddr_storage room;
};

static void name_listener(struct rpc_listener *l, struct rpc_server *s)
{
	union address a = {0};
	socklen_t len = sizeof(a);

	if (getsockname(l->fd, &a.any, &len) < 0 || !address_text(&a.any, len, l->name)) {
		snprintf(l->name, sizeof(l->name), "descriptor %d", l->fd);
		return;
	}
	if (!s->port)
		s->port = address_port(&a.any);
}

static void add_listener(struct rpc_server *s, int fd)
{
	struct rpc_listener *l = &s->listeners[s->nlisteners++];
	const int on = 1, send_bytes = SEND_BYTES, receive_bytes = RECEIVE_BYTES;

	/* Connections inherit all this, which saves system calls for each. Without the sizes, the
	 * kernel would keep megabytes of replies for a peer that does not read. */
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &send_bytes, sizeof(send_bytes));
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof(receive_bytes));
	l->fd = fd;
	name_listener(l, s);
}

static void close_all(struct rpc_server *s)
{
	while (s->nlisteners)
		close(s->listeners[--s->nlisteners].fd);
	s->port = 0;
}

static int explain_bind(int error, const char *host, unsigned port, struct err *err)
{
	char owner[80];

	if (error == EADDRINUSE) {
		rpc_owner(port, owner, sizeof(owner));
		return err_set(err, -error,
			       "cannot listen on '%s' port %u: %s has it (see: ss -ltnp 'sport = "
			       ":%u'); stop it, or choose another port with --port",
			       host, port, owner, port);
	}
	if (error == EACCES)
		return err_set(
			err, -error,
			"cannot listen on '%s' port %u: only root may have ports below 1024; "
			"choose another with --port",
			host, port);
	if (error == EADDRNOTAVAIL)
		return err_set(err, -error,
			       "cannot listen on '%s': it is no address of this machine (see: ip "
			       "address); choose one with --bind",
			       host);
	return err_sys(err, -error, "cannot listen on '%s' port %u", host, port);
}

/* dual: an IPv6 wildcard takes IPv4 connections, too. */
static int listen_one(struct rpc_server *s, const struct addrinfo *ai, const char *host, bool dual,
		      struct err *err)
{
	const int on = 1, only = !dual;
	union address a = {0};

	memcpy(&a, ai->ai_addr, ai->ai_addrlen);
	unsigned port = s->port ? s->port : s->daemon->config->port;
	if (ai->ai_family == AF_INET)
		a.v4.sin_port = htons((uint16_t)port);
	else
		a.v6.sin6_port = htons((uint16_t)port);
	int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return explain_bind(errno, host, port, err);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (ai->ai_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof(only));
	if (bind(fd, &a.any, ai->ai_addrlen) < 0 || listen(fd, SOMAXCONN) < 0) {
		int error = errno;

		close(fd);
		return explain_bind(error, host, port, err);
	}
	add_listener(s, fd);
	if (!s->daemon->tls && !address_is_loopback(&a.any))
		log_warn("'%s' is reached from outside and there are no certificates: whoever "
			 "reaches the port can have every job traced; make some with: sonde certs",
			 host);
	return 0;
}

static struct addrinfo *resolve(const char *host, struct err *err)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
	struct addrinfo *found = NULL;
	char bare[256];
	size_t len = strlen(host);

	/* "[::1]", as it stands in front of a port elsewhere */
	if (len > 2 && len < sizeof(bare) && host[0] == '[' && host[len - 1] == ']') {
		memcpy(bare, host + 1, len - 2);
		bare[len - 2] = '\0';
		host = bare;
	}
	int r = getaddrinfo(host, "0", &hints, &found);
	if (r) {
		err_set(err, -EINVAL,
			"cannot listen on '%s': %s; --bind takes addresses of this "
			"machine",
			host, gai_strerror(r));
		return NULL;
	}
	return found;
}

/* Every address of a name. */
static int listen_host(struct rpc_server *s, const char *host, bool dual, struct err *err)
{
	struct addrinfo *found = resolve(host, err);
	int r = found ? 0 : -EINVAL;

	for (struct addrinfo *ai = found; ai && r == 0; ai = ai->ai_next) {
		if (ai->ai_family != AF_INET && ai->ai_family != AF_INET6)
			continue;
		if (s->nlisteners == RPC_MAX_LISTENERS)
			r = err_set(err, -E2BIG, "cannot listen on more than %d addresses",
				    RPC_MAX_LISTENERS);
		else
			r = listen_one(s, ai, host, dual, err);
	}
	if (found)
		freeaddrinfo(found);
	return r;
}

static bool no_such_family(int r)
{
	return r == -EAFNOSUPPORT || r == -EADDRNOTAVAIL || r == -EPROTONOSUPPORT;
}

/* What --bind asks for: all of it must be had. */
static int listen_asked(struct rpc_server *s, struct err *err)
{
	const char *const *binds = s->daemon->config->binds;
	bool dual = true;
	int r = 0;

	/* beside an IPv4 address, the IPv6 wildcard would be in its way */
	for (int i = 0; binds[i]; i++)
		dual &= !strchr(binds[i], '.');
	for (int i = 0; binds[i] && r == 0; i++)
		r = listen_host(s, binds[i], dual, err);
	return r;
}

/* Without --bind: this machine alone, or with certificates everybody. */
static int listen_default(struct rpc_server *s, struct err *err)
{
	bool open = s->daemon->tls;
	int r = open ? listen_host(s, "::", true, err) : listen_host(s, "127.0.0.1", false, err);

	if (open)
		return no_such_family(r) ? listen_host(s, "0.0.0.0", false, err) : r;
	if (r < 0)
		return r;
	r = listen_host(s, "::1", false, err);
	return no_such_family(r) ? 0 : r; /* many machines have no IPv6 */
}

int rpc_listen(struct rpc_server *s, struct err *err)
{
	int r = 0;

	for (int tries = 0; tries < PORT_TRIES; tries++) {
		r = s->daemon->config->binds[0] ? listen_asked(s, err) : listen_default(s, err);
		if (r == 0)
			return 0;
		close_all(s);
		if (r != -EADDRINUSE || s->daemon->config->port)
			break;
	}
	return r;
}

void rpc_listen_inherited(struct rpc_server *s, const int *fds, int nfds)
{
	for (int i = 0; i < nfds && i < RPC_MAX_LISTENERS; i++)
		add_listener(s, fds[i]);
}
