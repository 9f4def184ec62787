/* SPDX-License-Identifier: MulanPSL-2.0 */
/* The listening sockets: addresses, one port for all of them, and errors that say what to do. */
#define LOG_AREA "rpc"

#include <dirent.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "daemon/rpc/rpc_impl.h"
#include "net/address.h"

#define SEND_BYTES (128 << 10) /* kept by the kernel for one connection */
#define RECEIVE_BYTES (64 << 10)
#define LISTENING 0x0a /* state in /proc/net/tcp */
#define PORT_TRIES 16 /* a port that the kernel chose may be taken at another address */

/* --- who listens on a port, for the words of an error --- */

/* The inode of a socket that listens on the port; 0: none in this table. */
static unsigned long listening_inode(const char *table, unsigned port)
{
	FILE *f = fopen(table, "re");
	unsigned long inode, found = 0;
	unsigned local, state;
	char line[512];

	while (f && !found && fgets(line, sizeof(line), f))
		if (sscanf(line, " %*u: %*[0-9A-F]:%x %*s %x %*s %*s %*s %*u %*u %lu", &local,
			   &state, &inode) == 3 &&
		    local == port && state == LISTENING)
			found = inode;
	if (f)
		fclose(f);
	return found;
}

static bool has_open(const char *pid, const char *socket)
{
	char path[300], target[64];
	struct dirent *e;
	bool found = false;

	snprintf(path, sizeof(path), "/proc/%s/fd", pid);
	DIR *fds = opendir(path);
	while (fds && !found && (e = readdir(fds))) {
		ssize_t n = readlinkat(dirfd(fds), e->d_name, target, sizeof(target) - 1);

		target[n > 0 ? n : 0] = '\0';
		found = !strcmp(target, socket);
	}
	if (fds)
		closedir(fds);
	return found;
}

static void describe_process(const char *pid, char *out, size_t size)
{
	char path[300], name[32] = "";

	snprintf(path, sizeof(path), "/proc/%s/comm", pid);
	FILE *f = fopen(path, "re");
	if (f && fgets(name, sizeof(name), f))
		name[strcspn(name, "\n")] = '\0';
	if (f)
		fclose(f);
	snprintf(out, size, "%s%sprocess %.20s", name, *name ? ", " : "", pid);
}

/* "dynolog, process 1234", or "another process" where /proc does not say. The table of sockets
 * gives an inode; the process is the one that has it open. */
static void find_owner(unsigned port, char *out, size_t size)
{
	unsigned long inode = listening_inode("/proc/self/net/tcp", port);
	char socket[64];
	struct dirent *e;

	snprintf(out, size, "another process");
	if (!inode)
		inode = listening_inode("/proc/self/net/tcp6", port);
	if (!inode)
		return;
	snprintf(socket, sizeof(socket), "socket:[%lu]", inode);
	DIR *proc = opendir("/proc");
	while (proc && (e = readdir(proc))) {
		if (e->d_name[0] < '1' || e->d_name[0] > '9' || !has_open(e->d_name, socket))
			continue;
		describe_process(e->d_name, out, size);
		break;
	}
	if (proc)
		closedir(proc);
}

/* --- listening --- */

/* Connections inherit all this, which saves system calls for each. Without the sizes, the kernel
 * would keep megabytes of replies for a peer that does not read. */
static void set_options(const struct listener *l)
{
	const int on = 1, send_bytes = SEND_BYTES, receive_bytes = RECEIVE_BYTES;

	setsockopt(l->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	setsockopt(l->fd, SOL_SOCKET, SO_SNDBUF, &send_bytes, sizeof(send_bytes));
	setsockopt(l->fd, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof(receive_bytes));
}

static int explain_bind(int error, const char *host, unsigned port, struct err *err)
{
	char owner[80];

	if (error == EADDRINUSE) {
		find_owner(port, owner, sizeof(owner));
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
	struct sockaddr_storage a = {0};
	struct listener *l;

	memcpy(&a, ai->ai_addr, ai->ai_addrlen);
	unsigned port = s->listeners.n ? s->listeners.v[0].port : s->daemon->config->port;
	address_set_port((struct sockaddr *)&a, port);
	int r = listeners_open(&s->listeners, (struct sockaddr *)&a, ai->ai_addrlen, !dual, &l);
	if (r == -E2BIG)
		return err_set(err, r, "cannot listen on more than %d addresses", LISTENERS_MAX);
	if (r < 0)
		return explain_bind(-r, host, port, err);
	set_options(l);
	if (!s->daemon->tls && !address_is_loopback((struct sockaddr *)&a))
		log_warn("'%s' is reached from outside and there are no certificates: %s; make "
			 "some with: sonde certs",
			 host,
			 s->daemon->config->trust_local_users
				 ? "anybody who reaches the port can have every job traced"
				 : "callers from other machines are refused");
	return 0;
}

static struct addrinfo *resolve_host(const char *host, struct err *err)
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
	struct addrinfo *found = resolve_host(host, err);
	int r = found ? 0 : -EINVAL;

	for (struct addrinfo *ai = found; ai && r == 0; ai = ai->ai_next) {
		if (ai->ai_family == AF_INET || ai->ai_family == AF_INET6)
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

/* What --bind asks for: all of it is needed. */
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

static int listen_tcp(struct rpc_server *s, struct err *err)
{
	int r = 0;

	for (int tries = 0; tries < PORT_TRIES; tries++) {
		r = s->daemon->config->binds[0] ? listen_asked(s, err) : listen_default(s, err);
		if (r == 0)
			return 0;
		listeners_close(&s->listeners);
		if (r != -EADDRINUSE || s->daemon->config->port)
			break;
	}
	return r;
}

int rpc_listen(struct rpc_server *s, struct err *err)
{
	const char *path = s->daemon->config->control_socket;
	int r = listen_tcp(s, err);

	return r == 0 && path ? listeners_open_path(&s->listeners, path, err) : r;
}

void rpc_listen_inherited(struct rpc_server *s, const int *fds, int nfds)
{
	for (int i = 0; i < nfds; i++) {
		const struct listener *l = listeners_add(&s->listeners, fds[i]);

		if (l && !l->is_unix)
			set_options(l);
	}
}
