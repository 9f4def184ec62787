/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "daemon/sinks/receiver.h"

#include <errno.h>
#include <event2/event.h>
#include <limits.h>
#include <netdb.h>
#include <openssl/err.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "net/stream.h"

/* Waits for the socket. -ETIMEDOUT at the deadline, -ECANCELED when the thread is to end. */
static int wait_for(struct receiver_conn *c, short what, struct err *err)
{
	short events = what == EV_WRITE ? POLLOUT : POLLIN;

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

static int fail_exchange(const struct receiver_conn *c, int code, struct err *err)
{
	const char *host = c->target->host, *port = c->target->port;

	if (code == -EPIPE)
		return err_set(err, code, "'%s:%s' has closed the connection", host, port);
	if (!c->ssl || code != -EPROTO)
		return err_sys(err, code, "connection to '%s:%s' failed", host, port);
	const char *reason = ERR_reason_error_string(ERR_peek_last_error());
	long verified = SSL_get_verify_result(c->ssl);
	if (verified != X509_V_OK)
		reason = X509_verify_cert_error_string(verified);
	return err_set(err, code, "TLS with '%s:%s' failed: %s", host, port,
		       reason ? reason : "the connection was closed");
}

static int connect_one(struct receiver_conn *c, const struct addrinfo *a, struct err *err)
{
	int error = 0;
	socklen_t len = sizeof(error);

	c->fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (c->fd < 0)
		return fail_exchange(c, -errno, err);
	int r = 0;
	if (connect(c->fd, a->ai_addr, a->ai_addrlen) < 0) {
		r = errno == EINPROGRESS ? wait_for(c, EV_WRITE, err)
					 : fail_exchange(c, -errno, err);
		if (r == 0 && getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error)
			r = fail_exchange(c, -error, err);
	}
	if (r < 0) {
		close(c->fd);
		c->fd = -1;
	}
	return r;
}

static int shake_hands(struct receiver_conn *c, struct err *err)
{
	const char *host = c->target->host;

	c->ssl = SSL_new(c->target->tls);
	if (!c->ssl)
		return err_set(err, -ENOMEM, "cannot prepare TLS");
	stream_attach(c->ssl, c->fd);
	SSL_set_connect_state(c->ssl);
	/* a name that cannot be set would not be checked either */
	if (!X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(c->ssl), host) &&
	    (!SSL_set1_host(c->ssl, host) || !SSL_set_tlsext_host_name(c->ssl, host)))
		return err_set(err, -EPROTO, "cannot speak TLS with '%.200s': no host name", host);
	for (;;) {
		short wait;
		int r = stream_handshake(c->ssl, &wait);

		if (r == 0)
			return 0;
		r = r == -EAGAIN ? wait_for(c, wait, err) : fail_exchange(c, r, err);
		if (r < 0)
			return r;
	}
}

void receiver_restart(struct receiver_conn *c)
{
	c->deadline_ns = clock_mono_ns() + (uint64_t)c->target->timeout_ms * 1000000;
}

int receiver_connect(const struct receiver *t, struct receiver_conn *out, struct err *err)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *all = NULL;
	struct receiver_conn c = {.fd = -1, .target = t};

	receiver_restart(&c);
	int e = getaddrinfo(t->host, t->port, &hints, &all);
	if (e)
		return err_set(err, -EHOSTUNREACH, "cannot find '%s': %s", t->host,
			       gai_strerror(e));
	int r = -EHOSTUNREACH;
	for (const struct addrinfo *a = all; a && c.fd < 0 && r != -ECANCELED; a = a->ai_next)
		r = connect_one(&c, a, err);
	freeaddrinfo(all);
	if (r == 0 && t->tls)
		r = shake_hands(&c, err);
	if (r < 0) {
		receiver_close(&c);
		return r;
	}
	*out = c;
	return 0;
}

int receiver_write(struct receiver_conn *c, const void *data, size_t bytes, struct err *err)
{
	const char *at = data;

	while (bytes) {
		short wait;
		ssize_t n = stream_send(c->fd, c->ssl, at, bytes, &wait);

		if (n < 0) {
			int r = n == -EAGAIN ? wait_for(c, wait, err)
					     : fail_exchange(c, (int)n, err);

			if (r < 0)
				return r;
			continue;
		}
		at += n;
		bytes -= (size_t)n;
	}
	return 0;
}

