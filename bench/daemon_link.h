/* SPDX-License-Identifier: MulanPSL-2.0 */
/* Connections of benchmarks to the control RPC, plain or over TLS, one call after another. */
#ifndef SONDE_BENCH_DAEMON_LINK_H
#define SONDE_BENCH_DAEMON_LINK_H

#include <fcntl.h>
#include <ftw.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>

#include "daemon_child.h"
#include "net/tls/tls.h"

/* A server to measure. */
struct target {
	const char *name;
	pid_t pid;
	unsigned port;
	SSL_CTX *tls; /* NULL: plain */
};

struct link {
	int fd; /* -1: none */
	SSL *ssl;
};

/*
 * Each client has an address of its own: with one address, most ports of the machine would soon
 * wait for their last packets, and the search for a free one would be what is measured.
 */
static inline int dial(unsigned port, unsigned address)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	struct sockaddr_in from = {.sin_family = AF_INET};
	const int on = 1;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	from.sin_addr.s_addr = htonl(INADDR_LOOPBACK + address);
	setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof(on));
	if (fd < 0 || bind(fd, (struct sockaddr *)&from, sizeof(from)) < 0 ||
	    connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0) {
		if (fd >= 0)
			close(fd);
		return -1;
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	return fd;
}

static inline bool link_open(struct link *l, const struct target *t, unsigned address)
{
	*l = (struct link){.fd = dial(t->port, address)};
	if (l->fd < 0 || !t->tls)
		return l->fd >= 0;
	l->ssl = tls_client_ssl(t->tls, "localhost");
	return l->ssl && SSL_set_fd(l->ssl, l->fd) && SSL_connect(l->ssl) == 1;
}

static inline void link_close(struct link *l)
{
	if (l->ssl && SSL_is_init_finished(l->ssl))
		SSL_shutdown(l->ssl);
	SSL_free(l->ssl);
	if (l->fd >= 0)
		close(l->fd);
	*l = (struct link){.fd = -1};
}

static inline bool read_all(struct link *l, void *data, size_t n)
{
	for (char *at = data; n;) {
		ssize_t got = l->ssl ? SSL_read(l->ssl, at, (int)n) : read(l->fd, at, n);

		if (got <= 0)
			return false;
		at += got;
		n -= (size_t)got;
	}
	return true;
}

static inline bool write_frame(struct link *l, const char *text, size_t n)
{
	char frame[8192];
	int32_t length = (int32_t)n;

	memcpy(frame, &length, sizeof(length));
	memcpy(frame + sizeof(length), text, n);
	n += sizeof(length);
	return (l->ssl ? SSL_write(l->ssl, frame, (int)n) : write(l->fd, frame, n)) == (ssize_t)n;
}

/* Gives the length of the body, 0 on failure. */
static inline size_t read_frame(struct link *l, char *body, size_t size)
{
	int32_t length;

	if (!read_all(l, &length, sizeof(length)) || length <= 0 || (size_t)length >= size ||
	    !read_all(l, body, (size_t)length))
		return 0;
	return (size_t)length;
}

/* Has them made by the program itself; gives what clients need. */
static inline SSL_CTX *make_certs(const char *dir, const char *key_type)
{
	const char *build = getenv("SONDE_BUILD");
	char sonde[4096], client[128];
	SSL_CTX *tls = NULL;
	struct err err = {0};
	int status;

	snprintf(sonde, sizeof(sonde), "%s/bin/sonde", build ? build : "build");
	pid_t pid = fork();
	if (pid == 0) {
		dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), STDOUT_FILENO);
		execl(sonde, sonde, "certs", "-o", dir, "--key-type", key_type, "bench",
		      (char *)NULL);
		_exit(127);
	}
	if (pid < 0 || waitpid(pid, &status, 0) < 0 || status)
		bench_die("cannot make certificates");
	snprintf(client, sizeof(client), "%s/client", dir);
	if (tls_client_new(client, NULL, NULL, &tls, &err) < 0) {
		fprintf(stderr, "%s: %s\n", program_invocation_short_name, err.text);
		exit(1);
	}
	return tls;
}

static inline int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

static inline void remove_certs(const char *dir)
{
	nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

#endif
