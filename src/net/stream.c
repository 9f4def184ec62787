/* SPDX-License-Identifier: MulanPSL-2.0 */
#include "net/stream.h"

#include <errno.h>
#include <event2/event.h>
#include <limits.h>
#include <openssl/err.h>
#include <sys/socket.h>

void stream_attach(SSL *ssl, int fd)
{
	SSL_set_fd(ssl, fd);
	SSL_set_mode(ssl, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
				  SSL_MODE_RELEASE_BUFFERS);
}

/* What a call of OpenSSL that gave r <= 0 means. */
static int failure_of(const SSL *ssl, int r, short *out_wait)
{
	switch (SSL_get_error(ssl, r)) {
	case SSL_ERROR_WANT_READ:
		*out_wait = EV_READ;
		return -EAGAIN;
	case SSL_ERROR_WANT_WRITE:
		*out_wait = EV_WRITE;
		return -EAGAIN;
	case SSL_ERROR_ZERO_RETURN:
		return 0;
	default:
		return -EPROTO;
	}
}

ssize_t stream_recv(int fd, SSL *ssl, void *data, size_t size, short *out_wait)
{
	ssize_t r;

	if (ssl) {
		ERR_clear_error();
		int n = SSL_read(ssl, data, size < INT_MAX ? (int)size : INT_MAX);
		return n > 0 ? n : failure_of(ssl, n, out_wait);
	}
	do
		r = recv(fd, data, size, 0);
	while (r < 0 && errno == EINTR);
	*out_wait = EV_READ;
	return r < 0 ? -errno : r;
}

ssize_t stream_send(int fd, SSL *ssl, const void *data, size_t n, short *out_wait)
{
	ssize_t r;

	if (ssl) {
		ERR_clear_error();
		int sent = SSL_write(ssl, data, n < INT_MAX ? (int)n : INT_MAX);
		if (sent > 0)
			return sent;
		r = failure_of(ssl, sent, out_wait);
		return r ? r : -EPIPE;
	}
	do
		r = send(fd, data, n, MSG_NOSIGNAL);
	while (r < 0 && errno == EINTR);
	*out_wait = EV_WRITE;
	return r < 0 ? -errno : r;
}

int stream_handshake(SSL *ssl, short *out_wait)
{
	ERR_clear_error();
	int r = SSL_do_handshake(ssl);
	if (r == 1)
		return 0;
	r = failure_of(ssl, r, out_wait);
	return r ? r : -EPROTO;
}