int receiver_read(struct receiver_conn *c, void *data, size_t bytes, struct err *err)
{
	for (;;) {
		short wait;
		ssize_t n = stream_recv(c->fd, c->ssl, data, bytes, &wait);

		if (n >= 0)
			return (int)n;
		int r = n == -EAGAIN ? wait_for(c, wait, err) : fail_exchange(c, (int)n, err);
		if (r < 0)
			return r;
	}
}

void receiver_close(struct receiver_conn *c)
{
	SSL_free(c->ssl);
	if (c->fd >= 0)
		close(c->fd);
	c->ssl = NULL;
	c->fd = -1;
}

/* --- HTTP POST --- */

struct post {
	char *host, *port; /* port without a colon */
	char *authority; /* as the Host header has it */
	char *path;
	struct buf headers; /* "Name: value\r\n" … */
	struct receiver target;
};

/* Text that goes into a head must not end its line. */
static bool is_clean(const char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text < ' ' || *text == 127)
			return false;
	return true;
}

static int parse_endpoint(struct post *p, const char *url, bool *out_tls, struct err *err)
{
	const char *rest = NULL;

	if (!strncasecmp(url, "http://", 7))
		rest = url + 7;
	else if (!strncasecmp(url, "https://", 8))
		rest = url + 8;
	*out_tls = rest == url + 8;
	size_t authority = rest ? strcspn(rest, "/?#") : 0;
	if (!authority || !is_clean(url) || strchr(url, ' ') || memchr(rest, '@', authority))
		return err_set(err, -EINVAL,
			       "endpoint '%s' is not of the form http[s]://host[:port][/path]",
			       url);
	p->authority = xstrndup(rest, authority);
	p->path = xstrdup(rest + authority);

	const char *host = p->authority, *end = strchr(host, ']');
	const char *colon = strchr(end ? end : host, ':');
	size_t len = colon ? (size_t)(colon - host) : strlen(host);
	if (*host == '[' && end) {
		host++;
		len = (size_t)(end - host);
	}
	p->host = xstrndup(host, len);
	p->port = xstrdup(colon ? colon + 1 : *out_tls ? "443" : "80");
	unsigned long port = strtoul(p->port, NULL, 10);
	if (!len || !port || port > 65535 || strspn(p->port, "0123456789") != strlen(p->port))
		return err_set(err, -EINVAL, "endpoint '%s' has no good host or port", url);
	return 0;
}

/* Endpoints are given with the path or, more often, without it. */
static void complete_path(struct post *p, const char *wanted)
{
	struct buf path = {0};
	size_t len = strlen(p->path), n = strlen(wanted);

	while (len && p->path[len - 1] == '/')
		p->path[--len] = '\0';
	buf_add_str(&path, p->path);
	if (len < n || strcmp(p->path + len - n, wanted))
		buf_add_str(&path, wanted);
	free(p->path);
	p->path = xstrdup(buf_str(&path));
	buf_release(&path);
}

static int parse_headers(struct post *p, const char *text, struct err *err)
{
	while (text && *text) {
		size_t len = strcspn(text, ","), name = strcspn(text, "=,");
		char *item = xstrndup(text, len);
		bool good = name && name < len && is_clean(item) && strcspn(item, " \t:") >= name;

		if (good)
			buf_addf(&p->headers, "%.*s: %s\r\n", (int)name, item, item + name + 1);
		free(item);
		if (!good)
			return err_set(err, -EINVAL,
				       "headers '%s' are not of the form name=value,name=value",
				       text);
		text += len + (text[len] == ',');
	}
	return 0;
}

static bool is_given(const char *file)
{
	return file && *file;
}

/* A daemon has nobody to ask: OpenSSL would wait at the terminal. */
static int no_password(char *buf, int size, int writing, void *arg)
{
	(void)buf, (void)size, (void)writing, (void)arg;
	return -1;
}

