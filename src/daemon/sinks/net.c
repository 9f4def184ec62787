/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "daemon/sinks/net.h"

#include <errno.h>
#include <limits.h>
#include <netdb.h>
#include <openssl/err.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"

/* Waits for the socket. -ETIMEDOUT at the deadline, -ECANCELED when the thread is to end. */
static int wait_for(struct net_conn *c, short events, struct err *err)
{
	for (;;) {
		struct pollfd fds[] = {{c->fd, events, 0}, {c->target->end_fd, POLLIN, 0}};
		uint64_t now = clock_mono_ns();

		if (now >= c->deadline_ns)
			return err_set(err, -ETIMEDOUT, "'%s:%s' does not answer in time",
				       c->target->host, c->target->port);
		uint64_t ms = (c->deadline_ns - now) / 1000000 + 1;
		int n = poll(fds, 2, ms > INT_MAX ? INT_MAX : (int)ms);
		if (n < 0 && errno != EINTR)
			return err_sys(err, -errno, "cannot wait for '%s:%s'", c->target->host,
				       c->target->port);
		if (n > 0 && fds[1].revents)
			return err_set(err, -ECANCELED, "the daemon ends");
		if (n > 0 && fds[0].revents)
			return 0;
	}
}

static int failed(const struct net_conn *c, int code, struct err *err)
{
	return err_sys(err, code, "connection to '%s:%s' failed", c->target->host, c->target->port);
}

static int connect_one(struct net_conn *c, const struct addrinfo *a, struct err *err)
{
	int error = 0;
	socklen_t len = sizeof(error);

	c->fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (c->fd < 0)
		return failed(c, -errno, err);
	int r = 0;
	if (connect(c->fd, a->ai_addr, a->ai_addrlen) < 0) {
		r = errno == EINPROGRESS ? wait_for(c, POLLOUT, err) : failed(c, -errno, err);
		if (r == 0 && getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error)
			r = failed(c, -error, err);
	}
	if (r < 0) {
		close(c->fd);
		c->fd = -1;
	}
	return r;
}

/* What to do after an SSL function gave `r`: 0: try again; negative errno: it failed. */
static int tls_wait(struct net_conn *c, int r, struct err *err)
{
	switch (SSL_get_error(c->ssl, r)) {
	case SSL_ERROR_WANT_READ:
		return wait_for(c, POLLIN, err);
	case SSL_ERROR_WANT_WRITE:
		return wait_for(c, POLLOUT, err);
	case SSL_ERROR_ZERO_RETURN:
		return err_set(err, -EPIPE, "'%s:%s' has closed the connection", c->target->host,
			       c->target->port);
	default:
		break;
	}
	const char *reason = ERR_reason_error_string(ERR_peek_last_error());
	long verified = SSL_get_verify_result(c->ssl);
	if (verified != X509_V_OK)
		reason = X509_verify_cert_error_string(verified);
	return err_set(err, -EPROTO, "TLS with '%s:%s' failed: %s", c->target->host,
		       c->target->port, reason ? reason : "the connection was closed");
}

static int handshake(struct net_conn *c, struct err *err)
{
	const char *host = c->target->host;

	c->ssl = SSL_new(c->target->tls);
	if (!c->ssl || !SSL_set_fd(c->ssl, c->fd))
		return err_set(err, -ENOMEM, "cannot prepare TLS");
	/* a name that cannot be set would not be checked either */
	if (!X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(c->ssl), host) &&
	    (!SSL_set1_host(c->ssl, host) || !SSL_set_tlsext_host_name(c->ssl, host)))
		return err_set(err, -EPROTO, "cannot speak TLS with '%.200s': no host name", host);
	for (;;) {
		ERR_clear_error();
		int r = SSL_connect(c->ssl);

		if (r == 1)
			return 0;
		r = tls_wait(c, r, err);
		if (r < 0)
			return r;
	}
}

void net_restart(struct net_conn *c)
{
	c->deadline_ns = clock_mono_ns() + (uint64_t)c->target->timeout_ms * 1000000;
}

int net_open(const struct net_target *t, struct net_conn *out, struct err *err)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *all = NULL;
	struct net_conn c = {.fd = -1, .target = t};

	net_restart(&c);
	int e = getaddrinfo(t->host, t->port, &hints, &all);
	if (e)
		return err_set(err, -EHOSTUNREACH, "cannot find '%s': %s", t->host,
			       gai_strerror(e));
	int r = -EHOSTUNREACH;
	for (const struct addrinfo *a = all; a && c.fd < 0 && r != -ECANCELED; a = a->ai_next)
		r = connect_one(&c, a, err);
	freeaddrinfo(all);
	if (r == 0 && t->tls)
		r = handshake(&c, err);
	if (r < 0) {
		net_close(&c);
		return r;
	}
	*out = c;
	return 0;
}

int net_write(struct net_conn *c, const void *data, size_t bytes, struct err *err)
{
	const char *at = data;

	while (bytes) {
		size_t part = bytes < INT_MAX ? bytes : INT_MAX;
		ssize_t n;
		int r = 0;

		ERR_clear_error();
		if (c->ssl)
			n = SSL_write(c->ssl, at, (int)part);
		else
			n = send(c->fd, at, part, MSG_NOSIGNAL);
		if (n > 0) {
			at += n;
			bytes -= (size_t)n;
			continue;
		}
		if (c->ssl)
			r = tls_wait(c, (int)n, err);
		else if (errno == EAGAIN)
			r = wait_for(c, POLLOUT, err);
		else if (errno != EINTR)
			r = failed(c, -errno, err);
		if (r < 0)
			return r;
	}
	return 0;
}

int net_read(struct net_conn *c, void *data, size_t bytes, struct err *err)
{
	for (;;) {
		ssize_t n;
		int r = 0;

		ERR_clear_error();
		if (c->ssl)
			n = SSL_read(c->ssl, data, (int)bytes);
		else
			n = recv(c->fd, data, bytes, 0);
		if (n > 0 || (n == 0 && !c->ssl))
			return (int)n;
		if (c->ssl && SSL_get_error(c->ssl, (int)n) == SSL_ERROR_ZERO_RETURN)
			return 0;
		if (c->ssl)
			r = tls_wait(c, (int)n, err);
		else if (errno == EAGAIN)
			r = wait_for(c, POLLIN, err);
		else if (errno != EINTR)
			r = failed(c, -errno, err);
		if (r < 0)
			return r;
	}
}

void net_close(struct net_conn *c)
{
	SSL_free(c->ssl);
	if (c->fd >= 0)
		close(c->fd);
	c->ssl = NULL;
	c->fd = -1;
}
