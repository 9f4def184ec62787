/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "daemon/http/http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "daemon/http/http_impl.h"
#include "net/address.h"

#define LOG_AREA "http"
#include "base/log.h"

#define BACKLOG 64
#define ACCEPT_AGAIN_S 1
#define HANDSHAKE_GAP_US 8000

static void enable_listeners(struct http_server *s, bool on)
{
	for (unsigned i = 0; i < s->nlisteners; i++) {
		if (on)
			evconnlistener_enable(s->listeners[i].listener);
		else
			evconnlistener_disable(s->listeners[i].listener);
	}
}

/* A handshake takes milliseconds of the loop, and whoever reaches the port can ask for any number:
 * most of the time belongs to others. */
static void on_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *address,
		      int len, void *arg)
{
	struct http_listener *l = arg;

	(void)listener, (void)address, (void)len;
	http_conn_new(l, fd);
	if (!l->server->d->tls)
		return;
	enable_listeners(l->server, false);
	event_add(l->server->accept_again, &(struct timeval){.tv_usec = HANDSHAKE_GAP_US});
}

/* No free descriptor: the connection stays in the queue, and asking again at once would spin. */
static void on_accept_error(struct evconnlistener *listener, void *arg)
{
	struct http_listener *l = arg;

	(void)listener;
	log_warn("cannot accept connections: %s; trying again in a second", strerror(errno));
	enable_listeners(l->server, false);
	event_add(l->server->accept_again, &(struct timeval){.tv_sec = ACCEPT_AGAIN_S});
}

static void on_accept_again(evutil_socket_t fd, short what, void *arg)
{
	(void)fd, (void)what;
	enable_listeners(arg, true);
}

/* Takes the socket over, also if it fails. */
static int add_listener(struct http_server *s, int fd, bool metrics_only, struct err *err)
{
	struct http_listener *l = &s->listeners[s->nlisteners];

	*l = (struct http_listener){.server = s, .metrics_only = metrics_only};
	l->listener = evconnlistener_new(s->d->base, on_accept, l,
					 LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, 0, fd);
	if (!l->listener) {
		close(fd);
		return err_set(err, -ENOMEM, "cannot wait for connections");
	}
	evconnlistener_set_error_cb(l->listener, on_accept_error);
	s->nlisteners++;
	return 0;
}

/* An address of either family with a port. */
static int parse_address(const char *text, unsigned port, struct sockaddr_storage *out,
			 socklen_t *out_len)
{
	struct sockaddr_in *in = (struct sockaddr_in *)out;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)out;

	memset(out, 0, sizeof(*out));
	if (inet_pton(AF_INET, text, &in->sin_addr) == 1) {
		in->sin_family = AF_INET;
		in->sin_port = htons((uint16_t)port);
		*out_len = sizeof(*in);
		return 0;
	}
	if (inet_pton(AF_INET6, text, &in6->sin6_addr) == 1) {
		in6->sin6_family = AF_INET6;
		in6->sin6_port = htons((uint16_t)port);
		*out_len = sizeof(*in6);
		return 0;
	}
	return -EINVAL;
}

static unsigned port_of(int fd)
{
	struct sockaddr_storage own;
	socklen_t len = sizeof(own);

	if (getsockname(fd, (struct sockaddr *)&own, &len) < 0)
		return 0;
	return address_port((struct sockaddr *)&own);
}

/* A listening socket, or a negative errno. */
static int listen_at(const char *text, unsigned port)
{
	struct sockaddr_storage address;
	socklen_t len;
	int one = 1;

	int r = parse_address(text, port, &address, &len);
	if (r < 0)
		return r;
	int fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	/* "::" means every address of both families */
	if (address.ss_family == AF_INET6 && strcmp(text, "::"))
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one));
	if (bind(fd, (struct sockaddr *)&address, len) < 0 || listen(fd, BACKLOG) < 0) {
		r = -errno;
		close(fd);
		return r;
	}
	return fd;
}

static int listen_loopback(struct http_server *s, struct err *err)
{
	int fd = listen_at("127.0.0.1", s->d->config->http_port);

	if (fd < 0)
		return err_sys(err, fd, "cannot listen on 127.0.0.1:%u", s->d->config->http_port);
	s->port = port_of(fd);
	int r = add_listener(s, fd, false, err);
	if (r < 0)
		return r;
	int fd6 = listen_at("::1", s->port);
	if (fd6 < 0) {
		log_debug("no HTTP on [::1]:%u: %s", s->port, strerror(-fd6));
		return 0;
	}
	return add_listener(s, fd6, false, err);
}

static int listen_prometheus(struct http_server *s, struct err *err)
{
	const struct daemon_config *c = s->d->config;
	int fd = listen_at(c->prometheus_address, c->prometheus_port);

	if (fd == -EINVAL)
		return err_set(err, fd, "--prometheus-address '%s' is no IP address",
			       c->prometheus_address);
	if (fd < 0)
		return err_sys(err, fd,
			       "cannot listen for Prometheus on %s port %u (--prometheus-port "
			       "chooses another)",
			       c->prometheus_address, c->prometheus_port);
	log_info("prometheus port = %u", port_of(fd));
	return add_listener(s, fd, true, err);
}

static int take_inherited(struct http_server *s, const int *fds, int nfds, struct err *err)
{
	int r = 0;

	for (int i = 0; i < nfds && s->nlisteners < HTTP_MAX_LISTENERS - 1 && r == 0; i++) {
		if (!s->port)
			s->port = port_of(fds[i]);
		r = add_listener(s, fds[i], false, err);
	}
	return r;
}

int http_server_new(struct daemon *d, const int *fds, int nfds, struct http_server **out,
		    struct err *err)
{
	struct http_server *s = xcalloc(1, sizeof(*s));
	int r = 0;

	s->d = d;
	s->accept_again = evtimer_new(d->base, on_accept_again, s);
	event_priority_set(s->accept_again, DAEMON_PRIORITY_RPC);
	if (nfds > 0)
		r = take_inherited(s, fds, nfds, err);
	else if (d->config->http)
		r = listen_loopback(s, err);
	if (r == 0 && s->nlisteners)
		log_info("http port = %u", s->port);
	if (r == 0 && d->config->use_prometheus)
		r = listen_prometheus(s, err);
	if (r < 0) {
		http_server_free(s);
		return r;
	}
	*out = s;
	return 0;
}

void http_server_free(struct http_server *s)
{
	if (!s)
		return;
	while (s->conns)
		http_conn_free(s->conns);
	for (unsigned i = 0; i < s->nlisteners; i++)
		evconnlistener_free(s->listeners[i].listener);
	event_free(s->accept_again);
	free(s);
}

json_t *http_server_describe(const struct http_server *s)
{
	return json_pack("{s:i, s:i, s:I, s:I}", "port", (int)s->port, "connections",
			 (int)s->nconns, "requests", (json_int_t)s->requests, "refused",
			 (json_int_t)s->refused);
}