static int load_tls(struct post *p, const struct post_options *o, struct err *err)
{
	SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());

	p->target.tls = ctx;
	if (!ctx)
		return err_set(err, -ENOMEM, "cannot prepare TLS");
	SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION);
	SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
	SSL_CTX_set_default_passwd_cb(ctx, no_password);
	if (is_given(o->ca) ? !SSL_CTX_load_verify_locations(ctx, o->ca, NULL)
			    : !SSL_CTX_set_default_verify_paths(ctx))
		return err_set(err, -EINVAL, "cannot read certificates of '%s'",
			       is_given(o->ca) ? o->ca : "the system");
	if (is_given(o->cert) && SSL_CTX_use_certificate_chain_file(ctx, o->cert) != 1)
		return err_set(err, -EINVAL, "cannot read the certificate '%s'", o->cert);
	if (is_given(o->key) && SSL_CTX_use_PrivateKey_file(ctx, o->key, SSL_FILETYPE_PEM) != 1)
		return err_set(err, -EINVAL,
			       "cannot read the key '%s', or it is encrypted, or not that of the "
			       "certificate",
			       o->key);
	return 0;
}

static int make_tls(struct post *p, const struct post_options *o, struct err *err)
{
	int r = load_tls(p, o, err);

	/* what is left there would be taken for an error of another connection */
	ERR_clear_error();
	return r;
}

int post_new(const struct post_options *o, struct post **out, struct err *err)
{
	struct post *p = xcalloc(1, sizeof(*p));
	bool tls;

	int r = parse_endpoint(p, o->endpoint, &tls, err);
	r = r ?: parse_headers(p, o->headers, err);
	if (r == 0 && tls)
		r = make_tls(p, o, err);
	if (r < 0) {
		post_free(p);
		return r;
	}
	complete_path(p, o->path);
	p->target.host = p->host;
	p->target.port = p->port;
	p->target.timeout_ms = o->timeout_ms;
	*out = p;
	return 0;
}

void post_free(struct post *p)
{
	if (!p)
		return;
	SSL_CTX_free(p->target.tls);
	buf_release(&p->headers);
	free(p->host);
	free(p->port);
	free(p->authority);
	free(p->path);
	free(p);
}

/* Reads until the status line is there: "HTTP/1.1 200 OK". */
static int read_status(struct receiver_conn *c, struct err *err)
{
	char line[256];
	size_t n = 0;

	while (n < sizeof(line) - 1 && !memchr(line, '\n', n)) {
		int r = receiver_read(c, line + n, sizeof(line) - 1 - n, err);

		if (r < 0)
			return r;
		if (r == 0)
			return err_set(err, -EAGAIN, "the connection was closed without an answer");
		n += (size_t)r;
	}
	line[n] = '\0';
	if (strncmp(line, "HTTP/1.", 7) || n < 12 || line[8] != ' ' ||
	    strspn(line + 9, "0123456789") != 3)
		return err_set(err, -EPROTO, "the answer is no HTTP");
	return atoi(line + 9);
}

static int exchange_messages(struct post *p, struct receiver_conn *c, const struct buf *body,
			     struct err *err)
{
	struct buf head = {0};

	buf_addf(&head,
		 "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n"
		 "User-Agent: sonde/" SONDE_VERSION "\r\nConnection: close\r\n"
		 "Content-Length: %zu\r\n",
		 p->path, p->authority, body->len);
	buf_add(&head, p->headers.data, p->headers.len);
	buf_add_str(&head, "\r\n");
	int r = receiver_write(c, head.data, head.len, err);
	buf_release(&head);
	r = r ?: receiver_write(c, body->data, body->len, err);
	return r == 0 ? read_status(c, err) : r;
}

int post_send(struct post *p, const struct buf *body, int end_fd, struct err *err)
{
	struct receiver_conn c;

	p->target.end_fd = end_fd;
	int r = receiver_connect(&p->target, &c, err);
	if (r == 0) {
		r = exchange_messages(p, &c, body, err);
		receiver_close(&c);
	}
	if (r >= 200 && r < 300)
		return 0;
	if (r == -EPROTO || r == -ECANCELED)
		return r;
	if (r < 0)
		return -EAGAIN;
	int code = r == 429 || r == 502 || r == 503 || r == 504 ? -EAGAIN : -EBADMSG;
	return err_set(err, code, "the receiver answers with HTTP status %d", r);
}
