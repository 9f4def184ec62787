/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "daemon/http/http.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/http/http_impl.h"
#include "net/address.h"

#define LOG_AREA "http"
#include "base/log.h"

static void on_accepted(void *arg, const struct listener *from, int fd)
{
	struct http_server *s = arg;
	struct caller caller = access_identify(s->d->access, fd);
	bool metrics_only = from == s->prometheus;

	if (caller.kind == CALLER_CERTIFIED)
		handshakes_add(s->d->handshakes, &s->handshaking[metrics_only], fd, &caller);
	else
		http_conn_new(s, metrics_only, fd, NULL, &caller);
}

static void on_greeted(void *arg, int fd, SSL *ssl, const struct caller *caller)
{
	http_conn_new(arg, false, fd, ssl, caller);
}

static void on_greeted_for_metrics(void *arg, int fd, SSL *ssl, const struct caller *caller)
{
	http_conn_new(arg, true, fd, ssl, caller);
}

static void on_refused(void *arg, enum greeting_refusal why, const char *peer, const char *words)
{
	struct http_server *s = arg;

	(void)why;
	s->refused++;
	if (words)
		log_debug("no TLS with %s: %s", peer, words);
}

static void init_greetings(struct http_server *s)
{
	for (int i = 0; i < 2; i++)
		s->handshaking[i] = (struct handshakes_server){.certificate_optional = true,
							       .greeted = i ? on_greeted_for_metrics
									    : on_greeted,
							       .refused = on_refused,
							       .arg = s};
}

/* Negative errno; -EINVAL: it is no address. "::" means every address of both families. */
static int listen_at(struct http_server *s, const char *text, unsigned port, struct listener **out)
{
	struct sockaddr_storage address;
	socklen_t len;

	if (!address_parse(text, port, &address, &len))
		return -EINVAL;
	return listeners_open(&s->listeners, (struct sockaddr *)&address, len, strcmp(text, "::"),
			      out);
}

static int listen_loopback(struct http_server *s, struct err *err)
{
	unsigned port = s->d->config->http_port;
	struct listener *l, *l6;
	int r = listen_at(s, "127.0.0.1", port, &l);

	if (r < 0)
		return err_sys(err, r, "cannot listen on 127.0.0.1:%u", port);
	s->port = l->port;
	r = listen_at(s, "::1", s->port, &l6);
	if (r < 0)
		log_debug("no HTTP on [::1]:%u: %s", s->port, strerror(-r));
	return 0;
}

static int listen_prometheus(struct http_server *s, struct err *err)
{
	const struct daemon_config *c = s->d->config;
	struct listener *l;
	int r = listen_at(s, c->prometheus_address, c->prometheus_port, &l);

	if (r == -EINVAL)
		return err_set(err, r, "--prometheus-address '%s' is no IP address",
			       c->prometheus_address);
	if (r < 0)
		return err_sys(err, r,
			       "cannot listen for Prometheus on %s port %u (--prometheus-port "
			       "chooses another)",
			       c->prometheus_address, c->prometheus_port);
	s->prometheus = l;
	log_info("prometheus port = %u", l->port);
	return 0;
}

int http_server_new(struct daemon *d, const int *fds, int nfds, struct http_server **out,
		    struct err *err)
{
	struct http_server *s = xcalloc(1, sizeof(*s));
	int r = 0;

	s->d = d;
	init_greetings(s);
	s->listeners.accepted = on_accepted;
	s->listeners.arg = s;
	listeners_init(&s->listeners, d->base);
	for (int i = 0; i < nfds; i++) {
		const struct listener *l = listeners_add(&s->listeners, fds[i]);

		if (l && !s->port)
			s->port = l->port;
	}
	if (nfds <= 0 && d->config->http)
		r = listen_loopback(s, err);
	if (r == 0 && s->listeners.n)
		log_info("http port = %u", s->port);
	if (r == 0 && d->config->http_socket)
		r = listeners_open_path(&s->listeners, d->config->http_socket, err);
	if (r == 0 && d->config->use_prometheus)
		r = listen_prometheus(s, err);
	if (r < 0) {
		http_server_free(s);
		return r;
	}
	listeners_start(&s->listeners);
	*out = s;
	return 0;
}

void http_server_free(struct http_server *s)
{
	if (!s)
		return;
	handshakes_forget(s->d->handshakes, &s->handshaking[0]);
	handshakes_forget(s->d->handshakes, &s->handshaking[1]);
	while (s->conns)
		http_conn_free(s->conns);
	hmap_release(&s->per_source);
	listeners_release(&s->listeners);
	free(s);
}

struct http_counts http_server_counts(const struct http_server *s)
{
	return (struct http_counts){s->requests, s->refused};
}
