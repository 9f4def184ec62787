/* SPDX-License-Identifier: MulanPSL-2.0 */
/*
 * Bytes of a non-blocking connection, plain (ssl NULL) or through TLS, for both sides of the RPC.
 * -EAGAIN: *out_wait (EV_READ or EV_WRITE) says what to wait for; TLS may have to read in order to
 * write. The process ignores SIGPIPE.
 */
#ifndef SONDE_NET_STREAM_H
#define SONDE_NET_STREAM_H

#include <openssl/ssl.h>
#include <stddef.h>
#include <sys/types.h>

/* How many bytes, 0 at the end, or a negative errno (-EPROTO: TLS failed). */
ssize_t stream_recv(int fd, SSL *ssl, void *data, size_t size, short *out_wait);
ssize_t stream_send(int fd, SSL *ssl, const void *data, size_t n, short *out_wait);

/* Goes on with the handshake of either side: 0 when it is done. */
int stream_handshake(SSL *ssl, short *out_wait);

/* Prepares an SSL for these functions. */
void stream_attach(SSL *ssl, int fd);

#endif
